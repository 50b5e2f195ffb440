"""Open the directory of a FileLog: judge what a crash has left, and recover from it.

Recovery completes what a crash of ours has interrupted (see holdfast.logs.file_log.active and
.intent): it writes torn slots again, and carries out recorded changes.  Of the original's crashes:

1. a last index file that was not finished: it holds no entries, and is removed;
2. slots that point to entries that never arrived: they are cleared, and kept in a .cut file;
3. a snapshot that is ahead of the log: the log, which it was to replace, is moved aside.

All of these lie beyond the mark (see .promise): what the mark covers and is missing or not valid is
damage.  Bytes of a batch of ours that was not finished are cut off, and kept in a .cut file.  An
empty last file after a full one is removed too, as the original does.  Everything else is damage:
it is reported and not changed.  Recovery syncs all that it shows, and reads it from the disk: after
a failed sync the cache may hold bytes that the disk does not.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

from holdfast.disk import Disk
from holdfast.errors import CorruptError, DiskFullError
from holdfast.formats import rlog, snapshot_file
from holdfast.formats.flaw import Flaw
from holdfast.formats.mark import Mark
from holdfast.logs.file_log.active import ActiveState, judge
from holdfast.logs.file_log.directory import (
    LOG,
    SNAPSHOT,
    IndexFile,
    cross_check,
    find_files,
    find_holder,
    index_name,
    read_snapshot_head,
    term_in,
    walk,
)
from holdfast.logs.file_log.history import Stamps
from holdfast.logs.file_log.intent import (
    INTENT,
    Discard,
    Intent,
    Rollback,
    begin_log,
    carry_out,
    read_intent,
)
from holdfast.logs.file_log.last_file import recover_last
from holdfast.logs.file_log.promise import (
    Promise,
    judge_end,
    judge_list,
    judge_snapshot,
    judge_tail,
    read_promise,
)
from holdfast.logs.log import Damage


@dataclass(slots=True)
class Survey:
    """What the directory holds, what is wrong with it, and what recovery did."""

    files: list[IndexFile]
    snapshot: snapshot_file.Head | Flaw | None
    mark: Mark | Flaw | None = None  # as it was before
    active: ActiveState | None = None  # of the last file
    damage: list[Damage] = field(default_factory=list)
    torn: Damage | None = None
    unfinished: IndexFile | None = None  # a last file that was never complete
    promise: Promise | None = None  # of the mark, if it holds
    doubted: Damage | None = None  # entries that differ from the mark but seem to be valid
    intent: Intent | None = None  # a recorded change that is not complete
    recovered: list[str] = field(default_factory=list)
    full: DiskFullError | None = None  # why recovery could not be finished

    @property
    def snapshot_index(self) -> int:
        return self.snapshot.index if isinstance(self.snapshot, snapshot_file.Head) else 0

    @property
    def first_index(self) -> int:
        first = self.files[0].index if self.files else 1
        return max(first, self.snapshot_index + 1)

    @property
    def last_index(self) -> int:
        """The last index in the files; the snapshot may be ahead of it."""
        count = self.active.count if self.active else 0
        return self.files[-1].index + count - 1 if self.files else self.snapshot_index

    @property
    def kept(self) -> tuple[int, int]:
        """The first and the last index once an owner has recovered the log."""
        first, last = self.first_index, max(self.last_index, self.snapshot_index)
        if self.active is not None and self.active.redo is not None:
            last = self.files[-1].index + self.active.final_count - 1
        if isinstance(self.intent, Rollback):
            last = min(last, self.intent.index - 1)
        elif isinstance(self.intent, Discard):
            first, last = self.intent.index + 1, self.intent.index
        return first, last

    @property
    def unsynced(self) -> str | None:
        return self.files[-1].name if self.active and self.active.count else None

    @property
    def names(self) -> list[str]:
        return [file.name for file in self.files]

    def all_damage(self) -> list[Damage]:
        return self.damage + ([self.torn] if self.torn else [])


def survey(disk: Disk, mark: Mark | Flaw | None, sizes: dict[str, int] | None = None) -> Survey:
    """Look at the directory and change nothing.

    The mark must have been read before.  `sizes` of the index files, if already known.
    """
    names = disk.list()
    snapshot = judge_snapshot(disk, names, read_snapshot_head(disk, names), mark)
    result = Survey(find_files(disk, sizes), snapshot, mark)
    if INTENT in names:
        try:
            result.intent = read_intent(disk)
            _look_ahead(disk, result, result.intent)
        except CorruptError as error:
            result.damage.append(Damage(INTENT, error.offset, 0, 0, error.why))
    result.promise, lost = read_promise(disk, names, result.files, snapshot, mark)
    result.damage += lost
    _judge_files(disk, result)
    _judge_snapshot(disk, result)
    if result.promise is not None:
        _judge_promise(disk, result, result.promise)
    if result.intent is not None and result.torn is None:
        name = result.names[-1] if result.files else INTENT
        result.torn = Damage(name, 0, 0, 0, f"a {result.intent.kind} is not finished", torn=True)
    return result


def _judge_files(disk: Disk, result: Survey) -> None:
    known = len(result.damage)
    while result.files and isinstance(result.files[-1].head, Flaw) and len(result.damage) == known:
        _judge_last(disk, result, result.files[-1], result.files[-1].head)
    result.damage += cross_check(disk, result.files)
    if result.files and not isinstance(result.files[-1].head, Flaw):
        _judge_entries(disk, result, result.files[-1], result.files[-1].head)


def _judge_promise(disk: Disk, result: Survey, promise: Promise) -> None:
    """Compare the end of the log with its mark."""
    if any(one.last_index >= promise.last for one in result.damage if one.first_index):
        return
    last, state = result.last_index, result.active
    if state is not None:
        last = result.files[-1].index + state.final_count - 1
    if state is None or state.redo is None:  # else the slots are to be written again
        result.doubted = judge_tail(disk, result.files, promise)
    if found := result.doubted or judge_end(promise, last):
        result.damage.append(found)
        result.torn = None  # what follows the last entry is damaged
    if state is not None and result.doubted and result.doubted.file == result.files[-1].name:
        state.sound = result.doubted.first_index - result.files[-1].index
        state.flaw = Flaw(result.doubted.offset, result.doubted.why)
    if not result.damage and (other := judge_list(result.files, promise)):
        result.damage.append(other)


def _look_ahead(disk: Disk, result: Survey, intent: Intent | None) -> None:
    """Show a recorded change as complete as soon as any of it is visible."""
    if isinstance(intent, Discard) and isinstance(result.snapshot, snapshot_file.Head):
        if (intent.index, intent.term) == (result.snapshot.index, result.snapshot.term):
            result.files = [f for f in result.files if f.index == intent.index + 1]
    elif isinstance(intent, Rollback):
        kept = [f for f in result.files if f.index <= intent.file_index]
        if not kept or kept[-1].index < intent.file_index:
            result.files = kept
        elif not isinstance(kept[-1].head, Flaw):
            state = judge(disk, kept[-1], kept[-1].head)
            if kept[-1].index + state.count <= intent.index:
                result.files = kept


def _judge_last(disk: Disk, result: Survey, last: IndexFile, flaw: Flaw) -> None:
    """Judge a last file with an invalid head: if its first slot is zero it never held an entry."""
    promise = result.promise
    with closing(disk.open(last.name)) as file:
        is_empty = not any(file.read_at(rlog.TABLE_START, rlog.SLOT_SIZE))
    is_marked = promise is not None and promise.covers(last.index)
    if is_empty and not is_marked:
        result.unfinished, why = result.files.pop(), f"never finished: {flaw.why}"
        result.torn = Damage(last.name, flaw.offset, 0, 0, why, torn=True)
    elif promise is not None and promise.is_alone and not is_marked:  # it held nothing of the log
        result.damage.append(Damage(result.files.pop().name, flaw.offset, 0, 0, flaw.why))
    else:  # one entry at least, perhaps more
        stop = max(last.index, promise.last if promise and is_marked else 0)
        result.damage.append(Damage(last.name, flaw.offset, last.index, stop, flaw.why))


def _judge_entries(disk: Disk, result: Survey, last: IndexFile, head: rlog.Head) -> None:
    state = result.active = judge(disk, last, head)
    if state.flaw is not None:
        span = last.index + state.sound, last.index + state.count - 1
        result.damage.append(Damage(last.name, state.flaw.offset, *span, state.flaw.why))
        return
    promise, after = result.promise, last.index + state.count
    if state.torn is not None and promise is not None and promise.covers(after):
        state.flaw, state.torn = state.torn, None
        first = max(after, promise.first)
        result.damage.append(
            Damage(last.name, state.flaw.offset, first, promise.last, state.flaw.why)
        )
        return
    if state.redo is not None:
        torn: Flaw | None = Flaw(rlog.TABLE_START, "the slots of a batch are not written")
    else:
        if state.half is None and promise is not None and promise.is_alone:
            state.half = _find_half(disk, last, head, state, promise)
        torn = state.torn or state.half
    if torn is not None:
        result.torn = Damage(last.name, torn.offset, 0, 0, torn.why, torn=True)


def _find_half(
    disk: Disk, last: IndexFile, head: rlog.Head, state: ActiveState, promise: Promise
) -> Flaw | None:
    """Return where the bytes of a batch begin that was not finished."""
    stop = head.data_start + state.stop
    if state.torn is not None or state.size <= stop or promise.word.has_spare:
        return None
    with closing(disk.open(last.name)) as file:
        is_blank = not any(file.read_at(stop, state.size - stop))
    return None if is_blank else Flaw(stop, "a batch of which a part arrived")


def _judge_snapshot(disk: Disk, result: Survey) -> None:
    snapshot, files = result.snapshot, result.files
    if isinstance(snapshot, Flaw):
        result.damage.append(Damage(SNAPSHOT, snapshot.offset, 0, 0, snapshot.why))
        return
    index = result.snapshot_index
    first = result.promise.first if result.promise else index + 1
    if files and files[0].index > first:
        why = f"missing: the snapshot is of entry {first - 1}"
        result.damage.append(Damage(index_name(first), 0, first, files[0].index - 1, why))
    if snapshot is None or not 0 < index <= result.last_index:
        return
    term, after = (_term_at(disk, files, each) for each in (index, index + 1))
    why = f"it is of term {snapshot.term}, but entry"
    if term is not None and term != snapshot.term:
        result.damage.append(Damage(SNAPSHOT, 20, 0, 0, f"{why} {index} of term {term}"))
    elif after and after < snapshot.term:
        result.damage.append(Damage(SNAPSHOT, 20, 0, 0, f"{why} {index + 1} of term {after}"))


def _term_at(disk: Disk, files: Sequence[IndexFile], index: int) -> int | None:
    holder = find_holder(files, index)
    return term_in(disk, holder, index) if holder else None


def recover(
    disk: Disk, mark: Mark | Flaw | None, stamps: Stamps, capacity: int, first_index: int
) -> Survey:
    """Recover the directory after a crash, durably.  For the owner, which holds the lock.

    If what recovery must keep does not fit on the disk, nothing is cut.
    """
    recovered: list[str] = []
    full: DiskFullError | None = None
    try:
        intent = read_intent(disk) if INTENT in disk.list() else None
    except CorruptError:
        return survey(disk, mark)
    sizes = _sync_and_reread(disk, intent)
    try:
        if intent is not None:
            recovered.append(carry_out(disk, intent, stamps))
        result = survey(disk, mark, sizes if intent is None else None)
        while not result.damage and recover_last(disk, result, recovered):
            result = survey(disk, mark)
        if not result.damage and _begin(disk, result, stamps, recovered, capacity, first_index):
            result = survey(disk, mark)
    except DiskFullError as error:
        full, result = error, survey(disk, mark)
        if not result.files:
            raise
    result.recovered, result.full = recovered, full
    return result


def _begin(
    disk: Disk, found: Survey, stamps: Stamps, recovered: list[str], capacity: int, first_index: int
) -> bool:
    """Create the snapshot and the index file that every log has; False if both exist."""
    index, is_ahead = found.snapshot_index, found.snapshot_index > found.last_index
    if found.snapshot is None:  # a new log: the snapshot of nothing, or of all before it
        index = 0 if found.files else first_index - 1
        head = snapshot_file.encode_head(index, min(index, 1), 0, stamps.meta())
        disk.create(SNAPSHOT, head)
    elif found.files and is_ahead:
        first = found.files[0].head
        assert isinstance(first, rlog.Head), "not damaged"
        capacity = rlog.nominal_capacity(first.header.capacity)
        old = stamps.history(LOG, disk.directories().__contains__)
        disk.rename(LOG, old)
        recovered.append(f"{LOG}: ends before the snapshot that was to replace it; moved to {old}")
    if not found.files or is_ahead:
        begin_log(disk, index + 1, capacity, stamps)
        return True
    return found.snapshot is None


def _sync_and_reread(disk: Disk, intent: Intent | None) -> dict[str, int]:
    """Sync what a killed owner left unsynced, and drop it from the cache.

    Only the last file, or the one that is being cut: the others were synced before it was created.
    """
    directories, sizes = walk(disk)
    for directory in directories:
        disk.sync_names(directory)
    wanted = [*sizes][-1:]
    if isinstance(intent, Rollback):
        wanted += [name for name in sizes if name.endswith(f"/{intent.file_index:014x}.rlog")]
    for name in dict.fromkeys(wanted):
        with closing(disk.open(name, writable=True)) as file:
            file.sync(forget_from=0)
            sizes[name] = file.size()  # without the bytes that never reached the disk
    return sizes
