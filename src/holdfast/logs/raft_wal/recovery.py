"""Opening a raft-wal directory: judge what a crash left, and mend only what a crash can leave.

Invariant: a batch is synced before the next one is written, a segment is sealed and synced before
the meta store says so, and the meta store names a segment before its file is made.  So a crash
leaves at most

1. one torn batch at the end of the tail: it is overwritten with zeros, its bytes kept in a .cut
   file, so that nothing in it can ever be taken for frames;
2. a tail that is sealed, which the meta store does not know yet: the seal is finished;
3. a tail that the meta store names and that was not made yet: it is made;
4. files of segments that the meta store has let go of: they are removed.

Everything else is damage, and is reported, not mended.  What recovery exposes it has synced first,
and read from the disk and not from a cache that a failed sync may have left lying.
"""

from dataclasses import dataclass, field

from holdfast.cuts import keep_aside
from holdfast.disk import Disk, File
from holdfast.formats import raft_wal as fmt
from holdfast.formats.flaw import Flaw
from holdfast.formats.raft_entry import decode_entry
from holdfast.formats.raft_meta import SegmentMeta, State
from holdfast.logs.log import Damage
from holdfast.logs.raft_wal.copies import cut, scan_file, used_bytes
from holdfast.logs.raft_wal.directory import (
    contradictions,
    disagreements,
    header_of,
    name_of,
    orphans,
    segment_sizes,
)
from holdfast.logs.raft_wal.meta_store import META_STORE


@dataclass(slots=True)
class Survey:
    """What the directory holds, what is wrong with it, and what was mended."""

    state: State
    sizes: dict[str, int]
    damage: list[Damage] = field(default_factory=list)
    found: fmt.Scan = fmt.NOTHING  # of the tail
    rest: bytes = b""  # what is behind its last sound batch, without the zeros at the end
    torn: Damage | None = None
    mended: list[str] = field(default_factory=list)

    @property
    def tail(self) -> SegmentMeta | None:
        segments = self.state.segments
        return segments[-1] if segments and not segments[-1].sealed else None

    @property
    def is_made(self) -> bool:
        """Does the file of the tail exist, as far as there is a tail?"""
        return self.tail is None or name_of(self.tail) in self.sizes

    @property
    def unsynced(self) -> str | None:
        return name_of(self.tail) if self.tail and len(self.found.commits) else None

    def all_damage(self) -> list[Damage]:
        return self.damage + ([self.torn] if self.torn else [])


def survey(disk: Disk, state: State | None) -> Survey:
    """Look, and change nothing."""
    sizes = segment_sizes(disk)
    if state is None or not state.segments:  # there is always a tail, once there is a log
        result = Survey(state or State(0), sizes)
        if sizes:
            why = f"it names no segment, but {next(iter(sizes))} is there"
            result.damage.append(Damage(META_STORE, 0, 0, 0, why))
        return result
    result = Survey(state, sizes, [*contradictions(state)])
    if not result.damage:
        result.damage += disagreements(disk, state, sizes)
    tail = result.tail
    if tail is not None and name_of(tail) in sizes:
        file = disk.open(name_of(tail))
        try:
            _judge_tail(result, tail, file)
        finally:
            file.close()
    _judge_promise(result)
    return result


