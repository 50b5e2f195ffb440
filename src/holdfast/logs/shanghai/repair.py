"""Repair of a damaged Shanghai log: plan what would be lost, then apply the plan.

What is taken out stays beside the log in .cut files.  Each step replaces or renames one file
whole, so that a crash leaves a log that is still damaged and can be planned again, or a repaired
one.  See holdfast.logs.repairing.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

from holdfast.cuts import keep_aside, set_aside
from holdfast.disk import Disk
from holdfast.errors import HoldfastError
from holdfast.formats import shanghai as fmt
from holdfast.logs.log import Damage
from holdfast.logs.mark import drop_mark
from holdfast.logs.repairing import Keep, RepairPlan, Span, check_keep, less_kept, settled
from holdfast.logs.shanghai.directory import Found
from holdfast.logs.shanghai.marks import remember_mark
from holdfast.logs.shanghai.placing import Place
from holdfast.logs.shanghai.recovery import State, survey
from holdfast.logs.shanghai.view import read_entries
from holdfast.logs.shanghai.writer import ShanghaiLog
from holdfast.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Step:
    """Rename a whole file to .cut, or, with a header, keep only its bytes start..stop after it."""

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
    """The sound entries of one segment, in its bytes begin..stop."""

    found: Found
    header: fmt.Header
    begin: int
    stop: int
    count: int
    is_whole: bool = False  # nothing of the file is left out

    @property
    def start(self) -> int:
        return self.header.first_lsn

    @property
    def stop_lsn(self) -> int:
        return self.start + self.count


def plan_repair(disk: Disk, *, keep: Keep = "before") -> RepairPlan[Step]:
    """Return what repair would keep and lose.  Reads everything, changes nothing."""
    check_keep(keep)
    return settled(lambda: _plan(disk, keep))


def _plan(disk: Disk, keep: Keep) -> RepairPlan[Step]:
    state = survey(disk)
    pieces, damage = _sound_pieces(disk, state)
    had = _had(state, pieces)
    run = _run(pieces, keep)
    if not any(piece.count for piece in run) and (not run or run[0].start != had[1] + 1):
        run = []  # nothing is kept, and no LSN is used again
    kept = (run[0].start, run[-1].stop_lsn - 1) if run else (had[1] + 1, had[1])
    steps = _steps(state, run) if run else tuple(Step(found.name) for found in state.found)
    lost, unknown = less_kept([had], kept), _unknown(state)
    return RepairPlan(keep, tuple(damage), steps, kept, lost, unknown)


def _had(state: State, pieces: list[_Piece]) -> Span:
    """Return the first and the last LSN that the log had, as far as it can be known."""
    mark = state.mark
    spans = [(place.start, place.stop) for place in state.places if place is not None]
    spans += [(piece.start, piece.stop_lsn) for piece in pieces]
    if mark.files:
        spans.append((mark.first_index or mark.last_index + 1, mark.last_index + 1))
    first = min((start for start, _ in spans), default=mark.first_index)
    return first, max((stop for _, stop in spans), default=mark.first_index) - 1


def apply_repair(
    disk: Disk,
    plan: RepairPlan[Step],
    *,
    runtime: Runtime | None = None,
) -> None:
    """Apply a plan, unless the log has changed since; then recover the log."""
    runtime = runtime or Runtime()
    lock = disk.lock()
    try:
        plan.refuse_if_changed(plan_repair(disk, keep=plan.keep))
        for step in plan.steps:
            _apply(disk, step)
        if not all(damage.torn for damage in plan.damage):
            drop_mark(disk, "shanghai", plan.kept[0])  # last: until then the log is damaged
            remember_mark(disk)
    finally:
        lock.release()
    with ShanghaiLog(disk, runtime=runtime) as log:
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
    """Return what can be read of each segment, oldest first, and the damage."""
    damage = state.all_damage()
    pieces: list[_Piece] = []
    for place in state.places:
        if place is None:
            continue
        if place is state.tail:
            pieces += _tail_pieces(state, place)
            continue
        found, flaw = _sealed_pieces(disk, place)
        pieces += found
        if flaw is not None and all(one.file != flaw.file for one in damage):
            damage.append(flaw)
    for piece, after in pairwise(pieces):
        if not piece.header.created_ms:  # not older than it was, or trim would remove it early
            piece.header = replace(piece.header, created_ms=after.header.created_ms)
    return pieces, damage


def _tail_pieces(state: State, place: Place) -> list[_Piece]:
    """Return the entries of the last segment, before and after a bad one."""
    header, bounds, bad = place.header, state.bounds, state.skipped
    if bad is not None:
        after = replace(header, first_lsn=place.start + bad + 1)
        return [
            _Piece(place.found, header, bounds[0], bounds[bad], bad),
            _Piece(place.found, after, bounds[bad + 1], bounds[-1], len(bounds) - 2 - bad),
        ]
    piece = _Piece(place.found, header, bounds[0], bounds[-1], len(bounds) - 1)
    piece.is_whole = state.torn is not None or piece.stop == place.found.size
    return [piece]


def _sealed_pieces(disk: Disk, place: Place) -> tuple[list[_Piece], Damage | None]:
    """Return the entries of a segment before and after a damage, and that damage."""
    found, header = place.found, place.header
    file = disk.open(found.name)
    try:
        bounds, flaw = read_entries(file, fmt.HEADER_SIZE, found.size)
        # It may be cut meanwhile, by an owner whose last segment it is: it is not mapped.
        data = memoryview(file.read_at(0, found.size) if flaw is not None else b"")
    finally:
        file.close()
    count = min(len(bounds) - 1, place.stop - place.start)
    piece = _Piece(found, header, fmt.HEADER_SIZE, bounds[count], count)
    piece.is_whole = piece.stop == found.size
    last = place.stop - 1
    if flaw is None and len(bounds) - 1 == last + 1 - place.start:
        return [piece], None
    # LSNs are counted from the end only if the segment was sealed there.
    rest = _suffix(piece, data, last) if flaw is not None and header.last_lsn == last else None
    worst = rest.start - 1 if rest else last
    span = (piece.stop_lsn, worst) if piece.stop_lsn <= worst else (0, 0)
    why = flaw.why if flaw else f"{len(bounds) - 1} entries, but LSNs {place.start} to {last}"
    damage = Damage(found.name, piece.stop, *span, why)
    return [piece, *([rest] if rest else [])], damage


def _unknown(state: State) -> tuple[str, ...]:
    """Return the segments with entries whose LSNs are unknown."""
    pairs = zip(state.found, state.places, strict=True)
    return tuple(one.name for one, place in pairs if not place and one.size > fmt.HEADER_SIZE)


def _suffix(piece: _Piece, data: memoryview, last: int) -> _Piece | None:
    """Return the sound entries after the damage: their LSNs are known from the end."""
    start = fmt.resync(data, piece.stop + 1)
    if start is None:
        return None
    count = len(fmt.scan(data, start).bounds) - 1
    header = replace(piece.header, first_lsn=last + 1 - count, last_lsn=last)
    if header.first_lsn <= piece.stop_lsn:
        return None
    return _Piece(piece.found, header, start, len(data), count)


def _run(pieces: list[_Piece], keep: Keep) -> list[_Piece]:
    """Return the first or the last contiguous pieces that have entries; else the last ones."""
    runs: list[list[_Piece]] = []
    for piece in pieces:
        before = runs[-1][-1] if runs else None
        if before and piece.start == before.stop_lsn and piece.found is not before.found:
            runs[-1].append(piece)
        else:
            runs.append([piece])
    filled = [run for run in runs if any(piece.count for piece in run)]
    if not filled:
        return runs[-1] if runs else []
    return filled[0] if keep == "before" else filled[-1]


def _steps(state: State, run: list[_Piece]) -> tuple[Step, ...]:
    """Return the steps, from the ends inwards: after a crash what is kept is still one run."""
    names = {piece.found.name for piece in run}
    order = [found.name for found in state.found]
    first, last = order.index(run[0].found.name), order.index(run[-1].found.name)
    aside = [Step(name) for name in (*order[:first], *reversed(order[last + 1 :]))]
    aside += [Step(name) for name in order[first:last] if name not in names]
    steps = []
    for piece in run:
        last_lsn = 0 if piece is run[-1] else piece.stop_lsn - 1
        header = replace(piece.header, last_lsn=last_lsn)
        is_in_doubt = len(run) > 1 and piece is run[-2]  # recovery will see to its seal
        is_as_it_was = header == piece.found.header or (
            is_in_doubt and piece.header == piece.found.header
        )
        if not piece.is_whole or not is_as_it_was:
            steps.append(Step(piece.found.name, header, piece.begin, piece.stop))
    return (*aside, *steps)
