"""Rows prepared by many and committed by one, exactly once, whole.  The page: docs/spark.md

Tasks anywhere stage their rows durably in files of the root that nothing else looks at.  Then the
owner commits:

1. a note says that a commit begins, and which prepared groups are none of its own;
2. the rows are prepared as groups of the log, of a bounded size each;
3. the note is replaced by the intent, which names these groups and the transaction; from the moment
   it is durable the commit happens, whatever crashes;
4. one decision commits all the groups, for every reader at once;
5. the transaction's version is recorded, so that the same transaction writes nothing again;
6. the intent, and then the staged files, are removed.

After a crash `resume` gives up what has only a note, and finishes what has an intent: prepared
groups are decided once, so not even ticks are written twice.  `open_bars` does that first.

    .staging/JOB.PARTITION.ATTEMPT.arrow   an Arrow stream
    .staging/intent.json                   the commit under way
    .staging/txn-DIGEST.json               the last version that each application has committed
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast import runtime
from holdfast.bars.catalog import STAGING
from holdfast.bars.store import BarStore
from holdfast.disk import Disk, File
from holdfast.errors import CorruptError

if TYPE_CHECKING:
    import pyarrow as pa

_INTENT = f"{STAGING}/intent.json"
_JOB = re.compile(r"[A-Za-z0-9-]{1,80}")
_STALE_MS = 24 * 3_600_000
GROUP_SIZE_MAX = 64 * 2**20  # of rows as Arrow has them


@dataclass(frozen=True, slots=True)
class Transaction:
    """Versions of one application are committed in rising order, each at most once."""

    app: str
    version: int


@dataclass(frozen=True, slots=True)
class Staged:
    """Rows that one attempt of one task has made durable, all for one timeframe and group."""

    name: str
    partition: int
    rows: int
    timeframe: str
    attributes: str
    is_variable: bool = False


def new_job(
    transaction: Transaction | None = None,
    *,
    now_ms: Callable[[], int] = runtime.now_ms,
    new_id: Callable[[], UUID] = runtime.new_id,
) -> str:
    """A name for all that one job stages.  It tells whose and how old a forgotten file is."""
    owner = _digest(transaction.app) if transaction else "none"
    return f"{owner}-{now_ms()}-{new_id().hex}"


def stage(
    disk: Disk,
    job: str,
    partition: int,
    batches: "Iterable[pa.RecordBatch]",
    timeframe: str,
    attributes: str,
    *,
    is_variable: bool = False,
    new_id: Callable[[], UUID] = runtime.new_id,
) -> Staged:
    """Make a task's rows durable in the root.  No other attempt's file has this name."""
    import pyarrow as pa

    if not _JOB.fullmatch(job):
        raise ValueError(f"{job!r} is no job name; new_job makes one")
    name = f"{STAGING}/{job}.{partition}.{new_id().hex}.arrow"
    disk.create(name, b"")
    file = disk.open(name, writable=True)
    rows = 0
    try:
        sink = _Sink(file)
        writer: pa.RecordBatchStreamWriter | None = None
        for batch in batches:
            writer = writer or pa.ipc.new_stream(sink, batch.schema)
            writer.write_batch(batch)
            rows += batch.num_rows
        if writer is not None:
            writer.close()
        file.sync()
    except BaseException:
        with suppress(OSError):  # the first error is the one to tell; sweep gets what stays
            disk.remove(name)
        raise
    finally:
        file.close()
    return Staged(name, partition, rows, timeframe, attributes, is_variable)


def commit(
    store: BarStore,
    disk: Disk,
    staged: Sequence[Staged],
    transaction: Transaction | None = None,
) -> bool:
    """Commit all staged rows, by partition and row: of two for one interval, the later counts.

    False if the transaction was committed before.  When this raises after the intent was written,
    the commit is still due: `resume` will finish it.
    """
    resume(store, disk)
    if transaction is not None and committed_version(disk, transaction.app) >= transaction.version:
        discard(disk, staged)
        return False
    ordered = [part for part in sorted(staged, key=lambda part: part.partition) if part.rows]
    _write(disk, {"others": list(store.undecided)})
    try:
        tgids = [_prepared(store, table, part) for part in ordered for table in _tables(disk, part)]
    except (ValueError, CorruptError):  # refused, and the store is whole: what is prepared goes
        resume(store, disk)
        raise
    names = [part.name for part in staged]
    told = asdict(transaction) if transaction else None
    _write(disk, {"tgids": tgids, "files": names, "transaction": told}, replace=True)
    resume(store, disk)
    return True


def resume(store: BarStore, disk: Disk) -> None:
    """Finish the commit that a crash has interrupted, or take it back, if there is one."""
    note = _read_json(disk, _INTENT)
    if note is None:
        return
    try:
        if "tgids" not in note:
            own = set(store.undecided) - {int(tgid) for tgid in note["others"]}
            store.resolve_all(sorted(own), commit=False)
            disk.remove(_INTENT)
            return
        due = {int(tgid) for tgid in note["tgids"]} & set(store.undecided)
        files = {str(name) for name in note["files"]}
        transaction = Transaction(**note["transaction"]) if note["transaction"] else None
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptError(_INTENT, 0, f"not a commit's intent: {error!r}") from error
    store.resolve_all(sorted(due), commit=True)
    if transaction is not None:
        record = json.dumps(asdict(transaction)).encode()
        disk.create(_transaction_path(transaction.app), record, replace=True)
    disk.remove(_INTENT)
    if gone := [name for name in _staged_files(disk) if name in files]:
        disk.remove(*gone)


def committed_version(disk: Disk, app: str) -> int:
    """The last version that this application has committed; -1 for none."""
    path = _transaction_path(app)
    value = _read_json(disk, path)
    if value is None:
        return -1
    try:
        return int(value["version"])
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptError(path, 0, f"not a transaction's record: {error!r}") from error


def discard(disk: Disk, staged: Sequence[Staged]) -> None:
    """Remove what was staged and will not be committed."""
    names = {part.name for part in staged} & set(_staged_files(disk))
    if names:
        disk.remove(*sorted(names))


def sweep(disk: Disk, job: str, *, now_ms: Callable[[], int] = runtime.now_ms) -> list[str]:
    """Remove what failed attempts of this job left, earlier jobs of its application, and what
    nobody has committed for a day; return the names."""
    owner = job.partition("-")[0]
    swept = []
    for name in _staged_files(disk):
        whose, made_ms, *_ = (*name.removeprefix(f"{STAGING}/").split("-"), "")
        stale = made_ms.isdigit() and now_ms() - int(made_ms) > _STALE_MS
        if name.startswith(f"{STAGING}/{job}.") or (whose == owner != "none") or stale:
            swept.append(name)
    if swept:
        disk.remove(*swept)
    return swept


def _prepared(store: BarStore, table: "pa.Table", part: Staged) -> int:
    group = store.group()
    group.write(table, part.timeframe, part.attributes, is_variable=part.is_variable)
    return group.prepare()


def _tables(disk: Disk, part: Staged) -> "Iterator[pa.Table]":
    """The rows of a task, in tables of a bounded size."""
    import pyarrow as pa

    try:
        file = disk.open(part.name)
    except FileNotFoundError:
        raise CorruptError(part.name, 0, "staged rows are missing") from None
    try:
        data = file.map()
    finally:
        file.close()
    gathered: list[pa.RecordBatch] = []
    for batch in pa.ipc.open_stream(pa.py_buffer(data)):
        if gathered and sum(one.nbytes for one in gathered) + batch.nbytes > GROUP_SIZE_MAX:
            yield pa.Table.from_batches(gathered)
            gathered = []
        gathered.append(batch)
    yield pa.Table.from_batches(gathered)


def _write(disk: Disk, note: dict[str, Any], *, replace: bool = False) -> None:
    disk.create(_INTENT, json.dumps(note).encode(), replace=replace)


def _read_json(disk: Disk, path: str) -> dict[str, Any] | None:
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        value = json.loads(bytes(file.map()))
    except ValueError as error:
        raise CorruptError(path, 0, f"not JSON: {error}") from error
    finally:
        file.close()
    if not isinstance(value, dict):
        raise CorruptError(path, 0, "not a JSON object")
    return value


def _staged_files(disk: Disk) -> list[str]:
    try:
        return [f"{STAGING}/{name}" for name in disk.list(STAGING) if name.endswith(".arrow")]
    except FileNotFoundError:
        return []


def _transaction_path(app: str) -> str:
    return f"{STAGING}/txn-{_digest(app)}.json"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class _Sink:
    """What Arrow needs of a file, on a File."""

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
        """Nothing is held back; durability is `File.sync`."""
