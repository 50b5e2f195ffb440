"""Is a year file what its format says?  Everything in it is read; nothing is changed.

The format has no checksums: what is found is a header, an index, a slot or a payload that cannot
be, not a price that rotted.  What a write-back was at work on when the lights went out is found
too; whoever asks must know which intervals the logs will write again (`rewritten`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from holdfast.bars.catalog import find_header
from holdfast.bars.pending import Change
from holdfast.bars.wal import Damage
from holdfast.disk import Disk, File
from holdfast.formats import market_wal, year_file
from holdfast.formats.flaw import Flaw
from holdfast.formats.year_file import INDEX_FIELD, SLOT, Header, Schema

_CHUNK = 1 << 22  # bytes of records that are read at once
_NEW = (market_wal.NEW_FIXED_FILE, market_wal.NEW_VARIABLE_FILE)
Ints = npt.NDArray[np.int64]
WHOLE = -1  # in the place of an interval: the header, or the file as such


@dataclass(slots=True)
class YearCheck:
    """What reading one year file from end to end found."""

    path: str
    rows: int = 0
    size: int = 0
    schema: Schema | None = None
    flaws: dict[int, Damage] = field(default_factory=dict)  # by interval

    def add(self, interval: int, offset: int, why: str) -> None:
        self.flaws.setdefault(interval, Damage(self.path, offset, why))


def check_year_file(disk: Disk, path: str, known: Header | None = None) -> YearCheck:
    """Read one year file from end to end.  In a root it must also be what its path says."""
    found = YearCheck(path)
    file = disk.open(path)
    try:
        found.size = file.size()
        header = known or find_header(file, path)
        if isinstance(header, Flaw):
            found.add(WHOLE, header.offset, header.why)
        else:
            found.schema = header.schema
            _check_shape(found, header)
            check = _check_ticks if header.schema.is_variable else _check_bars
            check(file, header, found)
    finally:
        file.close()
    return found


def _check_shape(found: YearCheck, header: Header) -> None:
    if found.size < header.stop:
        found.add(WHOLE, found.size, f"cut to {found.size} bytes of at least {header.stop}")
    elif found.size > header.stop and not header.schema.is_variable:
        found.add(WHOLE, header.stop, f"{found.size - header.stop} bytes behind the last record")


def _records(file: File, header: Header) -> Iterator[tuple[Ints, npt.NDArray[np.void]]]:
    """Intervals, and their records or slots, in chunks; holes are not looked at."""
    schema, done = header.schema, 0
    size = schema.record_size
    for start, end in file.extents(year_file.HEADER_SIZE, header.stop):
        low = max(done, (start - year_file.HEADER_SIZE) // size)
        done = (end - 1 - year_file.HEADER_SIZE) // size + 1
        for first in range(low, done, _CHUNK // size):
            stop = min(done, first + _CHUNK // size)
            data = file.read_at(year_file.HEADER_SIZE + first * size, (stop - first) * size)
            records = np.frombuffer(data, schema.record, len(data) // size)
            yield np.arange(first + 1, first + 1 + len(records), dtype=np.int64), records


def _check_bars(file: File, header: Header, found: YearCheck) -> None:
    schema = header.schema
    if year_file.has_new_year(header):
        found.rows += any(file.read_at(schema.offset_of(0), schema.record_size))
    for intervals, records in _records(file, header):
        index = records[INDEX_FIELD]
        found.rows += int(np.count_nonzero(index))
        _find_strangers(found, header, intervals, index)


def _find_strangers(found: YearCheck, header: Header, intervals: Ints, index: Ints) -> None:
    for at in np.flatnonzero((index != 0) & (index != intervals)).tolist():
        why = f"the record of interval {intervals[at]} says it is that of {index[at]}"
        found.add(int(intervals[at]), header.schema.offset_of(int(intervals[at])), why)


def _check_ticks(file: File, header: Header, found: YearCheck) -> None:
    held: list[npt.NDArray[np.void]] = []
    for intervals, slots in _records(file, header):
        _find_strangers(found, header, intervals, slots["index"])
        own = slots[slots["index"] == intervals]
        for interval, offset, length in own.tolist():
            _check_payload(file, header, found, interval, offset, length)
        held.append(own[~np.isin(own["index"], list(found.flaws))])
    slots = np.concatenate([np.empty(0, SLOT), *held])
    slots = slots[np.argsort(slots["offset"], kind="stable")]
    stops = slots["offset"] + slots["length"]
    for at in np.flatnonzero(stops[:-1] > slots["offset"][1:]).tolist():
        one, other = slots["index"][at].item(), slots["index"][at + 1].item()
        why = f"the payloads of intervals {one} and {other} overlap"
        found.add(other, header.schema.offset_of(other), why)


def _check_payload(
    file: File, header: Header, found: YearCheck, interval: int, offset: int, length: int
) -> None:
    at, size = header.schema.offset_of(interval), header.schema.stored.itemsize
    if not (header.stop <= offset <= offset + length <= found.size and length > 0):
        found.add(interval, at, f"a slot that points to {length} bytes at {offset}")
        return
    rows = year_file.decode_payload(file.read_at(offset, length), size)
    if isinstance(rows, Flaw):
        found.add(interval, at, f"the payload of its slot: {rows.why}")
    else:
        found.rows += len(rows[0]) // size


def rewritten(changes: Iterable[Change]) -> dict[str, set[int]]:
    """Which intervals of which files these groups will write; WHOLE where they make the file."""
    covered: dict[str, set[int]] = {}
    for change in changes:
        for one in change.sets:
            intervals = covered.setdefault(one.path, set())
            if one.kind in _NEW:
                intervals.add(WHOLE)
            elif one.kind == market_wal.PLACED and one.year:
                slots = (one.index - year_file.HEADER_SIZE) // SLOT.itemsize + 1
                intervals.update(slots.tolist())
            elif one.kind != market_wal.PLACED:
                intervals.update(one.index.tolist())
    return covered
