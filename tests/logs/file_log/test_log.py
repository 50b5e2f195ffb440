import threading
from typing import Any

import pytest

from holdfast.errors import HoldfastError, OutOfRangeError, PoisonedError
from holdfast.formats import rlog
from holdfast.logs.file_log import CHECKPOINT, FileEntry, FileLog, FileLogReader, writer
from holdfast.logs.file_log.directory import UNTOUCHED
from holdfast.logs.file_log.history import KEPT_MAX, kept
from holdfast.logs.file_log.intent import write_intent
from holdfast.logs.replicas import Replicas
from holdfast.logs.retention import Retention
from holdfast.runtime import Runtime
from holdfast.testing import SimDisk
from holdfast.testing.file_log import FileLogSubject
from holdfast.testing.log_contract import contents

NOW_MS = 1_700_000_000_000


def opened(disk: SimDisk, **options: object) -> FileLog:
    settings = {"capacity": 8, "runtime": at(NOW_MS)}
    return FileLog(disk, **{**settings, **options})  # type: ignore[arg-type]


def at(ms: int) -> Runtime:
    return Runtime(now_ns=lambda: ms * 10**6, hostname=lambda: "host", process_id=lambda: 1)


def names(disk: SimDisk) -> list[int]:
    return sorted(int(n[-19:-5], 16) for n in disk.files() if n.startswith("log/"))


@pytest.mark.parametrize("sync_mode", ["ordered", "original"])
def test_rolls_back_into_a_file_over_files_and_everything(sync_mode: str) -> None:
    disk = SimDisk()
    with opened(disk, sync_mode=sync_mode) as log:
        log.append([b"%d" % number for number in range(1, 21)])
        assert names(disk) == [1, 8, 16]
        log.truncate_tail(18)
        assert (log.last_index, names(disk)) == (18, [1, 8, 16])
        log.truncate_tail(15)  # a file that would be empty is removed
        assert (log.last_index, names(disk)) == (15, [1, 8])
        assert log.append([b"sixteen"]) == 16
        log.truncate_tail(3)
        assert (contents(log), names(disk)) == ([b"1", b"2", b"3"], [1])
        log.truncate_tail(0)  # the only one stays
        assert (contents(log), names(disk)) == ([], [1])
        assert log.append([b"one"]) == 1
        for last in (-1, 2):
            with pytest.raises(ValueError, match="cannot end at"):
                log.truncate_tail(last)
    assert contents(opened(disk)) == [b"one"]


def test_a_batch_can_replace_entries_from_an_index_on() -> None:
    log = opened(SimDisk())
    log.append_entries([FileEntry(1, b"a"), FileEntry(2, b"b"), FileEntry(2, b"c")])
    assert log.append_entries([FileEntry(2, b"B")], 2) == 2
    assert contents(log) == [b"a", b"B"]
    for index, term, why in (
        (0, 2, "the log holds"),
        (4, 2, "the log holds"),
        (2, 0, "never decrease"),
    ):
        with pytest.raises(ValueError, match=why):
            log.append_entries([FileEntry(term, b"no")], index)
    with pytest.raises(ValueError, match="never decrease"):
        log.append_entries([FileEntry(1, b"old")])
    with pytest.raises(ValueError, match="term 3 after term 4"):
        log.append_entries([FileEntry(4, b"x"), FileEntry(3, b"y")])
    assert (contents(log), log.last_term) == ([b"a", b"B"], 2)


def test_plain_payloads_take_the_last_term() -> None:
    log = opened(SimDisk())
    log.append([b"first"])
    log.append_checkpoint(7)
    log.append([b"second"])
    assert [log.term_at(index) for index in (0, 1, 2, 3)] == [0, 1, 7, 7]
    assert log.get_entry(2) == FileEntry(7, b"\xc0", CHECKPOINT, bytes(12))
    assert len({log.get_entry(index).request_id for index in (1, 3)}) == 2
    with pytest.raises(OutOfRangeError):
        log.get_entry(4)


