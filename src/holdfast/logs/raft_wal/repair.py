"""Repair of a damaged raft-wal log: first say what would be lost, then do it.

See holdfast.logs.repairing.  A meta store that is damaged or gone is made anew from the segments;
what heads it had truncated comes back, and its stable keys are lost with it.  Nothing is deleted:
files and bytes that are taken out stay beside the log as .cut files.  A crash between two steps
leaves a log that is still damaged and can be planned anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from holdfast.cuts import keep_aside, set_aside
from holdfast.disk import Disk
from holdfast.errors import CorruptError, HoldfastError
from holdfast.formats import raft_wal as fmt
from holdfast.formats.raft_meta import SegmentMeta, State
from holdfast.logs.log import Damage
from holdfast.logs.raft_wal.directory import name_of, parse_name, segment_sizes
from holdfast.logs.raft_wal.log import RaftWal
from holdfast.logs.raft_wal.meta_store import META_STORE, MetaStore, RaftOwnership
from holdfast.logs.raft_wal.pieces import Piece, pieces_of, rebuilt
from holdfast.logs.raft_wal.recovery import survey
from holdfast.logs.repairing import Keep, RepairPlan, Span, check_keep, less_kept, settled

Action = Literal["set aside", "cut", "seal", "record"]
_SEALED = "1970-01-01T00:00:01Z"  # when, nobody knows any more


@dataclass(frozen=True, slots=True)
class Step:
    """What happens to one file."""

    file: str
    action: Action
    offset: int = 0

    def __str__(self) -> str:
        return {
            "set aside": f"set {self.file} aside",
            "cut": f"clear {self.file} from byte {self.offset} on; keep those bytes aside",
            "seal": f"write the index of {self.file} at byte {self.offset}",
            "record": f"record in {self.file} what is kept",
        }[self.action]


@dataclass(frozen=True, slots=True)
class RaftRepairPlan(RepairPlan[Step]):
    state: State  # what the meta store will say


def plan_repair(disk: Disk, *, keep: Keep = "before") -> RaftRepairPlan:
    """Read everything, change nothing, and say what repair would keep and lose."""
    check_keep(keep)
    return settled(lambda: _plan(disk, keep))


def _plan(disk: Disk, keep: Keep) -> RaftRepairPlan:
    sizes = segment_sizes(disk)
    unknown: list[str] = []
    try:
        state, damage = _recorded(disk)
    except CorruptError as error:
        damage, state = [Damage(error.where, error.offset, 0, 0, error.why)], None
        unknown.append(META_STORE)
    if state is None:
        state = rebuilt(disk, sizes)
    pieces = pieces_of(disk, state)
    damage += [d for piece in pieces for d in piece.damage if d not in damage]
    if not any(not d.torn for d in damage):  # recovery sees to it
        span = state.segments[0].min_index if state.segments else 1, _last(pieces, state)
        return RaftRepairPlan(keep, tuple(damage), (), span, (), (), state)
    run = _run(pieces, keep)
    first, last = run or (_last(pieces, state) + 1, _last(pieces, state))
    unknown += [piece.name for piece in pieces if piece.is_open_ended]
    new, steps = _new_state(state, pieces, sizes, (first, last))
    lost = _lost(pieces, (first, last))
    listed = {name_of(meta) for meta in state.segments}
    unknown += [n for n in sizes if n not in listed and parse_name(n) and unknown]
    return RaftRepairPlan(keep, tuple(damage), steps, (first, last), lost, tuple(unknown), new)


def apply_repair(disk: Disk, plan: RaftRepairPlan) -> None:
    """Carry a plan out, unless the log has changed since; then recover it as any owner would."""
    lock = RaftOwnership(disk)
    try:
        plan.refuse_if_changed(plan_repair(disk, keep=plan.keep))
        for step in plan.steps:
            _apply(disk, step)
    except BaseException:
        lock.release()
        raise
    if plan.steps:
        _record(disk, plan.state, lock)
    else:
        lock.release()
    with RaftWal(disk) as log:
        if log.damage:
            raise HoldfastError(f"still damaged: {log.damage[0]}")


def _recorded(disk: Disk) -> tuple[State | None, list[Damage]]:
    """What the meta store says, unless it contradicts itself; and what is wrong with the files."""
    with MetaStore(disk, read_only=True) as store:
        state = store.load()
    found = survey(disk, state)
    if any(damage.file == META_STORE for damage in found.damage):
        return None, found.all_damage()
    return found.state, found.all_damage()


def _last(pieces: Sequence[Piece], state: State) -> int:
    ends = [piece.last for piece in pieces] + [s.base_index - 1 for s in state.segments]
    return max(ends, default=0)


def _run(pieces: Sequence[Piece], keep: Keep) -> tuple[int, int] | None:
    """The first or the last unbroken row of sound entries."""
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
        if meta.sealed or not is_last:
            if not meta.index_start:
                steps.append(Step(piece.name, "seal", piece.stop_of(last)))
                meta = replace(meta, index_start=piece.stop_of(last) + fmt.FRAME_HEADER_SIZE)
            max_index = min(meta.max_index or piece.last, last)
            seal_time = meta.seal_time if meta.sealed else _SEALED
            meta = replace(meta, max_index=max_index, seal_time=seal_time)
        elif piece.last > last or piece.is_open_ended:
            steps.append(Step(piece.name, "cut", piece.stop_of(last)))
        segments.append(meta)
    if not segments:
        segments = [SegmentMeta(next_id, first, first, codec=_codec(state))]
        next_id += 1
    names = {name_of(meta) for meta in segments}
    aside = [Step(name, "set aside") for name in sizes if name not in names]
    record = Step(META_STORE, "record")
    return State(next_id, tuple(segments)), (*aside, *steps, record)


def _codec(state: State) -> int:
    return state.segments[-1].codec if state.segments else fmt.RAFT_CODEC


def _lost(pieces: Sequence[Piece], kept: Span) -> tuple[Span, ...]:
    """All that the segments were said to hold, or are found to, less what is kept."""
    spans = [(p.meta.min_index, max(p.last, p.meta.max_index)) for p in pieces]
    return less_kept(spans, kept)


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


def _record(disk: Disk, state: State, lock: RaftOwnership) -> None:
    try:
        store = MetaStore(disk, lock=lock)
    except CorruptError:
        lock = RaftOwnership(disk)
        MetaStore.create_from(disk, state, {}, lock=lock).close()
        return
    with store:
        store.commit(state)
