"""Recovery of a Shanghai directory: judge what a crash left, and repair only that.

Invariant: every segment but the last was complete and synced before its successor was made, and
the last LSN in its header follows from the successor's first.  So a crash leaves at most

1. a torn or unwritten end of the last segment, after all that was acknowledged: it is cut off,
   and the cut bytes are kept in a .cut file;
2. a seal that is missing or torn on the last segment but one: it is written again.

Everything else is damage, and is reported, not changed; so is all that is missing or unsound below
the mark (holdfast.logs.shanghai.marks).  What recovery exposes it has synced first,
and read from the disk and not from a cache that a failed sync may have left lying.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.cuts import keep_aside
from holdfast.disk import Disk, File
from holdfast.errors import DiskFullError
from holdfast.formats import shanghai as fmt
from holdfast.formats.flaw import Flaw
from holdfast.formats.mark import Mark
from holdfast.logs.log import Damage
from holdfast.logs.mark import Recalled, recall_mark, was_lowered
from holdfast.logs.shanghai.directory import (
    Found,
    find_segments,
    segment_name,
    segment_sizes,
)
from holdfast.logs.shanghai.marks import (
    changed_tail,
    missing_files,
    missing_tail,
    other_files,
    recall,
)
from holdfast.logs.shanghai.placing import Place, header_damage, place_segments
from holdfast.logs.shanghai.view import read_entries


@dataclass(slots=True)
class State:
    """What the directory holds, what is damaged, and what recovery did."""

    found: list[Found]
    places: "list[Place | None]"  # of each of them
    bounds: "array[int]"  # of the entries of the last segment that has a place
    damage: list[Damage]
    recalled: Recalled
    torn: Damage | None = None
    skipped: int | None = None  # which of them is bad, where the mark vouches for those after it
    seal_is_due: bool = False  # on the last segment but one, whose entries are all there
    recovered: list[str] = field(default_factory=list)
    full: DiskFullError | None = None  # why recovery could not be finished

    @property
    def mark(self) -> Mark:
        """What the log is held to: nothing, if there is no mark."""
        return self.recalled.mark or Mark("shanghai")

    @property
    def unsynced(self) -> str | None:
        return self.tail.found.name if self.tail and len(self.bounds) > 1 else None

    @property
    def tail(self) -> Place | None:
        """The last segment that has a place."""
        return next((place for place in reversed(self.places) if place is not None), None)

    @property
    def names(self) -> list[str]:
        return [found.name for found in self.found]

    def all_damage(self) -> list[Damage]:
        return self.damage + ([self.torn] if self.torn else [])


def survey(disk: Disk) -> State:
    """Look at a directory, and change nothing."""
    while True:
        recalled = recall(disk)  # first: what is read later can only have more
        state = _survey(disk, recalled)
        if not state.damage or not was_lowered(disk, recalled.stored):
            return state  # else the owner may have removed what seemed to be missing


def _survey(disk: Disk, recalled: Recalled) -> State:
    mark = recalled.mark or Mark("shanghai")
    found = find_segments(disk, mark)
    places = place_segments(disk, found, mark)
    damage = header_damage(found, places, mark)
    state = State(found, places, array("q"), damage, recalled)
    damage += missing_files(mark, found, min((p.start for p in places if p), default=None))
    if state.tail is not None:
        _survey_end(disk, state, state.tail)
    damage += recalled.damage or (() if damage else other_files(mark, found))
    return state


def _survey_end(disk: Disk, state: State, tail: Place) -> None:
    last, header, mark = tail.found, tail.header, state.mark
    file = disk.open(last.name)
    try:
        state.bounds, flaw = read_entries(file, fmt.HEADER_SIZE, last.size)
        if flaw is not None and flaw.why == fmt.BAD_CHECKSUM:
            _skip_bad_entry(state, file, last, header, flaw)
        changed = changed_tail(mark, file, last, header, state.bounds)
    finally:
        file.close()
    tail.stop = tail.start + len(state.bounds) - 1
    if not any(damage.file == last.name for damage in state.damage):
        _judge_tail(state, last, header, flaw, changed)
    at = state.found.index(last)
    if at and state.found[at - 1].number == last.number - 1:
        _judge_seal(disk, state, state.places[at - 1], tail.start)


def _skip_bad_entry(state: State, file: File, last: Found, header: fmt.Header, flaw: Flaw) -> None:
    """Find the entries after a bad one, if the mark confirms their LSNs.

    The length of a bad entry may be wrong too.  But if it leads to an entry that ends at the mark
    with the LSN of the mark, then no other one was skipped.
    """
    mark, bounds = state.mark, state.bounds
    if not mark.files or mark.last.name != last.name:
        return
    start = flaw.offset + fmt.entry_size(file.read_at(flaw.offset, fmt.ENTRY_HEADER_SIZE))
    after = bounds + read_entries(file, start, last.size)[0]
    at = mark.last_index + 1 - header.first_lsn
    if len(bounds) <= at < len(after) and after[at] == mark.size:
        state.bounds, state.skipped = after, len(bounds) - 1
        lsn = header.first_lsn + state.skipped
        state.damage.append(Damage(last.name, flaw.offset, lsn, lsn, flaw.why))


def _judge_tail(
    state: State, last: Found, header: fmt.Header, flaw: Flaw | None, changed: Damage | None
) -> None:
    stop_lsn = header.first_lsn + len(state.bounds) - 1
    if changed is not None:
        state.damage.append(changed)
    elif missing := missing_tail(state.mark, last, header, state.bounds, flaw):
        state.damage.append(missing)
    elif header.last_lsn not in (0, stop_lsn - 1):
        why = f"last LSN is {header.last_lsn}, but the last entry is {stop_lsn - 1}"
        state.damage.append(Damage(last.name, fmt.LAST_LSN_OFFSET, 0, 0, why))
    elif flaw is not None:
        state.torn = Damage(last.name, state.bounds[-1], 0, 0, flaw.why, torn=True)


def _judge_seal(disk: Disk, state: State, before: Place | None, next_lsn: int) -> None:
    if before is None or not before.is_readable or before.header.last_lsn == next_lsn - 1:
        return
    file = disk.open(before.found.name)
    try:
        bounds, flaw = read_entries(file, fmt.HEADER_SIZE, before.found.size)
    finally:
        file.close()
    stop_lsn = before.start + len(bounds) - 1
    if flaw is None and stop_lsn == next_lsn:
        state.seal_is_due = True
        return
    why = f"{flaw.why if flaw else 'it ends'}; the next segment begins at LSN {next_lsn}"
    lost = (stop_lsn, next_lsn - 1) if stop_lsn < next_lsn else (0, 0)
    state.damage.append(Damage(before.found.name, bounds[-1], *lost, why))


def recover(disk: Disk, new_header: Callable[[int], fmt.Header], first_lsn: int) -> State:
    """Recover a directory after a crash, durably.  For the owner, under its lock.

    If what recovery must keep does not fit on the disk, nothing is cut.
    """
    recalled = recall(disk, recall_mark)
    _look_behind_the_cache(disk, recalled.mark)
    state = _survey(disk, recalled)
    if state.damage:
        return state
    try:
        return _recover(disk, state, new_header, first_lsn)
    except DiskFullError as full:
        if not state.found:
            raise
        recovered = state.recovered
        state = _survey(disk, recalled)
        state.recovered, state.full = recovered, full
        return state


def _recover(
    disk: Disk, state: State, new_header: Callable[[int], fmt.Header], first_lsn: int
) -> State:
    recalled = state.recalled
    if not state.found:
        first_lsn = first_lsn if recalled.mark is None else recalled.mark.first_index
        disk.create(segment_name(1), fmt.encode_header(new_header(first_lsn)))
        return _survey(disk, recalled)
    if state.torn is not None:
        _cut_tail(disk, state)
    if state.seal_is_due:
        _finish_seal(disk, state)
    last, header = state.found[-1], state.found[-1].header
    assert isinstance(header, fmt.Header)
    if header.last_lsn:  # sealed, and then a crash came before a successor was created
        successor = segment_name(last.number + 1)
        disk.create(successor, fmt.encode_header(new_header(header.last_lsn + 1)))
        recovered = [*state.recovered, f"{successor}: created after the sealed {last.name}"]
        state = _survey(disk, recalled)
        state.recovered = recovered
    return state


def _look_behind_the_cache(disk: Disk, mark: Mark | None) -> None:
    """Sync what a killed owner left unsynced; and if a sync of its failed, see what the disk has.

    Bytes before the mark were durable for a previous owner, and need not be read again; but not
    the header of the last segment but one: it was sealed after the mark.
    """
    names = [*segment_sizes(disk)][-2:]
    for name in names:
        is_marked = mark is not None and mark.last.name == name == names[-1]
        file = disk.open(name, writable=True)
        try:
            file.sync(forget_from=mark.size if mark is not None and is_marked else 0)
        finally:
            file.close()


def _finish_seal(disk: Disk, state: State) -> None:
    before, last = state.found[-2:]
    assert isinstance(last.header, fmt.Header)
    last_lsn = last.header.first_lsn - 1
    state.recovered.append(f"{before.name}: sealed at LSN {last_lsn}")
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
            state.recovered.append(f"{last.name}: {len(rest)} bytes of unwritten space removed")
        else:
            kept = keep_aside(disk, last.name, stop, rest)
            what = f"torn write of {len(rest)} bytes ({state.torn.why if state.torn else ''})"
            state.recovered.append(f"{last.name}: {what} kept in {kept}")
        file.resize(stop)
        file.sync()
    finally:
        file.close()
