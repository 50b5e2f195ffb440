"""Open a raft-wal directory: judge what a crash left, and recover what a crash can leave.

Invariant: a batch is synced before the next one is written, a segment is sealed and synced before
the meta store says so, and the meta store names a segment before its file is created.  So a crash
leaves at most

1. one torn batch at the end of the active segment: it is overwritten with zeros, and its bytes are
   kept in a .cut file, so that nothing in it can be read as frames later;
2. an active segment that has its index, which the meta store does not know yet: it is sealed;
3. an active segment that the meta store names and that has no file yet: the file is created;
4. files of segments that the meta store no longer names: they are removed.

Everything else is damage: it is reported and not changed; so is all that is missing or unsound
below the mark (holdfast.logs.raft_wal.marks).  What recovery shows it has synced first,
and read from the disk, not from a cache that a failed sync may have left.

An owner may be writing to the active segment while readers judge it, and mapped memory may change
during the judgement.  So active segments are read with system calls, and copies are judged.
"""

from dataclasses import dataclass, field

from holdfast.cuts import keep_aside
from holdfast.disk import Disk, File
from holdfast.errors import DiskFullError, UnsupportedError
from holdfast.formats import raft_wal as fmt
from holdfast.formats.flaw import Flaw
from holdfast.formats.mark import Mark
from holdfast.formats.raft_entry import decode_entry
from holdfast.formats.raft_meta import SegmentMeta, State
from holdfast.logs.log import INDEX_MAX, Damage
from holdfast.logs.mark import Recalled
from holdfast.logs.raft_wal.directory import (
    contradictions,
    disagreements,
    header_of,
    name_of,
    orphans,
    segment_sizes,
)
from holdfast.logs.raft_wal.marks import NO_MARK, check_store, missing_file, missing_tail, vouches
from holdfast.logs.raft_wal.meta_store import META_STORE
from holdfast.logs.raft_wal.scanning import first_batches, scan_file, used_bytes


@dataclass(slots=True)
class Survey:
    """What the directory holds, what is damaged, and what recovery did."""

    state: State
    sizes: dict[str, int]
    mark: Mark
    damage: list[Damage] = field(default_factory=list)
    found: fmt.Scan = fmt.NOTHING  # in the active segment
    rest: bytes = b""  # after its last valid batch, without the zeros at the end
    torn: Damage | None = None
    contradiction: Damage | None = None  # of the meta store: then no index can be relied on
    recovered: list[str] = field(default_factory=list)
    is_partial: bool = False  # only what has changed was judged: see survey_changes
    full: DiskFullError | None = None  # why recovery could not be finished

    @property
    def active(self) -> SegmentMeta | None:
        segments = self.state.segments
        return segments[-1] if segments and not segments[-1].sealed else None

    @property
    def has_file(self) -> bool:
        """Whether the active segment has a file; true if there is no active segment."""
        return self.active is None or name_of(self.active) in self.sizes

    @property
    def was_written(self) -> bool:
        """Whether the log ever held an entry, as far as this can be known."""
        return self.state.next_segment_id > 1 or bool(len(self.found.commits))

    @property
    def unsynced(self) -> str | None:
        return name_of(self.active) if self.active and len(self.found.commits) else None

    @property
    def names(self) -> list[str]:
        return [name_of(meta) for meta in self.state.segments]

    def all_damage(self) -> list[Damage]:
        return self.damage + ([self.torn] if self.torn else [])


def survey(disk: Disk, state: State | None, txid: int, recalled: Recalled) -> Survey:
    """Judge a directory, and change nothing.  The mark was read before the meta store."""
    sizes, mark = segment_sizes(disk), recalled.mark or NO_MARK
    result = Survey(state or State(0), sizes, mark, [*recalled.damage])
    _check_indexes(result.state)
    result.damage += check_store(mark, result.state, txid)
    if state is None or not state.segments:  # a log that was created has an active segment
        if sizes:
            why = f"it names no segment, but {next(iter(sizes))} exists"
            result.damage.append(Damage(META_STORE, 0, 0, 0, why))
        return result
    if wrong := [*contradictions(state)]:
        result.damage += wrong
        result.contradiction = wrong[0]
        return result
    result.damage += disagreements(disk, state, sizes)
    active = result.active
    if active is not None and name_of(active) not in sizes:
        if missing := missing_file(mark, active):
            result.damage.append(missing)
    elif active is not None:
        file = disk.open(name_of(active))
        try:
            survey_active(result, active, file)
        finally:
            file.close()
    _check_head(result)
    return result


