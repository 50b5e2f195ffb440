"""The FileLog as a subject of the explorer and the contract: tiny files, a still clock."""

from uuid import UUID

from holdfast.disk import Disk
from holdfast.logs.file_log import FileLog, FileLogGuest
from holdfast.logs.retention import Retention
from holdfast.testing.logs import STEPS, Life, Step


class FileLogSubject:
    batch_is_atomic = False  # one that goes over the end of a file has two parts
    capacity = 4
    segment_size_max = 400

    def open(self, disk: Disk) -> FileLog:
        return FileLog(
            disk,
            capacity=self.capacity,
            segment_size_max=self.segment_size_max,
            request_ttl_ms=None,
            requests_max=2,
            now_ms=lambda: 1_700_000_000_000,
            new_id=lambda: UUID(int=1),
            hostname="host",
            process_id=1,
        )

    def open_read_only(self, disk: Disk) -> FileLogGuest:
        return FileLogGuest(disk)

    def steps(self) -> dict[str, Step]:
        return {**STEPS, "rollback": rollback, "snapshot": snapshot, "discard": discard}


def rollback(life: Life) -> None:
    """Into a file, at its end, over several, or of everything."""
    first, last = life.log.first_index, life.log.last_index
    count = last + 1 - first if life.random.random() < 0.3 else 2
    life.cut_tail(max(first - 1, last - count), _log(life).truncate_tail)


def snapshot(life: Life) -> None:
    """Of about the middle: the log begins behind it, and files before it go."""
    log = _log(life)
    index = (log.first_index + log.last_index) // 2
    if index >= log.first_index:
        life.ledger.first_max = index + 1
        log.create_snapshot(index, b"state at %d" % index)
        life.ledger.first_min = index + 1
        assert log.read_snapshot() == b"state at %d" % index
    log.compact(Retention(before=log.first_index))


def discard(life: Life) -> None:
    """A snapshot from elsewhere, ahead of the log."""
    log = _log(life)
    index = log.last_index + 3
    life.ledger.first_max = index + 1
    log.install_snapshot(index, log.last_term + 1, [b"from ", b"elsewhere"])
    life.ledger.first_min = index + 1
    life.hold(log)


def _log(life: Life) -> FileLog:
    assert isinstance(life.log, FileLog)
    return life.log
