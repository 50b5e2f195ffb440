"""Repair of a damaged Shanghai log: first say what would be lost, then do it.

Whatever is taken out stays beside the log in .cut files.  Each step replaces or renames one file
whole, so that a crash leaves a log that is still damaged and can be planned anew, or a repaired
one.  See holdfast.logs.repairing.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

from holdfast import runtime
from holdfast.cuts import keep_aside, set_aside
from holdfast.disk import Disk
from holdfast.errors import HoldfastError
from holdfast.formats import shanghai as fmt
from holdfast.formats.flaw import Flaw
from holdfast.logs.log import Damage
from holdfast.logs.repairing import Keep, RepairPlan, Span, check_keep, less_kept, settled
from holdfast.logs.shanghai.directory import (
    Found,
    Mark,
    segment_name,
    segment_sizes,
    write_mark,
)
from holdfast.logs.shanghai.log import ShanghaiLog
from holdfast.logs.shanghai.recovery import State, survey
from holdfast.logs.shanghai.segment import read_entries


@dataclass(frozen=True, slots=True)
class Step:
    """Set a whole file aside, or, with a header, keep only its bytes start..stop behind it."""

    file: str
    header: fmt.Header | None = None
    start: int = 0
    stop: int = 0

    def __str__(self) -> str:
        if self.header is None:
            return f"set {self.file} aside"
        return (
            f"rewrite {self.file} from LSN {self.header.first_lsn} with its bytes "
            f"{self.start}..{self.stop}; keep the rest aside"
        )


@dataclass(slots=True)
class _Piece:
    """The sound entries of one segment, in bytes start..stop."""

    name: str
    number: int
    header: fmt.Header
    start: int
    stop: int
    count: int
    whole: bool  # nothing of the file is left out
    as_is: bool  # nor does its header change

    @property
    def stop_lsn(self) -> int:
        return self.header.first_lsn + self.count


def plan_repair(disk: Disk, *, keep: Keep = "before") -> RepairPlan[Step]:
    """Read everything, change nothing, and say what repair would keep and lose."""
    check_keep(keep)
    return settled(lambda: _plan(disk, keep))


def _plan(disk: Disk, keep: Keep) -> RepairPlan[Step]:
    state = survey(disk)
    pieces, damage = _sound_pieces(disk, state)
    marked = state.mark.last_lsn if state.mark else 0
    if not pieces:
        first = 1 + max([marked, *(d.last_index for d in damage)])
        aside = tuple(Step(found.name) for found in state.found)
        kept = (first, first - 1)
        lost = _lost(damage, [], kept, [(1, marked)])
        return RepairPlan(keep, tuple(damage), aside, kept, lost, _unknown(state, pieces))
    run = _run_before(pieces) if keep == "before" else _run_after(pieces)
    steps = _steps(state, run)
    kept = (run[0].header.first_lsn, run[-1].stop_lsn - 1)
    dropped = [p for p in pieces if not any(p is q for q in run)]
    lost = _lost(damage, dropped, kept, [(kept[1] + 1, marked)])
    return RepairPlan(keep, tuple(damage), steps, kept, lost, _unknown(state, pieces))


def apply_repair(
    disk: Disk,
    plan: RepairPlan[Step],
    *,
    now_ms: Callable[[], int] = runtime.now_ms,
    new_id: Callable[[], UUID] = runtime.new_id,
) -> None:
    """Carry a plan out, unless the log has changed since; then recover it as any owner would."""
    lock = disk.lock()
    try:
        plan.refuse_if_changed(plan_repair(disk, keep=plan.keep))
        if plan.damage and plan.kept[0] <= plan.kept[1]:
            write_mark(disk, None)  # it speaks of entries that are about to go
        for step in plan.steps:
            _apply(disk, step)
        if plan.kept[0] > plan.kept[1] and not segment_sizes(disk):
            header = fmt.Header(new_id(), now_ms(), plan.kept[0])
            disk.create(segment_name(1), fmt.encode_header(header))
    finally:
        lock.release()
    with ShanghaiLog(disk, now_ms=now_ms, new_id=new_id) as log:
        if log.damage:
            raise HoldfastError(f"still damaged: {log.damage[0]}")


def _apply(disk: Disk, step: Step) -> None:
    if step.header is None:
        set_aside(disk, step.file)
        return
    file = disk.open(step.file)
    try:
        data = file.map()
    finally:
        file.close()
    for offset, rest in ((0, data[: step.start]), (step.stop, data[step.stop :])):
        if any(rest):
            keep_aside(disk, step.file, offset, bytes(rest))
    disk.create(
        step.file, fmt.encode_header(step.header) + data[step.start : step.stop], replace=True
    )


def _sound_pieces(disk: Disk, state: State) -> tuple[list[_Piece], list[Damage]]:
    """What can be read of each segment, oldest first, and all that cannot."""
    damage = state.all_damage()
    pieces: list[_Piece] = []
    known = {d.file for d in damage}
    for i, found in enumerate(state.found):
        after = state.found[i + 1] if i + 1 < len(state.found) else None
        stop_lsn = after.header.first_lsn if after and isinstance(after.header, fmt.Header) else 0
        file = disk.open(found.name)
        try:
            bounds, flaw = read_entries(file, fmt.HEADER_SIZE, found.size)
            # The last segment grows, and its owner's recovery may cut it: it is not mapped.
            data = file.map() if flaw is not None and after is not None else memoryview(b"")
        finally:
            file.close()
        header = found.header
        if isinstance(header, Flaw):
            first = _derive(pieces, found.number, stop_lsn if flaw is None else 0, len(bounds) - 1)
            first = first or _derive_from_mark(state.mark, found, bounds)
            if first is None:
                continue
            header = fmt.Header(UUID(int=0), _created_ms(after, pieces), first)
        count, stop = len(bounds) - 1, bounds[-1]
        if stop_lsn and header.first_lsn + count > stop_lsn >= header.first_lsn:
            count = stop_lsn - header.first_lsn
            stop = bounds[count]
        whole = stop == found.size or (after is None and state.torn is not None)
        piece = _Piece(found.name, found.number, header, fmt.HEADER_SIZE, stop, count, whole, False)
        piece.as_is = whole and header is found.header
        pieces.append(piece)
        if flaw is not None and after is not None:
            last = stop_lsn - 1 if stop_lsn else header.last_lsn
            rest = _suffix(piece, data, last) if last >= piece.stop_lsn else None
            if found.name not in known:
                worst = rest.header.first_lsn - 1 if rest else last
                damage.append(Damage(found.name, stop, piece.stop_lsn, worst, flaw.why))
            if rest is not None:
                pieces.append(rest)
    return pieces, damage


def _derive(pieces: list[_Piece], number: int, stop_lsn: int, count: int) -> int | None:
    """The first LSN of a segment whose header is gone, from its neighbours."""
    if pieces and pieces[-1].number == number - 1 and pieces[-1].whole:
        sealed = pieces[-1].header.last_lsn
        return sealed + 1 if sealed else pieces[-1].stop_lsn
    return stop_lsn - count if stop_lsn > count else None


def _derive_from_mark(mark: Mark | None, found: Found, bounds: "array[int]") -> int | None:
    """The mark says which LSN ended at which byte."""
    if mark is None or mark.name != found.name or mark.size not in bounds:
        return None
    return mark.last_lsn + 1 - bounds.index(mark.size)


def _unknown(state: State, pieces: list[_Piece]) -> tuple[str, ...]:
    """Segments that hold more than a header, none of whose entries could be placed."""
    placed = {piece.name for piece in pieces}
    return tuple(
        found.name
        for found in state.found
        if found.name not in placed and found.size > fmt.HEADER_SIZE
    )


def _created_ms(after: Found | None, pieces: list[_Piece]) -> int:
    """For a header that is made up: never older than it was, or retention would take it early."""
    if after is not None and isinstance(after.header, fmt.Header):
        return after.header.created_ms
    return pieces[-1].header.created_ms if pieces else 0


def _suffix(piece: _Piece, data: memoryview, last: int) -> _Piece | None:
    """The sound entries behind the damage: their LSNs are known from the end."""
    start = fmt.resync(data, piece.stop + 1)
    if start is None:
        return None
    count = len(fmt.scan(data, start).bounds) - 1
    header = replace(piece.header, first_lsn=last + 1 - count, last_lsn=last)
    if header.first_lsn < piece.stop_lsn:
        return None
    return _Piece(piece.name, piece.number, header, start, len(data), count, False, False)


def _run_before(pieces: list[_Piece]) -> list[_Piece]:
    run = pieces[:1]
    for piece in pieces[1:]:
        if piece.header.first_lsn != run[-1].stop_lsn or piece.name == run[-1].name:
            break
        run.append(piece)
    return run


def _run_after(pieces: list[_Piece]) -> list[_Piece]:
    run = pieces[-1:]
    for piece in reversed(pieces[:-1]):
        if piece.stop_lsn != run[0].header.first_lsn or piece.name == run[0].name:
            break
        run.insert(0, piece)
    return run


def _steps(state: State, run: list[_Piece]) -> tuple[Step, ...]:
    """Set aside from the ends inwards, so that what is kept stays in one run after any crash."""
    names = {piece.name for piece in run}
    order = [found.name for found in state.found]
    first, last = order.index(run[0].name), order.index(run[-1].name)
    aside = [Step(name) for name in (*order[:first], *reversed(order[last + 1 :]))]
    aside += [Step(name) for name in order[first:last] if name not in names]
    steps = []
    for piece in run:
        last_lsn = 0 if piece is run[-1] else piece.stop_lsn - 1
        in_doubt = len(run) > 1 and piece is run[-2]  # recovery will see to its seal
        if piece.as_is and (piece.header.last_lsn == last_lsn or in_doubt):
            continue
        header = replace(piece.header, last_lsn=last_lsn)
        steps.append(Step(piece.name, header, piece.start, piece.stop))
    return (*aside, *steps)


def _lost(
    damage: list[Damage], dropped: list[_Piece], kept: Span, ranges: list[Span]
) -> tuple[Span, ...]:
    """Those ranges of indexes and all that are damaged or dropped, less what is kept."""
    ranges += [(d.first_index, d.last_index) for d in damage if d.first_index]
    ranges += [(p.header.first_lsn, p.stop_lsn - 1) for p in dropped if p.count]
    return less_kept(sorted(ranges), kept)
