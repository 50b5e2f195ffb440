"""Opening a Shanghai directory: judge what a crash left, and mend only what a crash can leave.

Invariant: every segment but the last was complete and synced before its successor was made, and
the last LSN in its header follows from the successor's first.  So a crash leaves at most

1. a torn or unwritten end of the last segment, after all that was acknowledged: it is cut off,
   and the cut bytes are kept in a .cut file;
2. a seal that is missing or torn on the last segment but one: it is written again.

Everything else is damage, and is reported, not mended.  What recovery exposes it has synced first,
and read from the disk and not from a cache that a failed sync may have left lying.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.cuts import keep_aside
from holdfast.disk import Disk
from holdfast.formats import shanghai as fmt
from holdfast.formats.flaw import Flaw
from holdfast.logs.log import Damage
from holdfast.logs.shanghai.directory import (
    Found,
    Mark,
    cross_check,
    find_segments,
    read_mark,
    segment_name,
    segment_sizes,
)
from holdfast.logs.shanghai.segment import read_entries


@dataclass(slots=True)
class State:
    """What the directory holds, what is wrong with it, and what was mended."""

    found: list[Found]
    bounds: "array[int]"  # of the entries of the last segment
    damage: list[Damage]
    mark: Mark | None = None
    torn: Damage | None = None
    seal_is_due: bool = False  # on the last segment but one, whose entries are all there
    mended: list[str] = field(default_factory=list)

    @property
    def unsynced(self) -> str | None:
        return self.found[-1].name if len(self.bounds) > 1 else None

    def all_damage(self) -> list[Damage]:
        return self.damage + ([self.torn] if self.torn else [])


def survey(disk: Disk) -> State:
    """Look, and change nothing."""
    return _survey(disk, read_mark(disk))  # first: what is read later can only have more


def _survey(disk: Disk, mark: Mark | None) -> State:
    found = find_segments(disk)
    damage = cross_check(found, seal_in_doubt=found[-2].number if len(found) > 1 else None)
    if not found:
        if mark is not None and mark.last_lsn:
            damage.append(Damage(mark.name, 0, 1, mark.last_lsn, "missing, with all segments"))
        return State(found, array("q"), damage, mark)
    last = found[-1]
    if isinstance(last.header, Flaw):
        return State(found, array("q", [fmt.HEADER_SIZE]), damage, mark)
    file = disk.open(last.name)
    try:
        bounds, flaw = read_entries(file, fmt.HEADER_SIZE, last.size)
    finally:
        file.close()
    state = State(found, bounds, damage, mark)
    _judge_tail(state, last, last.header, flaw)
    if len(found) > 1 and found[-2].number == last.number - 1:
        _judge_seal(disk, state, found[-2], last.header.first_lsn)
    return state


def _judge_tail(state: State, last: Found, header: fmt.Header, flaw: Flaw | None) -> None:
    stop_lsn, stop = header.first_lsn + len(state.bounds) - 1, state.bounds[-1]
    promised = _promised_lsn(last, header, state.mark, state.found)
    if _contradicts(state.mark, last, header, state.bounds):
        why = f"first LSN {header.first_lsn} is not what it was when the log was last closed"
        state.damage.append(Damage(last.name, 32, 0, 0, why))
    elif header.last_lsn and flaw is None and header.last_lsn < stop_lsn - 1:
        why = f"last LSN is {header.last_lsn}, but entries go on to {stop_lsn - 1}"
        state.damage.append(Damage(last.name, fmt.LAST_LSN_OFFSET, 0, 0, why))
    elif promised >= stop_lsn:
        why = flaw.why if flaw else "the file ends too early"
        why += f"; it was complete up to LSN {promised}"
        state.damage.append(Damage(last.name, stop, stop_lsn, promised, why))
    elif flaw is not None:
        state.torn = Damage(last.name, stop, 0, 0, flaw.why, torn=True)


def _promised_lsn(last: Found, header: fmt.Header, mark: Mark | None, found: list[Found]) -> int:
    """The highest LSN that something durable says this log has reached."""
    promised = header.last_lsn  # not zero only if a writer seals before it makes the next
    if mark is None:
        return promised
    if mark.name == last.name:
        return max(promised, mark.last_lsn if mark.id == str(header.id) else 0)
    marked_is_here = any(segment.name == mark.name for segment in found)
    return promised if marked_is_here else max(promised, mark.last_lsn)


def _contradicts(mark: Mark | None, last: Found, header: fmt.Header, bounds: "array[int]") -> bool:
    """The mark says which LSN ended at which byte; headers have no checksum of their own."""
    if mark is None or mark.name != last.name or mark.id != str(header.id):
        return False
    at = bisect_left(bounds, mark.size)
    return at < len(bounds) and header.first_lsn + at - 1 != mark.last_lsn


def _judge_seal(disk: Disk, state: State, before: Found, next_lsn: int) -> None:
    header = before.header
    if isinstance(header, Flaw) or header.last_lsn == next_lsn - 1:
        return
    file = disk.open(before.name)
    try:
        bounds, flaw = read_entries(file, fmt.HEADER_SIZE, before.size)
    finally:
        file.close()
    stop_lsn = header.first_lsn + len(bounds) - 1
    if flaw is None and stop_lsn == next_lsn:
        state.seal_is_due = True
        return
    why = f"{flaw.why if flaw else 'it ends'}; the next segment begins at LSN {next_lsn}"
    lost = (stop_lsn, next_lsn - 1) if flaw and stop_lsn < next_lsn else (0, 0)
    state.damage.append(Damage(before.name, bounds[-1], *lost, why))


def recover(disk: Disk, new_header: Callable[[int], fmt.Header], first_lsn: int) -> State:
    """Make the directory whole again after a crash, and durable.  For the owner, under its lock."""
    mark = read_mark(disk)
    _look_behind_the_cache(disk, mark)
    state = _survey(disk, mark)
    if state.damage:
        return state
    if not state.found:
        disk.create(segment_name(1), fmt.encode_header(new_header(first_lsn)))
        return survey(disk)
    if state.seal_is_due:
        _finish_seal(disk, state)
    if state.torn is not None:
        _cut_tail(disk, state)
    last, header = state.found[-1], state.found[-1].header
    assert isinstance(header, fmt.Header)
    if header.last_lsn:  # sealed, and then the lights went out before a successor was made
        successor = segment_name(last.number + 1)
        disk.create(successor, fmt.encode_header(new_header(header.last_lsn + 1)))
        mended = [*state.mended, f"{successor}: made to follow the sealed {last.name}"]
        state = survey(disk)
        state.mended = mended
    return state


def _look_behind_the_cache(disk: Disk, mark: Mark | None) -> None:
    """Sync what a killed owner left unsynced; and if a sync of its failed, see what the disk has.

    What lies before the mark was durable in an earlier life, and need not be read again.
    """
    for name in [*segment_sizes(disk)][-2:]:
        file = disk.open(name, writable=True)
        try:
            file.sync(forget_from=mark.size if mark is not None and mark.name == name else 0)
        finally:
            file.close()


def _finish_seal(disk: Disk, state: State) -> None:
    before, last = state.found[-2:]
    assert isinstance(last.header, fmt.Header)
    last_lsn = last.header.first_lsn - 1
    state.mended.append(f"{before.name}: sealed at LSN {last_lsn}")
    file = disk.open(before.name, writable=True)
    try:
        file.write_at(fmt.LAST_LSN_OFFSET, fmt.encode_last_lsn(last_lsn), sync=True)
    finally:
        file.close()


def _cut_tail(disk: Disk, state: State) -> None:
    last, stop = state.found[-1], state.bounds[-1]
    file = disk.open(last.name, writable=True)
    try:
        rest = file.read_at(stop, last.size - stop)
        if rest.count(0) == len(rest):
            state.mended.append(f"{last.name}: {len(rest)} bytes of unwritten space removed")
        else:
            kept = keep_aside(disk, last.name, stop, rest)
            what = f"torn write of {len(rest)} bytes ({state.torn.why if state.torn else ''})"
            state.mended.append(f"{last.name}: {what} kept in {kept}")
        file.resize(stop)
        file.sync()
    finally:
        file.close()
