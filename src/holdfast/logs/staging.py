"""Stage rows in many tasks, and append them in one owner: all or nothing, exactly once.

Tasks anywhere stage their rows durably in files beside the log.  Then the log's owner commits:

1. an intent names the staged files and the index of their first entry; once it is durable, the
   commit will happen, also after a crash;
2. the entries are appended;
3. the transaction's version is recorded, so that the same transaction appends nothing again;
4. the intent, and then the staged files, are removed.

After a crash between 1 and 4 `resume` continues where the log ends; opening the log through
`open_log`, or the next commit, does that first.  Until then a reader may see a part of it.

    staging/JOB.PARTITION.ATTEMPT.arrow   an Arrow stream with a column `payload`, maybe `order`
    staging/intent.json                   the commit under way
    staging/txn-DIGEST.json               the last version that each application has committed
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from holdfast import runtime
from holdfast.disk import Disk, File
from holdfast.errors import CorruptError, HoldfastError
from holdfast.logs.log import BATCH_ENTRIES_MAX, BATCH_SIZE_MAX, Log
from holdfast.staged import StagingArea, Transaction, new_job

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Committed",
    "Staged",
    "Transaction",
    "area",
    "commit",
    "new_job",
    "resume",
    "stage",
    "sweep",
]

DIRECTORY = "staging"
_INTENT = f"{DIRECTORY}/intent.json"


@dataclass(frozen=True, slots=True)
class Staged:
    """Rows that one attempt of one task has made durable."""

    name: str
    partition: int
    entries: int


@dataclass(frozen=True, slots=True)
class Committed:
    first_index: int
    last_index: int
    transaction: Transaction | None


@dataclass(frozen=True, slots=True)
class _Intent:
    first_index: int
    count: int
    files: tuple[str, ...]
    ordered: bool
    transaction: Transaction | None


def stage(
    disk: Disk,
    job: str,
    partition: int,
    batches: "Iterable[pa.RecordBatch]",
    *,
    new_id: Callable[[], UUID] = runtime.new_id,
) -> Staged:
    """Write a task's rows to a file of their own beside the log.  Durable when it returns."""
    import pyarrow as pa

    name = area(disk).new_name(job, partition, new_id)
    disk.create(name, b"")
    file = disk.open(name, writable=True)
    entries = 0
    try:
        sink = _Sink(file)
        writer: pa.RecordBatchStreamWriter | None = None
        for batch in batches:
            _refuse_unfit(batch)
            writer = writer or pa.ipc.new_stream(sink, batch.schema)
            writer.write_batch(batch)
            entries += batch.num_rows
        if writer is not None:
            writer.close()
        file.sync()
    except BaseException:
        with suppress(OSError):  # the first error is reported; sweep removes what stays
            disk.remove(name)
        raise
    finally:
        file.close()
    return Staged(name, partition, entries)


def commit(
    log: Log,
    disk: Disk,
    staged: Sequence[Staged],
    transaction: Transaction | None = None,
    *,
    ordered: bool = False,
) -> Committed | None:
    """Append all staged rows, by partition and row or, if `ordered`, by their column `order`.

    Return None if the transaction was committed before.  If this raises after the intent was
    written, the commit is still due: `resume` will finish it.
    """
    resume(log, disk)
    here = area(disk)
    if here.has_committed(transaction):
        here.remove(part.name for part in staged)
        return None
    names = tuple(part.name for part in sorted(staged, key=lambda part: part.partition))
    count = sum(part.entries for part in staged)
    intent = _Intent(log.last_index + 1, count, names, ordered, transaction)
    here.write_intent(asdict(intent), replace=True)
    return _carry_out(log, disk, intent)


def resume(log: Log, disk: Disk) -> Committed | None:
    """Finish the commit that a crash has interrupted, if there is one."""
    intent = _read_intent(disk)
    return None if intent is None else _carry_out(log, disk, intent)


def sweep(disk: Disk, job: str, *, now_ms: Callable[[], int] = runtime.now_ms) -> list[str]:
    """Remove orphans of a job; see StagingArea.sweep.  What a commit needs stays."""
    intent = _read_intent(disk)
    return area(disk).sweep(job, needed=intent.files if intent else (), now_ms=now_ms)


