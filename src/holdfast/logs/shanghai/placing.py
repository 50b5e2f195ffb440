"""Where each segment belongs: the LSNs that it holds, by more than one witness.

Headers have no checksum, and a file may have been replaced by a copy of another one.  So no number
is relied on alone.  The first LSN of a segment has these witnesses:

1. its header;
2. the last LSN in its header, less its entries;
3. the end of the segment before it;
4. the start of the segment after it, less its entries;
5. the mark: it has the first LSN of the first and of the last segment, and knows which LSN ended
   at which byte of the last one.

Where a header agrees with both of its neighbours, nothing else is read.  A segment that witnesses
cannot agree on has no place: its entries are not shown, and repair sets it aside.
"""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from uuid import UUID

from holdfast.disk import Disk
from holdfast.formats import shanghai as fmt
from holdfast.formats.mark import Mark
from holdfast.logs.log import Damage
from holdfast.logs.shanghai.directory import Found, segment_name, segment_number
from holdfast.logs.shanghai.view import read_entries

_CERTAIN = 9  # votes: more than any count of witnesses


@dataclass(slots=True)
class Place:
    """The LSNs start..stop-1 of a segment."""

    found: Found
    start: int
    stop: int
    entries: int  # that the file has, valid or not
    votes: int

    @property
    def header(self) -> fmt.Header:
        """The header as it should be; its last LSN as it is."""
        header = self.found.header
        if isinstance(header, fmt.Header):
            return replace(header, first_lsn=self.start)
        return fmt.Header(UUID(int=0), 0, self.start)

    @property
    def is_readable(self) -> bool:
        """Whether the header is valid and agrees: only then are its entries shown."""
        header = self.found.header
        return isinstance(header, fmt.Header) and header.first_lsn == self.start


@dataclass(frozen=True, slots=True)
class _Entries:
    """The entries of a segment."""

    count: int | None  # by the chain of their lengths; None if it does not lead to the end
    bounds: "array[int]"  # of those before the first that is not valid
    tail_crc: int  # the checksum of the last of these


def place_segments(disk: Disk, found: Sequence[Found], mark: Mark) -> "list[Place | None]":
    """Return the place of each segment; None for one that has none."""
    return _Placing(disk, found, mark).place()


class _Placing:
    def __init__(self, disk: Disk, found: Sequence[Found], mark: Mark) -> None:
        self._disk, self._found, self._mark = disk, found, mark
        self._places: list[Place | None] = [None] * len(found)
        self._entries: dict[int, _Entries] = {}

    @property
    def _knows_both_ends(self) -> bool:
        """Whether there is a mark, and not one of version 0.1.0."""
        return bool(self._mark.files and self._mark.first_index)

    def place(self) -> "list[Place | None]":
        count = len(self._found)
        for at in range(count):
            if self._agrees_with_neighbours(at):
                start, stop = self._found[at].fields.first_lsn, self._next_first(at)
                self._places[at] = Place(self._found[at], start, stop, stop - start, _CERTAIN)
        for at in (*range(count), *reversed(range(count)), *range(count)):
            if self._places[at] is None:
                self._places[at] = self._judge(at)
        self._drop_overlaps()
        for at in range(count - 1):
            one, two = self._places[at : at + 2]
            if one is not None and two is not None and self._is_adjacent(at + 1):
                one.stop = two.start
        return self._places

    # From headers alone

    def _agrees_with_neighbours(self, at: int) -> bool:
        one, mark = self._found[at], self._by_mark(at)
        if not isinstance(one.header, fmt.Header) or one.fields.first_lsn > self._next_first(at):
            return False
        if mark is not None and mark != one.fields.first_lsn:
            return False
        before = self._found[at - 1].fields if at and self._is_adjacent(at) else None
        is_begun = mark is not None or at == 0
        if before is not None:
            is_begun = before.last_lsn + 1 == one.fields.first_lsn
        is_last = at == len(self._found) - 1
        is_ended = is_last or (
            self._is_adjacent(at + 1) and one.fields.last_lsn + 1 == self._next_first(at)
        )
        return is_begun and is_ended

    def _next_first(self, at: int) -> int:
        """Return the first LSN of the next segment by its header; of the last segment, its own."""
        return self._found[min(at + 1, len(self._found) - 1)].fields.first_lsn

    def _is_adjacent(self, at: int) -> bool:
        """Return whether this segment is the successor of the one before it in the list."""
        return (
            0 < at < len(self._found) and self._found[at].number == self._found[at - 1].number + 1
        )

    def _by_mark(self, at: int) -> int | None:
        """Return the first LSN that the mark has for this segment."""
        one, mark = self._found[at], self._mark
        if mark.files and one.name == mark.last.name and mark.base_index:
            return mark.base_index
        if mark.files and one.name == mark.first.name and mark.first_index:
            return mark.first_index
        return None

    # By all witnesses

    def _judge(self, at: int) -> Place | None:
        one, read = self._found[at], self._read(at)
        count, bounds = read.count, read.bounds
        first, last = one.fields.first_lsn, one.fields.last_lsn
        own = last + 1 - count if last and count is not None else None
        before = self._places[at - 1] if self._is_adjacent(at) else None
        after = self._start_after(at)
        others = [
            before.stop if before is not None else None,
            after - count if after is not None and count is not None else None,
            self._by_mark(at) or self._after_mark(at),
            self._by_tail(at, read),
        ]
        votes = Counter(lsn for lsn in (first or None, own, *others) if lsn is not None and lsn > 0)
        agreed = [lsn for lsn, number in votes.items() if number > 1 and lsn in others]
        if first and own == first:
            start = first  # it contains what it says, wherever that belongs
        elif len(agreed) == 1:
            (start,) = agreed
        elif (
            first
            and not self._mark.first_index * self._mark.files
            and [*votes] == [first]
            and not any(others)
        ):
            start = first  # no witness contradicts it
        else:
            return None
        if first not in (0, start) and own != start and not self._is_marked(one):
            return None  # probably another file
        entries = len(bounds) - 1 if count is None else count
        return Place(one, start, start + entries, entries, votes[start])

    def _start_after(self, at: int) -> int | None:
        """Return where the next segment starts: by its place, or by its header alone."""
        if not self._is_adjacent(at + 1):
            return None
        place, after = self._places[at + 1], self._found[at + 1]
        if place is not None:
            return place.start
        return after.fields.first_lsn if isinstance(after.header, fmt.Header) else None

    def _read(self, at: int) -> "_Entries":
        if at not in self._entries:
            one = self._found[at]
            file = self._disk.open(one.name)
            try:
                data = file.read_at(0, one.size)
                bounds, _ = read_entries(file, fmt.HEADER_SIZE, one.size)
            finally:
                file.close()
            chain = fmt.scan(data, verify=False).bounds
            count = len(chain) - 1 if chain[-1] == len(data) else None
            at_crc = (bounds[-2] if len(bounds) > 1 else 0) + 4
            self._entries[at] = _Entries(count, bounds, int.from_bytes(data[at_crc : at_crc + 4]))
        return self._entries[at]

    def _after_mark(self, at: int) -> int | None:
        """Return the first LSN of a segment that was created when the mark was last moved."""
        mark = self._mark
        is_next = self._found[at].number == segment_number(mark.last.name) + 1
        return mark.last_index + 1 if is_next and self._knows_both_ends else None

    def _by_tail(self, at: int, read: "_Entries") -> int | None:
        """Return the first LSN by the last entry of the mark: where it ended, or its checksum."""
        mark, bounds = self._mark, read.bounds
        if not mark.files or self._found[at].name != mark.last.name or len(bounds) == 1:
            return None
        if mark.size in bounds[1:]:
            return mark.last_index + 1 - bounds.index(mark.size)
        # A repair that was interrupted may have removed entries before it.
        return mark.last_index + 2 - len(bounds) if read.tail_crc == mark.tail_crc else None

    def _is_marked(self, one: Found) -> bool:
        """Return whether the mark names this very file."""
        ids = {file.name: file.id for file in (self._mark.first, self._mark.last)}
        return bool(self._mark.files) and ids.get(one.name) == one.fields.id.bytes

    def _drop_overlaps(self) -> None:
        """Of two segments whose LSNs are not in order, keep the one with more witnesses."""
        while pair := self._overlap():
            votes = [place.votes for at in pair if (place := self._places[at]) is not None]
            for at, own, other in zip(pair, votes, reversed(votes), strict=True):
                if own <= other:
                    self._places[at] = None

    def _overlap(self) -> tuple[int, int] | None:
        placed = [(at, place) for at, place in enumerate(self._places) if place is not None]
        for (a, one), (b, two) in pairwise(placed):
            if one.start + one.entries > two.start:
                return a, b
        return None