def test_a_repeated_request_is_one_entry() -> None:
    disk, request = SimDisk(), (NOW_MS // 1000).to_bytes(4, "big") + b"whoasks1"
    with opened(disk) as log:
        log.append([b"before"])
        assert log.find_request(request) is None
        assert log.append_request(request, b"pay", term=2) == 2
        assert log.append_request(request, b"pay", term=2) == 2
        assert log.append_config(request[:-1] + b"2", b"peers", term=2) == 3
        with pytest.raises(ValueError, match="not all zero"):
            log.append_request(bytes(12), b"x", term=2)
    with opened(disk) as log:  # it follows from the log itself
        assert (log.find_request(request), log.append_request(request, b"pay", term=2)) == (2, 2)
        log.truncate_tail(1)
        assert log.find_request(request) is None
        assert log.append_request(request, b"pay", term=2) == 2
    late = opened(disk, runtime=at(NOW_MS + 9 * 3_600_000))
    assert late.find_request(request) is None, "expired"


def test_many_threads_repeat_the_same_requests() -> None:
    log, found = opened(SimDisk()), []

    def ask(number: int) -> None:
        request = (NOW_MS // 1000).to_bytes(4, "big") + b"%08d" % (number % 5)
        found.append((number % 5, log.append_request(request, b"x", term=1)))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (log.last_index, len(set(found)), len(found)) == (5, 5, 40)


def test_files_end_at_multiples_of_the_capacity() -> None:
    disk = SimDisk()
    with opened(disk, capacity=4, first_index=6) as log:
        assert (log.first_index, log.snapshot.index) == (6, 5)
        log.append([b"x"] * 10)
    assert names(disk) == [6, 8, 10, 12, 14]  # what the first file has room for counts: 2
    with opened(disk, capacity=1024) as log:
        log.append([b"x"] * 6)
        log.install_snapshot(100, 3, b"")
        log.append([b"x"] * 6)
    assert names(disk) == [101, 102, 104, 106]


def test_a_file_at_its_size_limit_is_followed_by_another() -> None:
    """The original fails here, and cannot open the log again."""
    disk = SimDisk()
    with opened(disk, segment_size_max=100) as log:
        log.append([b"x" * 30] * 3)
        log.append([b"y" * 500])
        assert log.append([b"z"]) == 5
    assert names(disk) == [1, 3, 4, 5]
    with opened(disk) as log:
        assert contents(log) == [b"x" * 30] * 3 + [b"y" * 500, b"z"]
        log.truncate_tail(2)
        assert names(disk) == [1]


def test_a_payload_that_no_file_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rlog, "DATA_SIZE_MAX", 1000)
    log = opened(SimDisk(), segment_size_max=1000)
    with pytest.raises(ValueError, match="the most is 980"):
        log.append([b"x" * 981])
    assert log.append([b"x" * 980, b"y"]) == 2


def test_rotate_leaves_a_file_with_room() -> None:
    disk = SimDisk()
    with opened(disk) as log:
        log.append([b"a"])
        assert log.rotate() == log.rotate() == "log/00000/00/00/00000000000002.rlog"
    with opened(disk) as log:  # an empty file after one with room is kept
        assert names(disk) == [1, 2]
        assert log.append([b"b"]) == 2
        assert contents(log) == [b"a", b"b"]


def test_a_snapshot_compacts_or_replaces() -> None:
    disk = SimDisk()
    with opened(disk) as log:
        log.append_entries([FileEntry(term, b"%d" % term) for term in range(1, 11)])
        with pytest.raises(ValueError, match="no entry 5 of term 4"):
            log.install_snapshot(5, 4, b"x", compact_only=True)
        log.install_snapshot(5, 5, [b"five", b"!"])
        assert (log.first_index, log.last_index, log.read_snapshot()) == (6, 10, b"five!")
        assert (log.term_at(5), log.read_snapshot(4, 9)) == (5, b"!")
        with pytest.raises(ValueError, match="the present one is at 5"):
            log.install_snapshot(4, 4, b"")
        log.create_snapshot(10, b"ten")
        assert (log.first_index, log.last_index, log.last_term) == (11, 10, 10)
        assert log.append_entries([FileEntry(10, b"eleven")]) == 11
        log.install_snapshot(11, 12, b"another")  # not the term it has there
        assert (log.first_index, log.last_index, log.last_term) == (12, 11, 12)
        assert log.append([b"twelve"]) == 12
    assert len(kept(disk, "snap")) == 3
    with FileLogReader(disk) as guest:
        assert (guest.first_index, contents(guest)) == (12, [b"twelve"])


def test_a_snapshot_whose_data_fails_changes_nothing() -> None:
    def broken() -> object:
        yield b"a piece"
        raise RuntimeError("the peer has failed")

    disk = SimDisk()
    log = opened(disk)
    log.append([b"x"] * 3)
    with pytest.raises(RuntimeError, match="the peer has failed"):
        log.create_snapshot(2, broken())  # type: ignore[arg-type]
    assert [name for name in disk.files() if "tmp" in name] == [UNTOUCHED]
    log.close()
    assert opened(disk).first_index == 1


def test_sixty_old_snapshots_are_kept() -> None:
    disk = SimDisk()
    with opened(disk) as log:
        log.append([b"x"])
        for number in range(KEPT_MAX + 5):
            log.create_snapshot(1, b"%d" % number)
    assert len(kept(disk, "snap")) == KEPT_MAX


def test_trim_removes_only_files_that_the_snapshot_covers() -> None:
    disk = SimDisk()
    log = opened(disk, request_ttl_ms=60_000)
    log.append([b"x"] * 30)
    everything = Retention(before=1000)
    assert "does not cover" in log.trim(everything).stopped_by
    log.create_snapshot(20, b"")
    assert "still remembered" in log.plan_trim(everything).stopped_by
    log.close()
    log = opened(disk, runtime=at(NOW_MS + 120_000), request_ttl_ms=60_000)
    Replicas(disk).register("slow", 7)
    assert [s.last_index for s in log.plan_trim(everything).removed] == [7]
    Replicas(disk).forget("slow")
    assert names(disk) == [1, 8, 16, 24]
    done = log.trim(everything)
    assert ([s.last_index for s in done.removed], done.first_index) == ([7, 15], 21)
    assert (names(disk), log.first_index, log.last_index) == ([16, 24], 21, 30)
    log.close()
    assert len(contents(opened(disk))) == 10


def test_invalid_options_and_entries_are_refused() -> None:
    for options in (
        {"capacity": 6},
        {"capacity": 2**21},
        {"sync_mode": "never"},
        {"first_index": 0},
        {"segment_size_max": 0},
        {"request_ttl_ms": None},
    ):
        with pytest.raises(ValueError, match=r"\w"):
            opened(SimDisk(), **options)
    log = FileLogSubject().open(SimDisk())
    for entries in (
        [FileEntry(1, b"x", 3)],
        [FileEntry(2**53, b"x")],
        [FileEntry(1, b"x", 0, b"")],
    ):
        with pytest.raises(ValueError, match=r"type|term|request"):
            log.append_entries(entries)
    assert log.append([b"fine"]) == 1


def test_a_rollback_beside_another_writer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """zmq-raft ignores locks."""
    disk = SimDisk()
    log = opened(disk)
    log.append([b"a", b"b", b"c"])
    name, original = "log/00000/00/00/00000000000001.rlog", write_intent

    def interfere(*arguments: Any) -> None:
        original(*arguments)
        file = disk.open(name, writable=True)
        file.write_at(disk.files()[name].index(b"ITMZ") + 8 + 21, b"other" * 4, sync=True)

    monkeypatch.setattr(writer, "write_intent", interfere)
    with pytest.raises(HoldfastError, match="others have written since"):
        log.truncate_tail(1)
    with pytest.raises(PoisonedError):
        log.append([b"no"])
