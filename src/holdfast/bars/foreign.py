"""Translate logs of MarketStore's own program into groups of the design.

That program applies a group right after it has logged it, and does not record how far it got.  Bars
can be written again.  Rows that were added to an interval cannot: the rows that its payload holds
already, in order of commit, count as applied.
"""

from collections import Counter
from collections.abc import Iterable
from contextlib import closing

import numpy as np

from holdfast.bars import parts
from holdfast.bars.catalog import Catalog, find_header, leads_astray, split_path
from holdfast.bars.view import Change
from holdfast.bars.wal import Content, Damage
from holdfast.disk import Disk
from holdfast.errors import CorruptError
from holdfast.formats import market_wal as fmt
from holdfast.formats.bar_time import intervals_per_day, parse_timeframe
from holdfast.formats.flaw import Flaw
from holdfast.formats.marketstore_wal import IntervalSet, decode_intervals
from holdfast.formats.year_file import Header, Schema, schema_of

Intervals = list[IntervalSet]


def translate(content: Content, disk: Disk, catalog: Catalog) -> None:
    """Replace the groups that are not yet in the year files by groups of the design."""
    content.changes.sort(key=lambda change: change.tgid)  # in this order the program replays
    groups: list[tuple[Change, Intervals]] = []
    for change in content.changes:
        intervals = decode_intervals(change.group)
        if isinstance(intervals, Flaw):
            content.damage.append(Damage(content.name, intervals.offset, intervals.why))
        elif bad := [one.path for one in intervals if split_path(one.path) is None]:
            why = f"{bad[0]!r} is not the path of a year file"
            content.damage.append(Damage(content.name, change.group.offset, why))
        else:
            groups.append((change, intervals))
    try:
        applied = _applied(groups, disk)
        content.changes = [
            _translated(change, intervals, applied, catalog)
            for change, intervals in groups
            if not change.is_done
        ]
    except (CorruptError, ValueError, OSError) as error:
        if isinstance(error, OSError) and not leads_astray(error):
            raise
        content.changes = []
        content.damage.append(Damage(content.name, 0, str(error)))


def _applied(groups: list[tuple[Change, Intervals]], disk: Disk) -> dict[tuple[str, int], int]:
    """Return, for each interval of many rows, how many of its sets the year file holds already."""
    steps: dict[tuple[str, int], list[tuple[bool, list[bytes]]]] = {}
    for change, intervals in groups:
        for one in intervals:
            if one.kind == fmt.VARIABLE:
                size = one.row_size
                rows = [one.data[at : at + size] for at in range(0, len(one.data), size)]
                steps.setdefault((one.path, one.index), []).append((change.is_done, rows))
    found = {}
    for (path, index), sets in steps.items():
        held = Counter(_rows_in(disk, path, index))
        done = sum(is_done for is_done, _ in sets)
        count, so_far = 0, Counter(row for _, rows in sets[:done] for row in rows)
        for number, (_, rows) in enumerate(sets[done:], 1):
            so_far.update(rows)
            if so_far <= held:
                count = number
        found[path, index] = count
    return found


def _rows_in(disk: Disk, path: str, index: int) -> Iterable[bytes]:
    try:
        with closing(disk.open(path)) as file:
            header = find_header(file, path)
            if isinstance(header, Flaw) or not header.schema.is_variable:
                return []
            part = parts.read_part(file, header, index, index, ())
    except FileNotFoundError:
        return []
    if part.wrong is not None or not part.payloads:
        return []
    rows = parts.decoded(part.payloads[0], header.schema, path, index)
    size = header.schema.stored.itemsize
    flat = rows.tobytes()
    return [flat[at : at + size] for at in range(0, len(flat), size)]


def _translated(
    change: Change,
    intervals: Intervals,
    applied: dict[tuple[str, int], int],
    catalog: Catalog,
) -> Change:
    todo: dict[str, Intervals] = {}
    for one in intervals:
        place = one.path, one.index
        if one.kind == fmt.VARIABLE:
            applied[place] -= 1
            if applied[place] >= 0:
                continue
        todo.setdefault(one.path, []).append(one)
    sets: list[bytes] = []
    for path, found in todo.items():
        sets += _sets_for(path, found, catalog)
    return Change(fmt.encode_write(change.tgid, b"".join(sets), len(sets)).group, change.log)


def _sets_for(path: str, intervals: Intervals, catalog: Catalog) -> list[bytes]:
    named = split_path(path)
    assert named is not None
    timeframe_ns = parse_timeframe(named.key.split("/")[1])
    per_day = intervals_per_day(timeframe_ns)
    kind = intervals[0].kind
    own = schema_of(intervals[0].columns, kind == fmt.VARIABLE)
    schema = catalog.schema(named.key) or own
    sets = []
    if named.year not in catalog.years(named.key):
        columns = fmt.encode_columns(schema.columns)
        place = fmt.encode_place(
            fmt.NEW_VARIABLE_FILE if schema.is_variable else fmt.NEW_FIXED_FILE,
            path,
            named.year,
            per_day,
        )
        sets.append(fmt.encode_set(place, [0], columns, len(columns)))
    header = Header(named.year, timeframe_ns, schema)
    index, rows = [], []
    for one in intervals:
        data = _rows_of(one, own, header)
        rows.append(data)
        index += [one.index] * (len(data) // schema.stored.itemsize)
    place = fmt.encode_place(kind, path, named.year, per_day)
    sets.append(fmt.encode_set(place, index, b"".join(rows), schema.stored.itemsize))
    return sets


def _rows_of(one: IntervalSet, own: Schema, header: Header) -> bytes:
    """Return the rows of an interval in the order of the file's columns."""
    schema = header.schema
    if one.columns != own.columns or (one.kind == fmt.VARIABLE) != schema.is_variable:
        raise ValueError(f"{one.path}: one group has two lists of columns")
    if one.offset != schema.offset_of(one.index) or len(one.data) % own.stored.itemsize:
        raise ValueError(f"{one.path}: interval {one.index} at byte {one.offset}")
    if own is schema:
        return one.data
    if sorted(own.columns) != sorted(schema.columns):
        raise ValueError(f"{one.path}: the columns differ from those of the file")
    given = np.frombuffer(one.data, own.stored)
    rows = np.empty(len(given), schema.stored)
    for name in schema.stored.names or ():
        rows[name] = given[name]
    return rows.tobytes()