def _check_indexes(state: State) -> None:
    for meta in state.segments[-1:]:
        if max(meta.base_index, meta.max_index) > INDEX_MAX:
            last = max(meta.base_index, meta.max_index)
            raise UnsupportedError(f"{META_STORE}: index {last}; at most {INDEX_MAX} is supported")


def survey_active(result: Survey, meta: SegmentMeta, file: File) -> None:
    """Add what the active segment holds, and what is wrong with it."""
    name = name_of(meta)
    judged = judge_active(file, meta, result.sizes[name], result.mark)
    found, flaw = judged.found, judged.flaw
    header = fmt.decode_header(file.read_at(0, fmt.HEADER_SIZE))
    if len(found.commits) and header != header_of(meta):  # damaged, or of another segment
        last = result.mark.last_index if result.mark.last.name == name else 0
        span = (meta.min_index, last) if meta.min_index <= last else (0, 0)
        result.damage.append(Damage(name, 0, *span, f"its header says {header}"))
        return
    result.found, result.rest = found, judged.rest
    for k in judged.bad:
        first = meta.base_index + (int(found.counts[k - 1]) if k else 0)
        last = meta.base_index + int(found.counts[k]) - 1
        if last >= meta.min_index:
            span = max(first, meta.min_index), last
            damage = Damage(name, int(found.begins[k]), *span, fmt.BAD_CHECKSUM)
            result.damage.append(damage)
    if missing := missing_tail(result.mark, meta, file, found, judged.bad, flaw):
        result.damage.append(missing)
    elif flaw is not None and judged.is_torn:
        result.torn = Damage(name, found.stop, 0, 0, flaw.why, torn=True)
    elif flaw is not None:
        lost = max(meta.base_index + len(found.starts), meta.min_index)
        why = f"{flaw.why}, and other batches are after it"
        result.damage.append(Damage(name, found.stop, lost, lost, why))


def _check_head(result: Survey) -> None:
    """If the head was truncated within the active segment, its first entry was durable then."""
    active = result.active
    if active is None or active.min_index == active.base_index or result.damage:
        return
    stop_index = active.base_index + len(result.found.starts)
    if stop_index <= active.min_index:
        why = f"entry {active.min_index} was durable when the entries before it were removed"
        span = active.min_index, active.min_index
        result.damage.append(Damage(name_of(active), result.found.stop, *span, why))
        result.torn = None


# An active segment


@dataclass(frozen=True, slots=True)
class Judged:
    """The batches of an active segment; `bad` ones do not match their checksums.

    `rest` is what comes after them, without the zeros at the end, and `flaw` what is wrong with it.
    Only the last batch can be torn: every other was synced before the next one was written.
    """

    found: fmt.Scan
    bad: list[int]
    rest: bytes
    flaw: Flaw | None
    is_torn: bool


def judge_active(file: File, meta: SegmentMeta, size: int, mark: Mark) -> Judged:
    """Read every batch of an active segment."""
    found, bad = scan_file(file, size)
    flaw, is_torn = found.flaw, True
    is_counted = vouches(mark, meta, found, bad)
    if bad and not is_counted and not _can_count_on(file, meta, found, bad):
        flaw = Flaw(int(found.begins[bad[0]]), fmt.BAD_CHECKSUM)
        is_torn = bad[0] == len(found.commits) - 1 and not _is_followed(file, meta, found)
        found, bad = first_batches(found, bad[0]), []
    rest = used_bytes(file, found.stop, size)
    if flaw is None and rest:
        flaw = Flaw(found.stop, "bytes after unwritten space")
    is_torn = flaw is not None and is_torn and not fmt.is_followed_by_batch(rest, found.stop)
    return Judged(found, bad, rest, flaw, is_torn)


