"""Opening a FileLog's directory: judge what a crash left, and mend only what a crash can leave.

Of our own crashes (see holdfast.logs.file_log.tail and .intent): slots torn, which are written
again, and changes of several files, which are finished.  Of the original's as well:

1. a last index file that was not finished: it holds nothing, and goes;
2. slots that point to what never arrived: they are cleared, their bytes kept in a .cut file;
3. a snapshot that is ahead of the log: the log, which it was to replace, is moved aside.

An empty last file behind a full one goes too, as the original has it.  Everything else is damage,
and is reported, not mended.  What recovery exposes it has synced first, and read from the disk and
not from a cache that a failed sync may have left lying.
"""

from dataclasses import dataclass, field

from holdfast.cuts import keep_aside
from holdfast.disk import Disk, File
from holdfast.errors import CorruptError
from holdfast.formats import rlog, snapshot_file
from holdfast.formats.flaw import Flaw
from holdfast.formats.rlog_commit import Commit
from holdfast.logs.file_log.directory import (
    LOG,
    SNAPSHOT,
    Found,
    base_name,
    cross_check,
    find_files,
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
from holdfast.logs.file_log.tail import TailState, judge_tail
from holdfast.logs.log import Damage


@dataclass(slots=True)
class Survey:
    """What the directory holds, what is wrong with it, and what was mended."""

    files: list[Found]
    snapshot: snapshot_file.Head | Flaw | None
    tail: TailState | None = None  # of the last file
    damage: list[Damage] = field(default_factory=list)
    torn: Damage | None = None
    unfinished: Found | None = None  # a last file that was never whole
    mended: list[str] = field(default_factory=list)

    @property
    def snapshot_index(self) -> int:
        return self.snapshot.index if isinstance(self.snapshot, snapshot_file.Head) else 0

    @property
    def first_index(self) -> int:
        first = self.files[0].index if self.files else 1
        return max(first, self.snapshot_index + 1)

    @property
    def last_index(self) -> int:
        """Of the files; the snapshot may be ahead of it."""
        count = self.tail.count if self.tail else 0
        return self.files[-1].index + count - 1 if self.files else self.snapshot_index

    @property
    def unsynced(self) -> str | None:
        return self.files[-1].name if self.tail and self.tail.count else None

    def all_damage(self) -> list[Damage]:
        return self.damage + ([self.torn] if self.torn else [])


def survey(disk: Disk, sizes: dict[str, int] | None = None) -> Survey:
    """Look, and change nothing.  `sizes` are those of the index files, if known already."""
    names = disk.list()
    result = Survey(find_files(disk, sizes), read_snapshot_head(disk, names))
    if INTENT in names:
        try:
            _look_ahead(disk, result, read_intent(disk))
        except CorruptError as error:
            result.damage.append(Damage(INTENT, error.offset, 0, 0, error.why))
    while result.files and isinstance(result.files[-1].head, Flaw) and not result.damage:
        _judge_last(disk, result)
    result.damage += cross_check(disk, result.files)
    if result.files and not isinstance(result.files[-1].head, Flaw):
        _judge_entries(disk, result, result.files[-1], result.files[-1].head)
    _judge_snapshot(disk, result)
    return result


def _look_ahead(disk: Disk, result: Survey, intent: Intent | None) -> None:
    """A change that is under way shows as done from the moment that it begins to show at all."""
    if isinstance(intent, Discard) and isinstance(result.snapshot, snapshot_file.Head):
        if (intent.index, intent.term) == (result.snapshot.index, result.snapshot.term):
            result.files = [f for f in result.files if f.index == intent.index + 1]
    elif isinstance(intent, Rollback):
        kept = [f for f in result.files if f.index <= intent.file_index]
        if not kept or kept[-1].index < intent.file_index:
            result.files = kept
        elif not isinstance(kept[-1].head, Flaw):
            state = _tail_of(disk, kept[-1], kept[-1].head)
            if kept[-1].index + state.count <= intent.index:
                result.files = kept


def _judge_last(disk: Disk, result: Survey) -> None:
    """A last file whose head is wrong: if its first slot is zero it never held anything."""
    last = result.files[-1]
    assert isinstance(last.head, Flaw)
    file = disk.open(last.name)
    try:
        is_empty = not any(file.read_at(rlog.TABLE_START, rlog.SLOT_SIZE))
    finally:
        file.close()
    if is_empty:
        result.unfinished = result.files.pop()
        why = f"never finished: {last.head.why}"
        result.torn = Damage(last.name, last.head.offset, 0, 0, why, torn=True)
    else:
        span = last.index, last.index  # and perhaps more
        result.damage.append(Damage(last.name, last.head.offset, *span, last.head.why))


def _judge_entries(disk: Disk, result: Survey, last: Found, head: rlog.Head) -> None:
    state = result.tail = _tail_of(disk, last, head)
    if state.flaw is not None:
        span = last.index + state.sound, last.index + state.count - 1
        result.damage.append(Damage(last.name, state.flaw.offset, *span, state.flaw.why))
    elif state.torn is not None:
        result.torn = Damage(last.name, state.torn.offset, 0, 0, state.torn.why, torn=True)


def _tail_of(disk: Disk, found: Found, head: rlog.Head) -> TailState:
    file = disk.open(found.name)
    try:
        return judge_tail(file, head, found.size)
    finally:
        file.close()


def _judge_snapshot(disk: Disk, result: Survey) -> None:
    snapshot, files = result.snapshot, result.files
    if isinstance(snapshot, Flaw):
        result.damage.append(Damage(SNAPSHOT, snapshot.offset, 0, 0, snapshot.why))
        return
    index = snapshot.index if snapshot else 0
    if files and files[0].index > index + 1:
        why = f"missing: the snapshot is of entry {index}"
        result.damage.append(Damage(files[0].name, 0, index + 1, files[0].index - 1, why))
    if snapshot is None or not index or index > result.last_index:
        return
    holder = next((found for found in reversed(files) if found.index <= index), None)
    term = term_in(disk, holder, index) if holder else None
    if term is not None and term != snapshot.term:
        why = f"it is of term {snapshot.term}, but entry {index} of term {term}"
        result.damage.append(Damage(SNAPSHOT, 20, 0, 0, why))


def recover(disk: Disk, stamps: Stamps, capacity: int, first_index: int) -> Survey:
    """Make the directory whole again after a crash, and durable.  For the owner, under its lock."""
    mended: list[str] = []
    try:
        intent = read_intent(disk) if INTENT in disk.list() else None
    except CorruptError:
        return survey(disk)
    sizes = _look_behind_the_cache(disk, intent)
    if intent is not None:
        mended.append(carry_out(disk, intent, stamps))
    result = survey(disk, sizes if intent is None else None)
    while not result.damage and _mended_a_file(disk, result, mended):
        result = survey(disk)
    if not result.damage and _began(disk, result, stamps, mended, capacity, first_index):
        result = survey(disk)
    result.mended = mended
    return result


def _began(
    disk: Disk, result: Survey, stamps: Stamps, mended: list[str], capacity: int, first_index: int
) -> bool:
    """Make what every log has, and this has not yet, or no more; False if it has all."""
    index, is_ahead = result.snapshot_index, result.snapshot_index > result.last_index
    if result.snapshot is None:
        index = 0 if result.files else first_index - 1
        _make_snapshot(disk, stamps, index)
    elif result.files and is_ahead:
        first = result.files[0].head
        assert isinstance(first, rlog.Head), "not damaged"
        capacity = rlog.nominal_capacity(first.header.capacity)
        old = stamps.history(LOG, disk.directories().__contains__)
        disk.rename(LOG, old)
        mended.append(f"{LOG}: behind the snapshot, which was to replace it; moved to {old}")
    if not result.files or is_ahead:
        begin_log(disk, index + 1, capacity, stamps)
        return True
    return result.snapshot is None


def _look_behind_the_cache(disk: Disk, intent: Intent | None) -> dict[str, int]:
    """Sync what a killed owner left unsynced; and if a sync of its failed, see what the disk has.

    Only the last file, or the one that is being cut: the others were synced before it was made.
    """
    directories, sizes = walk(disk)
    for directory in directories:
        disk.sync_names(directory)
    wanted = [*sizes][-1:]
    if isinstance(intent, Rollback):
        wanted += [name for name in sizes if name.endswith(f"/{intent.file_index:014x}.rlog")]
    for name in dict.fromkeys(wanted):
        file = disk.open(name, writable=True)
        try:
            file.sync(forget_from=0)
            sizes[name] = file.size()  # what never reached the disk is gone now
        finally:
            file.close()
    return sizes


def _mended_a_file(disk: Disk, result: Survey, mended: list[str]) -> bool:
    """Mend one thing about the last file; False if there is nothing to mend."""
    if result.unfinished is not None:
        _drop_unfinished(disk, result.unfinished, mended)
        return True
    if not result.files or result.tail is None:
        return False
    last, tail = result.files[-1], result.tail
    if not tail.count and tail.redo is None and _is_full(result.files[:-1], last.index):
        disk.remove(last.name)
        return True
    if tail.redo is None and tail.torn is None and tail.size == last.size:
        return False
    file = disk.open(last.name, writable=True)
    try:
        if tail.redo is not None:
            mended.append(_write_again(file, last, tail.slots, tail.redo))
        if tail.torn is not None:
            _cut(disk, last, tail, mended)
            offset = tail.torn.offset
            file.write_at(
                offset, bytes(rlog.SLOT_SIZE * (rlog.count_used(tail.slots) - tail.count))
            )
        if tail.size < last.size:
            file.resize(tail.size)
        file.sync()
    finally:
        file.close()
    return True


def _write_again(file: File, last: Found, slots: rlog.Slots, commit: Commit) -> str:
    stop = commit.first_slot + len(commit.ends)
    if dirty := rlog.dirty_run(slots, stop):  # they would show with those before them
        file.write_at(rlog.TABLE_START + rlog.SLOT_SIZE * stop, bytes(rlog.SLOT_SIZE * dirty))
        file.sync()
    offset = rlog.TABLE_START + rlog.SLOT_SIZE * commit.first_slot
    file.write_at(offset, rlog.encode_slots(commit.ends))
    file.sync()
    span = f"{last.index + commit.first_slot}..{last.index + stop - 1}"
    return f"{last.name}: the slots of entries {span} are written again"


def _is_full(before: list[Found], next_index: int) -> bool:
    """Has the last of these no room for entry `next_index`?  Else it was left by hand."""
    if not before or isinstance(before[-1].head, Flaw):
        return False
    return before[-1].head.header.stop_index == next_index


def _drop_unfinished(disk: Disk, found: Found, mended: list[str]) -> None:
    file = disk.open(found.name)
    try:
        data = file.read_at(0, found.size)
    finally:
        file.close()
    told = f"{found.name}: never finished, removed"
    if any(data):
        told += f"; kept in {keep_aside(disk, base_name(found.name), 0, data)}"
    disk.remove(found.name)
    mended.append(told)


def _cut(disk: Disk, last: Found, tail: TailState, mended: list[str]) -> None:
    """Keep the slots that are about to be cleared, and what there is of their entries."""
    assert tail.torn is not None
    assert isinstance(last.head, rlog.Head)
    used, start = rlog.count_used(tail.slots), last.head.data_start + tail.stop
    file = disk.open(last.name)
    try:
        rest = file.read_at(start, max(0, tail.size - start))
    finally:
        file.close()
    slots = rlog.encode_slots(tail.slots[tail.count : used])
    kept = [keep_aside(disk, base_name(last.name), tail.torn.offset, slots)]
    if any(rest):
        kept.append(keep_aside(disk, base_name(last.name), start, rest))
    what = f"{used - tail.count} entries that never arrived ({tail.torn.why})"
    mended.append(f"{last.name}: {what}, kept in {' and '.join(kept)}")


def _make_snapshot(disk: Disk, stamps: Stamps, index: int) -> None:
    """A log begins with the snapshot of nothing, or of all that it does not have."""
    head = snapshot_file.encode_head(index, min(index, 1), 0, stamps.meta())
    disk.create(SNAPSHOT, head)