def area(disk: Disk) -> StagingArea:
    """Return the directory of the staged rows."""
    return StagingArea(disk, DIRECTORY, ".arrow")


def _carry_out(log: Log, disk: Disk, intent: _Intent) -> Committed:
    done = log.last_index + 1 - intent.first_index
    if done < 0:
        raise HoldfastError(
            f"an interrupted commit expects the log to reach {intent.first_index - 1}, but it ends "
            f"at {log.last_index}: restore the log, or remove {_INTENT} to abandon that commit"
        )
    position = 0
    for payloads in _payloads(disk, intent):
        already = max(0, min(len(payloads), done - position))
        _refuse_other(log, intent.first_index + position, payloads.slice(0, already))
        if already < len(payloads):
            log.append(payloads.slice(already))
        position += len(payloads)
    if position != intent.count:
        raise CorruptError(_INTENT, 0, f"{position} rows are staged, not {intent.count}")
    area(disk).finish(intent.transaction, intent.files)
    last = intent.first_index + intent.count - 1
    return Committed(intent.first_index, last, intent.transaction)


def _payloads(disk: Disk, intent: _Intent) -> "Iterator[pa.Array]":
    """Yield the rows in the order in which they are appended, in bounded arrays."""
    import pyarrow as pa

    batches: Iterator[pa.RecordBatch]
    batches = (batch for name in intent.files for batch in _read_staged(disk, name))
    if intent.ordered and intent.count:
        rows = pa.Table.from_batches(batches).sort_by("order")
        batches = iter(rows.to_batches(BATCH_ENTRIES_MAX))
    gathered: list[pa.Array] = []
    size = 0
    for batch in batches:
        payloads = batch.column("payload")
        if gathered and size + payloads.nbytes > BATCH_SIZE_MAX:
            yield pa.concat_arrays(gathered)
            gathered, size = [], 0
        gathered.append(payloads)
        size += payloads.nbytes
    if gathered:
        yield pa.concat_arrays(gathered)


def _read_staged(disk: Disk, name: str) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    try:
        file = disk.open(name)
    except FileNotFoundError:
        raise CorruptError(name, 0, "staged rows of an interrupted commit are missing") from None
    try:
        data = file.map()
    finally:
        file.close()
    if len(data):
        yield from pa.ipc.open_stream(pa.py_buffer(data))


def _refuse_other(log: Log, first: int, payloads: "pa.Array") -> None:
    """Raise unless the entries at the commit's indexes are those of the commit."""
    for index, payload in enumerate(payloads.to_pylist(), first):
        if log.read(index) != payload:
            raise HoldfastError(
                f"entry {index} was appended by another program while a commit was interrupted; "
                f"its rows are still in staging/.  Remove {_INTENT} to abandon that commit"
            )


def _refuse_unfit(batch: "pa.RecordBatch") -> None:
    import pyarrow.compute as pc

    payloads = batch.column("payload")
    if payloads.null_count:
        raise ValueError(f"{payloads.null_count} payloads are null")
    if len(payloads) and pc.min(pc.binary_length(payloads)).as_py() == 0:
        raise ValueError("a payload is empty; not every log format can hold that")


def _read_intent(disk: Disk) -> _Intent | None:
    value = area(disk).read_intent()
    if value is None:
        return None
    try:
        transaction = value["transaction"]
        return _Intent(
            int(value["first_index"]),
            int(value["count"]),
            tuple(map(str, value["files"])),
            bool(value["ordered"]),
            Transaction(**transaction) if transaction else None,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptError(_INTENT, 0, f"not a commit's intent: {error!r}") from error


class _Sink:
    """A File that Arrow can write to."""

    closed = False

    def __init__(self, file: File) -> None:
        self._file, self._at = file, 0

    def write(self, data: "pa.Buffer | bytes") -> int:
        view = memoryview(data)
        self._file.write_at(self._at, view)
        self._at += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Do nothing: there is no buffer.  `File.sync` makes the rows durable."""
