"""Acknowledged and recovered entries survive power cuts.  The contracts explore this in depth."""

from random import Random
from typing import Any

import pytest

from holdfast.logs.opening import FORMATS
from holdfast.testing import PowerLost, SimDisk

OPTIONS: dict[str, dict[str, Any]] = {
    "raft-wal": {"segment_size_max": 4096, "codec": 65_536},
    "shanghai": {"segment_size_max": 200},
    "file-log": {"capacity": 4},
}
CUTS = 12


def open_log(format: str, disk: SimDisk) -> Any:
    return FORMATS[format].open_writer(disk, **OPTIONS[format])


def entries(log: Any) -> list[bytes]:
    return [log.read(index) for index in range(log.first_index, log.last_index + 1)]


def reopened(format: str, disk: SimDisk) -> list[bytes]:
    with open_log(format, disk) as log:
        found = entries(log)
        assert not log.damage
        assert log.verify().verdict == "clean"
    return found


@pytest.mark.parametrize("format", FORMATS)
def test_acknowledged_entries_survive_every_power_cut(format: str) -> None:
    disk = SimDisk()
    log = open_log(format, disk)
    wanted: list[bytes] = []
    for number in range(12):
        batch = [b"%d/%d" % (number, i) * 9 for i in range(3)]
        log.append(batch)
        wanted += batch
        if number % 4 == 2:
            log.rotate()
        for seed in range(CUTS):
            assert reopened(format, disk.after_power_cut(Random(seed))) == wanted


@pytest.mark.parametrize("format", FORMATS)
def test_recovered_entries_survive_every_power_cut(format: str) -> None:
    """A killed owner leaves writes that no sync has covered; the next owner shows some of them."""
    lost = 0
    for step in range(1, 80):
        disk = SimDisk()
        log = open_log(format, disk)
        disk.posix.dies_at = disk.posix.operations + step
        count = 0
        try:
            for number in range(12):
                log.append([b"%d/%d" % (number, i) * 9 for i in range(3)])
                count += 3
        except PowerLost:
            lost += 1
        disk = disk.after_kill()
        with open_log(format, disk) as log:
            shown = entries(log)
            assert len(shown) >= count
            for seed in range(CUTS):
                assert reopened(format, disk.after_power_cut(Random(seed))) == shown
    assert lost > 10


@pytest.mark.parametrize("format", FORMATS)
def test_what_a_refreshed_reader_shows_survives_every_power_cut(format: str) -> None:
    """It looks at every change of the owner, also between a write and its sync."""
    disk = SimDisk()
    log = open_log(format, disk)
    log.append([b"first"])
    reader = FORMATS[format].open_reader(disk)
    shown = [1]

    def look() -> None:
        disk.posix.bystander = None
        if reader.refresh() > shown[-1]:
            found = entries(reader)
            for seed in range(CUTS):
                assert reopened(format, disk.after_power_cut(Random(seed)))[: len(found)] == found
            shown.append(reader.last_index)
        disk.posix.bystander = look

    disk.posix.bystander = look
    for number in range(12):
        log.append([b"%d/%d" % (number, i) * 9 for i in range(3)])
    assert len(shown) > 10
