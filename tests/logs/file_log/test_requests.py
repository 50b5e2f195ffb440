"""A repeated request is found in the log, after reopening too, exactly as zmq-raft finds it."""

import pytest

from holdfast.formats.rlog_entry import NO_REQUEST
from holdfast.logs.file_log import FileEntry, FileLog, requests
from holdfast.logs.retention import Retention
from holdfast.runtime import Runtime
from holdfast.testing import SimDisk

NOW_MS, TTL_MS = 1_700_000_000_000, 60_000
RUNTIME = Runtime(now_ns=lambda: NOW_MS * 10**6, hostname=lambda: "host", process_id=lambda: 1)


def opened(disk: SimDisk) -> FileLog:
    return FileLog(disk, capacity=4, request_ttl_ms=TTL_MS, runtime=RUNTIME)


def fresh(number: int) -> bytes:
    return (NOW_MS // 1000 - 10).to_bytes(4, "big") + number.to_bytes(8, "big")


def expired(number: int) -> bytes:
    return (NOW_MS // 1000 - 100).to_bytes(4, "big") + number.to_bytes(8, "big")


def entries(*ids: bytes) -> list[FileEntry]:
    return [FileEntry(1, b"data", request_id=one) for one in ids]


def a_request_before_entries_without_ids_is_found() -> None:
    disk = SimDisk()
    with opened(disk) as log:
        log.append_entries(entries(fresh(1)))
        log.append_entries(entries(*[NO_REQUEST] * 12))  # all of the last three files
    with opened(disk) as log:
        assert log.find_request(fresh(1)) == 1
        assert log.append_request(fresh(1), b"again", term=1) == 1
        assert log.last_index == 13
        log.create_snapshot(13, b"")
        plan = log.plan_trim(Retention(before=14))
        assert (plan.removed, "still remembered" in plan.stopped_by) == ((), True)


def test_a_request_before_entries_without_ids_is_found() -> None:
    a_request_before_entries_without_ids_is_found()


def test_a_search_that_ends_at_such_a_file_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    load = requests.RequestCache.load
    monkeypatch.setattr(requests.RequestCache, "load", lambda self, parts: load(self, parts[-1:]))
    with pytest.raises(AssertionError):
        a_request_before_entries_without_ids_is_found()


@pytest.mark.parametrize(
    ("count", "is_found"),
    [(4, True), (5, False)],  # zmq-raft gives up when more are expired than a file has slots
)
def test_too_many_expired_requests_end_the_search(count: int, is_found: bool) -> None:
    disk = SimDisk()
    with opened(disk) as log:
        log.append_entries(entries(NO_REQUEST, NO_REQUEST, NO_REQUEST, fresh(1)))
        log.append_entries(entries(*[expired(number) for number in range(count)], fresh(2)))
    with opened(disk) as log:
        assert log.find_request(fresh(1)) == (4 if is_found else None)
        assert log.find_request(fresh(2)) == log.last_index
        assert log.find_request(expired(0)) is None
        log.create_snapshot(log.last_index, b"")
        removed = log.trim(Retention(before=log.last_index + 1)).removed
        assert [one.last_index for one in removed] == ([3] if is_found else [3, 7])
    with opened(disk) as log:
        assert log.find_request(fresh(1)) == (4 if is_found else None)


def test_the_last_entry_of_a_request_counts() -> None:
    disk = SimDisk()
    with opened(disk) as log:
        log.append_entries(entries(fresh(1), fresh(2), fresh(1)))
        assert log.find_request(fresh(1)) == 3
    with opened(disk) as log:
        assert log.find_request(fresh(1)) == 3
        log.truncate_tail(2)
        assert log.find_request(fresh(1)) == 1


def test_an_expired_request_behind_a_fresh_one_keeps_no_file() -> None:
    disk = SimDisk()
    with opened(disk) as log:
        assert log.find_request(fresh(9)) is None  # the ids are loaded
        log.append_entries(entries(*[NO_REQUEST] * 2, expired(1), *[NO_REQUEST] * 5, fresh(1)))
        log.create_snapshot(9, b"")
        removed = log.trim(Retention(before=10)).removed
        assert [one.last_index for one in removed] == [3, 7]
