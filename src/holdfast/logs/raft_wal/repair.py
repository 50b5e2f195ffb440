"""Repair a damaged raft-wal log: plan what would be kept and lost, then apply the plan.

See holdfast.logs.repairing.  A meta store that is damaged or missing is rebuilt from the segments:
entries of truncated heads come back, and the stable keys are lost.  Nothing is deleted: files and
bytes that are taken out are kept in the directory as .cut files.  A crash between two steps leaves
a log that is still damaged, and a new plan can be made.

The stable key REPAIRED records that the log was repaired.  A member of a Raft cluster must not vote
with a log that was shortened: it looks for the key, and removes it when it has fetched the rest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from holdfast.cuts import keep_aside, set_aside
from holdfast.disk import Disk, File
from holdfast.errors import CorruptError, HoldfastError
from holdfast.formats import raft_wal as fmt
from holdfast.formats.mark import Mark
from holdfast.formats.raft_meta import SegmentMeta, State
from holdfast.logs.log import Damage
from holdfast.logs.mark import Recalled, drop_mark, remember_mark
from holdfast.logs.raft_wal.directory import header_of, name_of, parse_name, segment_sizes
from holdfast.logs.raft_wal.marks import NO_MARK, recall
from holdfast.logs.raft_wal.meta_store import META_STORE, MetaStore, RaftOwnership
from holdfast.logs.raft_wal.recovery import judge_active, survey
from holdfast.logs.raft_wal.scanning import scan_file
from holdfast.logs.raft_wal.segment_list import SIZE_MIN
from holdfast.logs.raft_wal.view import Sealed
from holdfast.logs.raft_wal.writer import RaftWal
from holdfast.logs.repairing import Keep, RepairPlan, Span, check_keep, less_kept, settled

REPAIRED = b"holdfast.repaired"
Action = Literal["set aside", "cut", "seal", "record"]
_CREATED = "1970-01-01T00:00:00Z"  # where the time is lost with the meta store
_SEALED = "1970-01-01T00:00:01Z"


@dataclass(frozen=True, slots=True)
class Step:
    """One change of one file."""

    file: str
    action: Action
    offset: int = 0

    def __str__(self) -> str:
        return {
            "set aside": f"rename {self.file} to a .cut file",
            "cut": f"clear {self.file} from byte {self.offset} on; keep those bytes in a .cut file",
            "seal": f"write the index of {self.file} at byte {self.offset}",
            "record": f"record in {self.file} what is kept",
        }[self.action]


@dataclass(frozen=True, slots=True)
class RaftRepairPlan(RepairPlan[Step]):
    state: State  # what the meta store will say


@dataclass(frozen=True, slots=True)
class Piece:
    """One segment: its valid entries, as ranges of indexes, and where each batch of them ends."""

    meta: SegmentMeta
    runs: tuple[tuple[int, int], ...]
    stops: tuple[tuple[int, int], ...]  # last index and end of each valid batch
    damage: tuple[Damage, ...]
    is_open_ended: bool = False  # there may be more entries after those that were found
    index_start: int = 0  # of its index, if that is valid

    @property
    def name(self) -> str:
        return name_of(self.meta)

    @property
    def first(self) -> int:
        return self.runs[0][0] if self.runs else self.meta.min_index

    @property
    def last(self) -> int:
        return self.runs[-1][1] if self.runs else self.meta.base_index - 1

    def stop_of(self, last: int) -> int:
        """Return where the batch ends that holds entry `last`."""
        return next((stop for index, stop in self.stops if index >= last), 0)


def plan_repair(disk: Disk, *, keep: Keep = "before") -> RaftRepairPlan:
    """Read all segments and return what repair would keep and lose.  Nothing is changed."""
    check_keep(keep)
    return settled(lambda: _plan(disk, keep))


def _plan(disk: Disk, keep: Keep) -> RaftRepairPlan:
    sizes = segment_sizes(disk)
    unknown: list[str] = []
    recalled = recall(disk)
    mark = recalled.mark or NO_MARK
    try:
        state, damage = _recorded(disk, recalled)
    except CorruptError as error:
        damage, state = [Damage(error.where, error.offset, 0, 0, error.why)], None
        unknown.append(META_STORE)
    if state is None:
        state = _rebuilt(disk, sizes)
    pieces = [_piece(disk, meta, mark) for meta in state.segments]
    damage += [d for piece in pieces for d in piece.damage if d not in damage]
    if all(d.torn for d in damage):  # recovery handles a torn end
        span = state.segments[0].min_index if state.segments else 1, _last(pieces)
        return RaftRepairPlan(keep, tuple(damage), (), span, (), (), state)
    run = _run(pieces, keep)
    end = max(_last(pieces), mark.last_index)
    first, last = run or (end + 1, end)
    unknown += [piece.name for piece in pieces if piece.is_open_ended]
    new, steps = _new_state(state, pieces, sizes, (first, last))
    marked = [(mark.first_index, mark.last_index)] if mark.files and unknown else []
    lost = _lost(pieces, damage, (first, last), marked)
    listed = {name_of(meta) for meta in state.segments}
    unknown += [n for n in sizes if n not in listed and parse_name(n) and unknown]
    return RaftRepairPlan(keep, tuple(damage), steps, (first, last), lost, tuple(unknown), new)


def apply_repair(disk: Disk, plan: RaftRepairPlan) -> None:
    """Apply a plan, unless the log has changed since; then recover it as any owner does."""
    lock = RaftOwnership(disk)
    try:
        plan.refuse_if_changed(plan_repair(disk, keep=plan.keep))
        for step in plan.steps:
            _apply(disk, step)
    except BaseException:
        lock.release()
        raise
    if plan.steps:
        with _record(disk, plan, lock):
            drop_mark(disk, "raft-wal", plan.kept[0])  # last: until then the log is damaged
            remember_mark(disk)
    else:
        lock.release()
    with RaftWal(disk) as log:
        if log.damage:
            raise HoldfastError(f"still damaged: {log.damage[0]}")


def _recorded(disk: Disk, recalled: Recalled) -> tuple[State | None, list[Damage]]:
    """Return the state in the meta store, None if it contradicts itself; and all damage."""
    with MetaStore(disk, read_only=True) as store:
        found = survey(disk, store.load(), store.txid, recalled)
    if any(damage.file == META_STORE for damage in found.damage):
        return None, found.all_damage()
    return found.state, found.all_damage()


def _last(pieces: Sequence[Piece]) -> int:
    """Return the last index that the log is known to have had."""
    ends = [max(piece.last, _known_last(piece.meta)) for piece in pieces]
    return max(ends, default=0)


def _known_last(meta: SegmentMeta) -> int:
    if meta.sealed:
        return meta.max_index
    # The first entry that stays was durable when those before it were removed.
    return meta.min_index if meta.min_index > meta.base_index else meta.base_index - 1


def _run(pieces: Sequence[Piece], keep: Keep) -> tuple[int, int] | None:
    """Return the first or the last unbroken range of valid entries."""
    rows: list[tuple[int, int]] = []
    for first, last in (run for piece in pieces for run in piece.runs):
        if rows and rows[-1][1] + 1 == first:
            rows[-1] = rows[-1][0], last
        else:
            rows.append((first, last))
    if not rows:
        return None
    return rows[0] if keep == "before" else rows[-1]


def _new_state(
    state: State, pieces: Sequence[Piece], sizes: dict[str, int], kept: tuple[int, int]
) -> tuple[State, tuple[Step, ...]]:
    first, last = kept
    ids = [parsed[1] for name in sizes if (parsed := parse_name(name))]
    next_id = max([state.next_segment_id, *(id + 1 for id in ids)])
    stay = [p for p in pieces if p.runs and p.first <= last and p.last >= first]
    segments, steps = [], []
    for piece in stay:
        meta = replace(piece.meta, min_index=max(piece.meta.min_index, first))
        is_last = piece is stay[-1]
        # After a bad batch only the index says where entries are.
        is_headless = any(damage.first_index < first for damage in piece.damage)
        if meta.sealed or not is_last or is_headless:
            max_index, index_start = min(piece.last, last), piece.index_start
            if not index_start:
                steps.append(Step(piece.name, "seal", piece.stop_of(max_index)))
                index_start = piece.stop_of(max_index) + fmt.FRAME_HEADER_SIZE
            seal_time = meta.seal_time if meta.sealed else _SEALED
            sealed = {"max_index": max_index, "index_start": index_start, "seal_time": seal_time}
            meta = replace(meta, **sealed)  # type: ignore[arg-type]
        elif piece.last > last or piece.is_open_ended:
            steps.append(Step(piece.name, "cut", piece.stop_of(last)))
        segments.append(meta)
    if not segments:
        codec = state.segments[-1].codec if state.segments else fmt.OPAQUE_CODEC
        segments = [SegmentMeta(next_id, first, first, codec=codec, size_limit=SIZE_MIN)]
        next_id += 1
    names = {name_of(meta) for meta in segments}
    aside = [Step(name, "set aside") for name in sizes if name not in names]
    record = Step(META_STORE, "record")
    return State(next_id, tuple(segments)), (*aside, *steps, record)


def _lost(
    pieces: Sequence[Piece], damage: Sequence[Damage], kept: Span, spans: list[Span]
) -> tuple[Span, ...]:
    """Return all indexes that the segments should hold, or do hold, without those that are kept."""
    spans += [(p.meta.min_index, max(p.last, p.meta.max_index)) for p in pieces]
    spans += [(one.first_index, one.last_index) for one in damage if one.first_index]
    return less_kept(sorted(spans), kept)


def _apply(disk: Disk, step: Step) -> None:
    if step.action == "set aside":
        set_aside(disk, step.file)
    elif step.action in ("cut", "seal"):
        file = disk.open(step.file, writable=True)
        try:
            data = file.read_at(0, segment_sizes(disk)[step.file])
            rest = data[step.offset :].rstrip(b"\0")
            if rest:
                keep_aside(disk, step.file, step.offset, rest)
                file.write_at(step.offset, bytes(len(rest)))
            if step.action == "seal":
                found = fmt.scan(memoryview(data[: step.offset]), verify=False)
                starts = found.starts.tolist()
                seal = fmt.encode_batch([], offset=step.offset, earlier=starts, size_limit=None)
                file.write_at(step.offset, seal.data)
            file.sync()
        finally:
            file.close()


def _record(disk: Disk, plan: RaftRepairPlan, lock: RaftOwnership) -> MetaStore:
    """Record what is kept, and that something may be lost; return the open meta store."""
    lost = [f"{first}..{last}" for first, last in plan.lost] + list(plan.unknown)
    stable = {REPAIRED: ("lost: " + (", ".join(lost) or "unknown")).encode()}
    try:
        store = MetaStore(disk, lock=lock)
    except CorruptError:
        return MetaStore.create_from(disk, plan.state, stable, lock=RaftOwnership(disk))
    try:
        store.commit(plan.state, stable)
    except BaseException:
        store.close()
        raise
    return store


# What can still be read of each segment


def _rebuilt(disk: Disk, sizes: dict[str, int]) -> State:
    """Rebuild the state of the meta store from the files.

    A segment that was created later replaces all indexes from its base on: the tail of the log was
    truncated before it was created.
    """
    known: list[SegmentMeta] = []
    for meta in sorted(_described(disk, sizes), key=lambda meta: meta.id):
        known = [
            replace(one, max_index=min(one.max_index, meta.base_index - 1))
            for one in known
            if one.base_index < meta.base_index
        ]
        known.append(meta)
    known = [meta for meta in known if meta is known[-1] or meta.max_index >= meta.base_index]
    codec = next((meta.codec for meta in reversed(known) if meta.codec), fmt.OPAQUE_CODEC)
    known = [meta if meta.codec else replace(meta, codec=codec) for meta in known]
    next_id = max((parsed[1] + 1 for name in sizes if (parsed := parse_name(name))), default=0)
    segments = [
        replace(meta, seal_time=_SEALED) if meta.index_start or meta is not known[-1] else meta
        for meta in known
    ]
    if segments and not segments[-1].sealed:
        segments[-1] = replace(segments[-1], max_index=0)
    return State(next_id, tuple(segments))


def _described(disk: Disk, sizes: dict[str, int]) -> Iterator[SegmentMeta]:
    """Yield each file that is a segment by its name and its header, with all entries it has."""
    for name, size in sizes.items():
        parsed = parse_name(name)
        if parsed is None:
            continue
        file = disk.open(name)
        try:
            head = file.read_at(0, fmt.HEADER_SIZE)
            found, _ = scan_file(file, size, verify=False)
        finally:
            file.close()
        header = fmt.decode_header(head)
        meta = SegmentMeta(parsed[1], parsed[0], parsed[0], parsed[0] - 1, 0, create_time=_CREATED)
        meta = replace(meta, size_limit=min(size, fmt.SEGMENT_SIZE_MAX))
        if isinstance(header, fmt.Header) and (header.base_index, header.id) == parsed:
            yield replace(
                meta,
                codec=header.codec,
                max_index=parsed[0] + len(found.starts) - 1,
                index_start=found.index_start,
            )
        elif not any(head):
            yield meta


def _piece(disk: Disk, meta: SegmentMeta, mark: Mark) -> Piece:
    try:
        file = disk.open(name_of(meta))
    except FileNotFoundError:
        if not meta.sealed:
            return Piece(meta, (), (), ())
        damage = Damage(name_of(meta), 0, meta.min_index, meta.max_index, "missing")
        return Piece(meta, (), (), (damage,))
    try:
        if meta.sealed and meta.index_start:
            judged = Sealed(disk, meta, 0).judge(file.map())  # a sealed segment does not change
            piece = _piece_of(meta, judged.found, set(judged.bad()))
            index_start = 0 if judged.index_flaw else meta.index_start
            return replace(piece, damage=(*judged.damage(),), index_start=index_start)
        return _growing(meta, file, mark)
    except CorruptError as error:
        span = (meta.min_index, meta.max_index) if meta.sealed else (0, 0)
        damage = Damage(name_of(meta), error.offset, *span, error.why)
        return Piece(meta, (), (), (damage,), is_open_ended=not meta.sealed)
    finally:
        file.close()


def _growing(meta: SegmentMeta, file: File, mark: Mark) -> Piece:
    """Return the active segment, or one whose index is lost with the meta store."""
    header = fmt.decode_header(file.read_at(0, fmt.HEADER_SIZE))
    judged = judge_active(file, meta, file.size(), mark)
    if len(judged.found.starts) and header != header_of(meta):
        raise CorruptError(name_of(meta), 0, f"its header says {header}")
    piece = _piece_of(meta, judged.found, set(judged.bad))
    was_longer = meta.base_index < meta.min_index >= meta.base_index + len(judged.found.starts)
    is_open_ended = judged.flaw is not None and (not judged.is_torn or was_longer)
    return replace(piece, is_open_ended=is_open_ended, index_start=judged.found.index_start)


def _piece_of(meta: SegmentMeta, found: fmt.Scan, bad: set[int]) -> Piece:
    runs: list[tuple[int, int]] = []
    stops, damage = [], []
    begin = meta.base_index
    for k, count in enumerate(found.counts.tolist()):
        stop_index = meta.base_index + count
        first = max(begin, meta.min_index)
        last = min(stop_index - 1, meta.max_index if meta.sealed else stop_index)
        begin = stop_index
        if k not in bad:
            stops.append((stop_index - 1, int(found.commits[k]) + fmt.COMMIT_SIZE))
        if first > last:
            continue
        if k in bad:
            at = int(found.begins[k])
            damage.append(Damage(name_of(meta), at, first, last, fmt.BAD_CHECKSUM))
        elif runs and runs[-1][1] + 1 == first:
            runs[-1] = runs[-1][0], last
        else:
            runs.append((first, last))
    if meta.sealed and begin <= meta.max_index:
        first = max(begin, meta.min_index)
        damage.append(Damage(name_of(meta), found.stop, first, meta.max_index, "not found"))
    return Piece(meta, tuple(runs), tuple(stops), tuple(damage))