def _judge_tail(result: Survey, tail: SegmentMeta, file: File) -> None:
    """Only the last batch can be torn: all before it were synced before it was written.

    Everything is judged on copies: an owner may be writing to this file.
    """
    name, size = name_of(tail), result.sizes[name_of(tail)]
    found, bad = scan_file(file, size)
    flaw, is_torn = found.flaw, not bad or bad[0] == len(found.commits) - 1
    if bad and not can_count_on(file, tail, found, bad):
        flaw = Flaw(int(found.begins[bad[0]]), fmt.BAD_CHECKSUM)
        found, bad = cut(found, bad[0]), []
    result.found, result.rest = found, used_bytes(file, found.stop, size)
    if flaw is None and result.rest:
        flaw = Flaw(found.stop, "bytes behind unwritten space")
    for k in bad:
        first = tail.base_index + (int(found.counts[k - 1]) if k else 0)
        last = tail.base_index + int(found.counts[k]) - 1
        if last >= tail.min_index:
            span = max(first, tail.min_index), last
            damage = Damage(name, int(found.begins[k]), *span, fmt.BAD_CHECKSUM)
            result.damage.append(damage)
    header = fmt.decode_header(file.read_at(0, fmt.HEADER_SIZE))
    if len(found.commits) and 0 not in bad and header != header_of(tail):
        result.damage.append(Damage(name, 0, 0, 0, f"its header says {header}"))
    if flaw is not None and not (is_torn and not fmt.ends_with_batch(result.rest, found.stop)):
        lost = tail.base_index + len(found.starts)
        why = f"{flaw.why}, and other batches are behind it"
        result.damage.append(Damage(name, found.stop, lost, lost, why))
    elif flaw is not None:
        result.torn = Damage(name, found.stop, 0, 0, flaw.why, torn=True)


def can_count_on(file: File, tail: SegmentMeta, found: fmt.Scan, bad: list[int]) -> bool:
    """Are the entries behind each unsound batch what their number in the row says?

    In an unsound batch a length may be wrong and an entry skipped.  Raft entries know their index.
    """
    if tail.codec != fmt.RAFT_CODEC:
        return False
    for k in bad:
        if k + 1 == len(found.commits):
            return False  # the last one: torn
        i = int(found.counts[k])
        if k + 1 in bad:
            continue
        start = int(found.starts[i]) + fmt.FRAME_HEADER_SIZE
        entry = decode_entry(file.read_at(start, int(found.lengths[i])))
        if isinstance(entry, Flaw) or entry.index != tail.base_index + i:
            return False
    return True


def _judge_promise(result: Survey) -> None:
    """A head that was truncated inside the tail was there: its first entry cannot be torn."""
    tail = result.tail
    if tail is None or tail.min_index == tail.base_index:
        return
    stop_index = tail.base_index + len(result.found.starts)
    if stop_index <= tail.min_index:
        why = f"entry {tail.min_index} was there when those before it were removed"
        damage = Damage(name_of(tail), result.found.stop, stop_index, tail.min_index, why)
        result.damage.append(damage)


def look_behind_the_cache(disk: Disk, state: State | None) -> None:
    """Sync what a killed owner left unsynced; and if a sync of its failed, see what the disk has.

    Only of the tail: sealed segments were synced before the meta store called them so.
    """
    tail = state.segments[-1] if state and state.segments else None
    if tail is None or tail.sealed or name_of(tail) not in segment_sizes(disk):
        return
    file = disk.open(name_of(tail), writable=True)
    try:
        file.sync(forget_from=0)
    finally:
        file.close()


def settle(disk: Disk, result: Survey) -> None:
    """Make the tail end where its last sound batch does, and durable.  For the owner."""
    tail = result.tail
    if tail is None or name_of(tail) not in result.sizes:
        return
    name, size = name_of(tail), result.sizes[name_of(tail)]
    rest = result.rest
    if not rest and size >= tail.size_limit:
        return
    file = disk.open(name, writable=True)
    try:
        if rest:
            kept = keep_aside(disk, name, result.found.stop, rest)
            why = result.torn.why if result.torn else "stale"
            what = f"torn write of {len(rest)} bytes ({why})"
            result.mended.append(f"{name}: {what} kept in {kept}")
            file.write_at(result.found.stop, bytes(len(rest)))
        if size < tail.size_limit:
            file.resize(tail.size_limit)
        file.sync()
    finally:
        file.close()


def remove_orphans(disk: Disk, result: Survey) -> None:
    for name in orphans(result.state, result.sizes):
        disk.remove(name)
        result.mended.append(f"{name}: removed, the meta store has let go of it")
