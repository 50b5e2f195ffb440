"""Rows prepared by many and committed by one, exactly once, whole.  The page: docs/spark.md

Every task writes a log of its own, in the root and where nothing else looks: its rows as groups of
a bounded size, sorted out by year files and checked against the buckets that there are.  Then the
owner commits:

1. a note says that a commit begins, and which prepared groups are none of its own;
2. the groups are copied to the owner's log as prepared ones, each with a tgid of the owner's;
3. the note is replaced by the intent, which names these groups and the transaction; from the moment
   it is durable the commit happens, whatever crashes;
4. one decision commits all the groups, for every reader at once;
5. the transaction's version is recorded, so that the same transaction writes nothing again;
6. the intent, and then the tasks' logs, are removed.

After a crash `resume` gives up what has only a note, and finishes what has an intent: prepared
groups are decided once, so not even ticks are written twice.  `open_bars` does that first.

No task touches a year file: what it wrote there would be seen before the job is decided, and two
tasks may have rows for the same one.  The owner's write-back does it, step by step.

    .staging/JOB.PARTITION.ATTEMPT.wal     a task's log
    .staging/intent.json                   the commit under way
    .staging/txn-DIGEST.json               the last version that each application has committed
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from holdfast import runtime
from holdfast.bars.catalog import STAGING
from holdfast.bars.group import Draft
from holdfast.bars.guest import BarReader
from holdfast.bars.replay import intended
from holdfast.bars.store import BarStore
from holdfast.bars.wal import Content, Wal
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

    ValueError if they are not what their buckets hold.
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
            log.append(b"".join(intended(groups, sets, draft.item.count + 1)))
            rows += table.num_rows
    except BaseException:
        with suppress(OSError):  # the first error is the one to tell; sweep gets what stays
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
    """Commit all staged rows, by partition and row: of two for one interval, the later counts.

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
    except (ValueError, CorruptError):  # refused, and the store is whole: what is prepared goes
        resume(store, disk)
        raise
    names = [part.name for part in staged]
    told = asdict(transaction) if transaction else None
    here.write_intent({"tgids": tgids, "files": names, "transaction": told}, replace=True)
    resume(store, disk)
    return True


def resume(store: BarStore, disk: Disk) -> None:
    """Finish the commit that a crash has interrupted, or take it back, if there is one."""
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
    """Where the tasks' logs are."""
    return StagingArea(disk, STAGING, ".wal")


def _tables(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.Table]":
    """The rows of a task, in tables of a bounded size."""
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
    """The groups of a task's log, which was synced: whatever is wrong with it is damage."""
    try:
        file = disk.open(part.name)
    except FileNotFoundError:
        raise CorruptError(part.name, 0, "staged rows are missing") from None
    try:
        data = file.map()
    finally:
        file.close()
    content = Content(part.name)
    content.read(data)
    for damage in content.damage:
        raise CorruptError(part.name, damage.offset, damage.why)
    if content.flaw is not None:
        raise CorruptError(part.name, content.stop, content.flaw.why)
    if len(content.undecided) != part.groups:
        raise CorruptError(part.name, content.stop, "staged rows are missing")
    yield from content.undecided.values()