def _is_followed(file: File, meta: SegmentMeta, found: fmt.Scan) -> bool:
    """Return whether another write was begun after the last batch: then it was synced before.

    Go programs leave the bytes of a torn write in place.  Its entries do not follow.
    """
    at, count = int(found.commits[-1]) + fmt.COMMIT_SIZE, int(found.counts[-1])
    head = file.read_at(at, fmt.FRAME_HEADER_SIZE)
    if head[:4] == fmt.INDEX.to_bytes(4, "little"):
        return fmt.frame_length(head, 0) == 4 * count
    if head[:4] != fmt.ENTRY.to_bytes(4, "little"):
        return False
    if meta.codec != fmt.RAFT_CODEC:
        return True
    entry = decode_entry(file.read_at(at + fmt.FRAME_HEADER_SIZE, fmt.frame_length(head, 0)))
    return not isinstance(entry, Flaw) and entry.index == meta.base_index + count


def _can_count_on(file: File, meta: SegmentMeta, found: fmt.Scan, bad: list[int]) -> bool:
    """Return whether the entries after each bad batch have the indexes that counting gives them.

    In a bad batch a length may be wrong and an entry skipped.  Raft entries hold their index.
    """
    if meta.codec != fmt.RAFT_CODEC:
        return False
    for k in bad:
        if k + 1 == len(found.commits):
            return False  # the last one: torn
        i = int(found.counts[k])
        if k + 1 in bad:
            continue
        start = int(found.starts[i]) + fmt.FRAME_HEADER_SIZE
        entry = decode_entry(file.read_at(start, int(found.lengths[i])))
        if isinstance(entry, Flaw) or entry.index != meta.base_index + i:
            return False
    return True


# What the owner does


def sync_active(disk: Disk, state: State | None) -> None:
    """Sync what a killed owner left unsynced; if its sync failed, drop the cache to see the disk.

    Sealed segments were synced before the meta store called them sealed.
    """
    meta = state.segments[-1] if state and state.segments else None
    if meta is None or meta.sealed or name_of(meta) not in segment_sizes(disk):
        return
    file = disk.open(name_of(meta), writable=True)
    try:
        file.sync(forget_from=0)
    finally:
        file.close()


def recover(disk: Disk, result: Survey) -> None:
    """Clear what is torn, durably, and remove files that the meta store no longer names."""
    active = result.active
    if active is not None and name_of(active) in result.sizes:
        _clear(disk, result, active)
    for name in orphans(result.state, result.sizes):
        disk.remove(name)
        result.recovered.append(f"{name}: removed, because the meta store no longer names it")


def _clear(disk: Disk, result: Survey, active: SegmentMeta) -> None:
    """Make the active segment end after its last valid batch, with zeros up to its size limit."""
    name, size, rest = name_of(active), result.sizes[name_of(active)], result.rest
    if not rest and size >= active.size_limit:
        return
    file = disk.open(name, writable=True)
    try:
        if rest:
            kept = keep_aside(disk, name, result.found.stop, rest)
            why = result.torn.why if result.torn else "stale"
            what = f"torn write of {len(rest)} bytes ({why})"
            result.recovered.append(f"{name}: {what} kept in {kept}")
            file.write_at(result.found.stop, bytes(len(rest)))
            file.sync()
    finally:
        file.close()
    if size < active.size_limit:
        allocate(disk, name, active.size_limit).close()


def allocate(disk: Disk, name: str, size: int) -> File:
    """Open a segment for writing, with blocks up to `size`, durably: no append has to find any.

    If the disk is too full for them, the segment stays as it is: the log can be trimmed, and
    appended to while there is space.
    """
    file = disk.open(name, writable=True)
    had = file.size()
    try:
        file.resize(size)
    except DiskFullError:
        file.close()
        file = disk.open(name, writable=True)
        file.resize(had)
    file.sync()
    return file