def header_damage(
    found: Sequence[Found], places: "Sequence[Place | None]", mark: Mark
) -> list[Damage]:
    """Return the damage that names, headers and neighbours show."""
    damage = []
    for at, (one, place) in enumerate(zip(found, places, strict=True)):
        span = _span_of(at, places, mark)
        header = one.header
        if not isinstance(header, fmt.Header):
            damage.append(Damage(one.name, header.offset, *span, header.why))
        elif place is None:
            said = f"first LSN {header.first_lsn} and last LSN {header.last_lsn}"
            why = f"{said} contradict other segments or the mark"
            damage.append(Damage(one.name, 32, *span, why))
        elif header.first_lsn != place.start:
            why = f"first LSN is {header.first_lsn}, but {place.start} by other segments"
            damage.append(Damage(one.name, 32, *span, why))
        elif at < len(found) - 2 and header.last_lsn != place.stop - 1:
            why = f"last LSN {header.last_lsn}, but {found[at + 1].name} begins at {place.stop}"
            missing = place.start + place.entries
            span = (missing, span[1]) if missing < place.stop else span
            damage.append(Damage(one.name, fmt.LAST_LSN_OFFSET, *span, why))
    placed = [place for place in places if place is not None]
    for one_place, two in pairwise(placed):
        a, b = one_place.found, two.found
        name = segment_name(a.number + 1)
        is_missing = all(one.name != name for one in found)
        if is_missing and one_place.stop != two.start:
            why = f"missing: {a.name} is followed by {b.name}"
            damage.append(Damage(name, 0, one_place.stop, two.start - 1, why))
    return damage


def _span_of(at: int, places: "Sequence[Place | None]", mark: Mark) -> tuple[int, int]:
    """Return the LSNs of a segment; of one without a place, those that no other one has."""
    place = places[at]
    if place is not None:
        is_marked = mark.files and place.found.name == mark.last.name
        first, last = place.start, max(place.stop - 1, mark.last_index if is_marked else 0)
    else:
        before = [one.stop for one in places[:at] if one is not None]
        after = [one.start for one in places[at + 1 :] if one is not None]
        first = before[-1] if before else (mark.first_index if mark.files else 0)
        last = after[0] - 1 if after else (mark.last_index if mark.files else 0)
    return (first, last) if 0 < first <= last else (0, 0)
