"""The owner removes files that a reader has found: the reader says so, and nothing else."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from holdfast.errors import ChangedError
from holdfast.logs.file_log import FileLogReader
from holdfast.logs.log import Log, LogReader, SegmentInfo
from holdfast.logs.opening import FORMATS
from holdfast.logs.retention import Retention
from holdfast.logs.shanghai.rewrite import copy_segments
from holdfast.testing import SimDisk

OPTIONS: dict[str, dict[str, Any]] = {
    "raft-wal": {},
    "shanghai": {},
    "file-log": {"request_ttl_ms": None, "requests_max": 1},
}


def filled(format: str, disk: SimDisk) -> Log:
    log = FORMATS[format].open_writer(disk, **OPTIONS[format])
    for first in (1, 11, 21):
        log.append([b"%d" % index for index in range(first, first + 10)])
        log.rotate()
    return log


def remove_oldest(log: Any) -> None:
    log.append([b"31"])
    if hasattr(log, "create_snapshot"):
        log.create_snapshot(25, b"state")
    assert len(log.trim(Retention(before=21)).removed) == 2


CALLS: dict[str, Callable[[LogReader], object]] = {
    "read": lambda guest: guest.read(5),
    "scan": lambda guest: list(guest.scan()),
    "scan a part": lambda guest: list(guest.scan(12, 15)),
    "fingerprint": lambda guest: guest.fingerprint(5),
    "check": lambda guest: guest.check(guest.segments()[0].name),
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("call", CALLS)
def test_a_reader_says_that_an_entry_was_removed(format: str, call: str) -> None:
    disk = SimDisk()
    with closing(filled(format, disk)) as log, FORMATS[format].open_reader(disk) as guest:
        remove_oldest(log)
        with pytest.raises(ChangedError, match="removed"):
            CALLS[call](guest)
        guest.refresh()
        assert guest.read(guest.last_index) == b"31"


@pytest.mark.parametrize("format", FORMATS)
def test_a_summary_is_made_of_what_is_left(format: str) -> None:
    disk = SimDisk()
    with closing(filled(format, disk)) as log, FORMATS[format].open_reader(disk) as guest:
        remove_oldest(log)
        assert guest.status().verdict == guest.verify().verdict == "clean"
        assert len(guest.segments()) >= 3


@pytest.mark.parametrize("format", FORMATS)
def test_a_task_says_that_its_segment_was_removed(format: str) -> None:
    disk, kind = SimDisk(), FORMATS[format]
    with closing(filled(format, disk)) as log:
        segments: list[SegmentInfo] = log.segments()
        remove_oldest(log)
        with pytest.raises(ChangedError, match="run again"):
            list(kind.scan_segment(disk, segments[0], 1, 11))
        if format == "shanghai":
            with pytest.raises(ChangedError, match="run again"):
                copy_segments(disk, segments[:1], SimDisk(), "task")


def test_decoded_columns_and_snapshots_say_so_too() -> None:
    disk = SimDisk()
    with closing(filled("file-log", disk)) as log, FileLogReader(disk) as guest:
        batch = next(guest.scan(1))
        for segment in guest.view.segments:
            segment.unload()
        remove_oldest(log)
        with pytest.raises(ChangedError, match="removed"):
            guest.decode_columns(batch)
        guest.refresh()
        disk.remove("snap")
        with pytest.raises(ChangedError, match="removed"):
            guest.read_snapshot()
