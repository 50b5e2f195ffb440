"""The FileLog as a subject of the explorer and the contract: tiny files, a stopped clock."""

from collections.abc import Callable, Sequence
from uuid import UUID

from holdfast.disk import Disk
from holdfast.logs.file_log import FileLog, FileLogReader
from holdfast.logs.retention import Retention
from holdfast.runtime import Runtime
from holdfast.testing.logs import STEPS, Life, Step


class NoTicker:
    """A ticker that never calls its step: the step "tick" does."""

    def __init__(self, interval_ms: float, step: Callable[[], None]) -> None:
        pass

    def close(self) -> None:
        pass


class FileLogSubject:
    batch_is_atomic = False  # a batch that continues in a new file has two parts
    ways_out: Sequence[str] = ("snapshot", "rollback")
    cut_files = "log/*.rlog"
    record_start = b"hfcr"
    capacity = 4
    segment_size_max = 400

    def open(self, disk: Disk) -> FileLog:
        return FileLog(
            disk,
            capacity=self.capacity,
            segment_size_max=self.segment_size_max,
            request_ttl_ms=None,
            requests_max=2,
            runtime=Runtime(
                now_ns=lambda: 1_700_000_000_000 * 10**6,
                new_id=lambda: UUID(int=1),
                hostname=lambda: "host",
                process_id=lambda: 1,
                ticker=NoTicker,
            ),
        )

    def open_reader(self, disk: Disk) -> FileLogReader:
        return FileLogReader(disk)

    def steps(self) -> dict[str, Step]:
        own = {"rollback": rollback, "snapshot": snapshot, "discard": discard, "tick": tick}
        return {**STEPS, **own}


def rollback(life: Life) -> None:
    """Remove entries of one file, of several, or all."""
    first, last = life.log.first_index, life.log.last_index
    count = last + 1 - first if life.random.random() < 0.3 else 2
    life.cut_tail(max(first - 1, last - count), _log(life).truncate_tail)


def snapshot(life: Life) -> None:
    """Create a snapshot near the middle, and remove the files that it covers."""
    log = _log(life)
    index = (log.first_index + log.last_index) // 2
    if index >= log.first_index:
        life.ledger.first_max = index + 1
        log.create_snapshot(index, b"state at %d" % index)
        life.ledger.first_min = index + 1
        assert log.read_snapshot() == b"state at %d" % index
    log.trim(Retention(before=log.first_index))


def discard(life: Life) -> None:
    """Install a snapshot that replaces the log: ahead of it, or of another term."""
    log = _log(life)
    index = (log.first_index + log.last_index) // 2
    if index < log.first_index or life.random.random() < 0.3:
        index = log.last_index + 3
    life.ledger.first_max = index + 1
    data = [b"from ", b"elsewhere"]
    life.cut_tail(index, lambda last: log.install_snapshot(last, log.last_term + 1, data))
    life.ledger.first_min = index + 1
    life.hold(log)


def tick(life: Life) -> None:
    """Save the mark, as a thread does once a second."""
    _log(life)._marks.tick()


def _log(life: Life) -> FileLog:
    assert isinstance(life.log, FileLog)
    return life.log
