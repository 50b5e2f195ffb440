"""Stage rows in many tasks, and commit them in one owner, all or nothing, exactly once.

The page: docs/spark.md

Every task writes its own log, in a directory of the root that readers ignore.  The log holds the
rows as groups of a bounded size, split by year file and checked against existing buckets.  Then the
owner commits:

1. a note records that a commit begins, and which prepared groups belong to others;
2. the groups are copied to the owner's log as prepared ones, each with a tgid of the owner's;
3. the intent replaces the note and names these groups and the transaction; when it is durable, the
   commit will happen, also after a crash;
4. one decision commits all the groups, for every reader at once;
5. the transaction's version is recorded, so that the same transaction writes nothing again;
6. the intent, and then the tasks' logs, are removed.

After a crash `resume` aborts a commit that has only a note, and finishes one that has an intent.
Prepared groups are decided once, so not even ticks are written twice.  `open_bars` calls `resume`.

Tasks do not write year files: readers would see the rows before the job is decided, and two tasks
may have rows for the same file.  The owner's write-back writes them, step by step.

    .staging/JOB.PARTITION.ATTEMPT.wal     a task's log
    .staging/intent.json                   the commit under way
    .staging/txn-DIGEST.json               the last version that each application has committed
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from holdfast import runtime
from holdfast.bars.catalog import STAGING
from holdfast.bars.group import Draft
from holdfast.bars.reader import BarReader
from holdfast.bars.wal import Content, Wal
from holdfast.bars.writer import BarStore
from holdfast.disk import Disk
from holdfast.errors import CorruptError
from holdfast.formats import market_wal as fmt
from holdfast.staged import StagingArea, Transaction, new_job

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Staged", "Transaction", "area", "commit", "new_job", "resume", "stage"]

GROUP_SIZE_MAX = 64 * 2**20  # of rows as Arrow has them


@dataclass(frozen=True, slots=True)
class Staged:
    """Rows that one attempt of one task has made durable."""

    name: str
    partition: int
    rows: int
    groups: int
    timeframe: str


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
    """Make a task's rows durable in the root.  No other attempt's file has this name.

    ValueError if they do not fit their buckets.
    """
    name = area(disk).new_name(job, partition, new_id)
    log, rows, groups = Wal.create(disk, name, 0), 0, 0  # which makes the root, if need be
    places: dict[tuple[str, int], bytes] = {}
    try:
        with BarReader(disk) as guest:
            catalog = guest.whole_catalog()
        for table in _tables(batches):
            groups += 1
            draft = Draft(catalog, places)
            draft.write(table, timeframe, attributes, is_variable=is_variable)
            sets = b"".join([fmt.encode_decision(), *draft.item.parts])
            count = draft.item.count + 1
            log.append(fmt.encode_write(groups, sets, count, fmt.INTENDED).messages)
            rows += table.num_rows
    except BaseException:
        with suppress(OSError):  # report the first error; sweep removes the file
            disk.remove(name)
        raise
    finally:
        log.close()
    return Staged(name, partition, rows, groups, timeframe)


def commit(
    store: BarStore,
    disk: Disk,
    staged: Sequence[Staged],
    transaction: Transaction | None = None,
) -> bool:
    """Commit all staged rows, by partition and row: the later of two rows for one interval stays.

    False if the transaction was committed before.  When this raises after the intent was written,
    the commit is still due: `resume` will finish it.
    """
    resume(store, disk)
    here = area(disk)
    if here.has_committed(transaction):
        here.remove(part.name for part in staged)
        return False
    ordered = [part for part in sorted(staged, key=lambda part: part.partition) if part.rows]
    here.write_intent({"others": list(store.undecided)})
    try:
        tgids = [store.adopt(group) for part in ordered for group in _groups(disk, part)]
    except (ValueError, CorruptError):  # refused, and the store is sound: abort the groups
        resume(store, disk)
        raise
    names = [part.name for part in staged]
    record = asdict(transaction) if transaction else None
    here.write_intent({"tgids": tgids, "files": names, "transaction": record}, replace=True)
    resume(store, disk)
    return True


def resume(store: BarStore, disk: Disk) -> None:
    """Finish the commit that a crash has interrupted, or abort it, if there is one."""
    here = area(disk)
    note = here.read_intent()
    if note is None:
        return
    try:
        if "tgids" not in note:
            own = set(store.undecided) - {int(tgid) for tgid in note["others"]}
            store.resolve_all(sorted(own), commit=False)
            disk.remove(here.intent)
            return
        due = {int(tgid) for tgid in note["tgids"]} & set(store.undecided)
        files = [str(name) for name in note["files"]]
        transaction = Transaction(**note["transaction"]) if note["transaction"] else None
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptError(here.intent, 0, f"not a commit's intent: {error!r}") from error
    store.resolve_all(sorted(due), commit=True)
    here.finish(transaction, files)


def area(disk: Disk) -> StagingArea:
    """Return the directory of the tasks' logs."""
    return StagingArea(disk, STAGING, ".wal")


def _tables(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.Table]":
    """Yield the rows of a task in tables of a bounded size."""
    import pyarrow as pa

    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if gathered and size + batch.nbytes > GROUP_SIZE_MAX:
            yield pa.Table.from_batches(gathered)
            gathered, size = [], 0
        gathered.append(batch)
        size += batch.nbytes
    if size:
        yield pa.Table.from_batches(gathered)


def _groups(disk: Disk, part: Staged) -> Iterator[fmt.Group]:
    """Yield the groups of a task's log.  It was synced, so an invalid byte in it is damage."""
    try:
        with closing(disk.open(part.name)) as file:
            data = file.map()
    except FileNotFoundError:
        raise CorruptError(part.name, 0, "staged rows are missing") from None
    content = Content(part.name)
    content.read(data)
    for damage in content.damage:
        raise CorruptError(part.name, damage.offset, damage.why)
    if content.flaw is not None:
        raise CorruptError(part.name, content.stop, content.flaw.why)
    if len(content.undecided) != part.groups:
        raise CorruptError(part.name, content.stop, "staged rows are missing")
    yield from content.undecided.values()
