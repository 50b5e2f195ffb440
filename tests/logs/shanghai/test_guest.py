import threading
from dataclasses import asdict
from pathlib import Path

import pytest

from holdfast.disk import OsDisk
from holdfast.errors import CorruptError
from holdfast.logs.log import Damage, SegmentInfo
from holdfast.logs.shanghai import Retention, ShanghaiLog, ShanghaiReader
from holdfast.logs.shanghai.reader import scan_segment
from holdfast.testing import SimDisk
from holdfast.testing.log_contract import run_all


def flip_entry(disk: SimDisk, name: str, entry: int, byte: int = 8) -> None:
    """Entries of the second to fourth segment take ten bytes each."""
    disk.flip(name, 8 * (64 + 10 * entry + byte))


def rows(disk: SimDisk) -> tuple[list[int], list[Damage]]:
    damage: list[Damage] = []
    found: list[int] = []
    for batch in ShanghaiReader(disk).scan(on_damage=damage.append):
        assert [b"%d" % i for i in batch["index"].to_pylist()] == batch["payload"].to_pylist()
        found += batch["index"].to_pylist()
    return found, damage


def test_a_scan_continues_after_damaged_entries(disk: SimDisk) -> None:
    flip_entry(disk, "segment_00002.wal", 4)
    flip_entry(disk, "segment_00002.wal", 5)
    flip_entry(disk, "segment_00003.wal", 9)
    found, damage = rows(disk)
    assert found == [i for i in range(1, 41) if i not in (15, 16, 30)]
    assert [(d.first_index, d.last_index, d.offset) for d in damage] == [
        (15, 15, 104),
        (16, 16, 114),
        (30, 30, 154),
    ]


def test_after_a_broken_length_the_rest_of_the_segment_is_lost(disk: SimDisk) -> None:
    flip_entry(disk, "segment_00002.wal", 4, byte=0)
    found, damage = rows(disk)
    assert found == [*range(1, 15), *range(21, 41)]
    assert [(d.first_index, d.last_index) for d in damage] == [(15, 20)]


def test_missing_and_doubtful_segments_are_reported_lost(disk: SimDisk) -> None:
    disk.remove("segment_00002.wal")
    found, damage = rows(disk)
    assert found == [*range(1, 11), *range(21, 41)]
    assert [(d.first_index, d.last_index) for d in damage] == [(11, 20)]
    file = disk.open("segment_00001.wal", writable=True)
    file.write_at(0, b"GARBAGE!", sync=True)
    found, damage = rows(disk)
    assert found == list(range(21, 41))
    assert damage == []


def test_offsets_are_where_the_entries_are(disk: SimDisk) -> None:
    guest = ShanghaiReader(disk)
    segments, seen = guest.segments(), []
    for batch in guest.scan():
        for index, offset, payload in zip(
            *(batch[name].to_pylist() for name in ("index", "offset", "payload")), strict=True
        ):
            name = next(s.name for s in segments if s.first_index <= index <= s.last_index)
            assert disk.files()[name][offset + 8 :].startswith(payload)
            seen.append(index)
    assert seen == list(range(1, 41))


def test_a_segment_that_is_not_there_is_not_called_clean(disk: SimDisk) -> None:
    with pytest.raises(FileNotFoundError, match=r"no segment segment_00009\.wal"):
        ShanghaiReader(disk).check("segment_00009.wal")


def test_beside_a_busy_owner_no_guest_sees_damage(tmp_path: Path) -> None:
    """Names, sizes, headers and the mark are read one after the other, while all of them change."""
    stop = threading.Event()

    def own() -> None:
        try:
            for number in range(150):
                with ShanghaiLog(OsDisk(tmp_path), segment_size_max=100) as log:
                    for _ in range(4):
                        log.append([b"%d" % number])
                    log.trim(Retention(before=max(0, log.last_index - 10)))
        finally:
            stop.set()

    def visit() -> None:
        while not stop.is_set():
            guest = ShanghaiReader(OsDisk(tmp_path))
            assert guest.damage == ()
            guest.refresh()
            assert guest.damage == ()

    with ShanghaiLog(OsDisk(tmp_path)):
        pass
    run_all([own, visit])


@pytest.mark.parametrize("number", range(4))
def test_one_segment_can_be_read_from_what_is_known_of_it(disk: SimDisk, number: int) -> None:
    listed = ShanghaiReader(disk).segments()[number]
    segment = SegmentInfo(**asdict(listed))
    start, stop = segment.first_index + 2, segment.last_index
    found = [i for b in scan_segment(disk, segment, start, stop) for i in b["index"].to_pylist()]
    assert found == list(range(start, stop))


def test_without_verifying_what_is_there_is_served(disk: SimDisk) -> None:
    flip_entry(disk, "segment_00002.wal", 4)
    segment = ShanghaiReader(disk).segments()[1]
    with pytest.raises(CorruptError):
        list(scan_segment(disk, segment, 11, 21))
    batches = list(scan_segment(disk, segment, 11, 21, verify=False))
    assert sum(batch.num_rows for batch in batches) == 10


def test_a_file_that_is_removed_during_a_refresh_is_not_an_error(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest = ShanghaiReader(disk)

    def follow(view: object) -> bool:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(guest.source, "follow", follow)
    assert guest.refresh() == 40
