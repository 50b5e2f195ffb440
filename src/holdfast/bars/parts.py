"""What a query takes out of one year file, and how committed groups lie over it.

All rows are held by columns.  A part is read first and checked later, when the overlay is known:
the overlay covers everything that a write-back may be changing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.bars.view import Payloads
from holdfast.disk import File
from holdfast.errors import CorruptError
from holdfast.formats import market_wal, year_file
from holdfast.formats.flaw import Flaw
from holdfast.formats.year_file import INDEX_FIELD, TICKS_FIELD, Header, Schema

_TAIL = 8192  # bytes that are read at least
_WINDOW = 1 << 22  # bytes that are read at once, at most

Ints = npt.NDArray[np.int64]
Column = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Frame:
    """Rows by columns, in order of time; `ticks` where an interval holds many."""

    index: Ints
    ticks: npt.NDArray[np.uint32] | None
    columns: list[Column]


@dataclass(frozen=True, slots=True)
class Part:
    """What a file held: rows by columns, or payloads by interval; `wrong` marks invalid ones."""

    index: Ints
    columns: list[Column]
    payloads: list[bytes]
    wrong: npt.NDArray[np.bool_] | None


def empty_part(schema: Schema, names: Sequence[str]) -> Part:
    columns: list[Column] = [np.empty(0, schema.row[name]) for name in names]
    return Part(np.empty(0, np.int64), columns, [], None)


def read_part(file: File, header: Header, first: int, last: int, names: Sequence[str]) -> Part:
    """Return the rows of intervals first..last; holes in the file are not read."""
    schema = header.schema
    begin, pieces, stop = max(first, 1), [], 0
    if first == 0 <= last and year_file.has_new_year(header):
        pieces.append(_new_year(file, schema))
    for start, end in file.extents(schema.offset_of(begin), schema.offset_of(last + 1)):
        low, stop = max(stop, _interval_at(start, schema)), _interval_at(end - 1, schema) + 1
        pieces += _pieces(file, schema, low, stop)
    return _joined_part(file, header, pieces, names)


def read_tail(
    file: File, header: Header, first: int, last: int, names: Sequence[str], count: int
) -> tuple[Part, int]:
    """Return at least the last `count` rows of these intervals, and their first interval."""
    schema, pieces, got = header.schema, [], 0
    begin, stop = max(first, 1), last + 1
    block = max(count, _TAIL // schema.record_size)
    while stop > begin and got < count:
        extent = file.last_extent(schema.offset_of(begin), schema.offset_of(stop))
        if extent is None:
            stop = begin
            break
        end = min(stop, _interval_at(extent[1] - 1, schema) + 1)
        stop = max(begin, end - block)
        found = _pieces(file, schema, stop, end)
        pieces += found[::-1]
        got += sum(len(piece[0]) for piece in found)
    if stop <= begin and first == 0 <= last and year_file.has_new_year(header):
        pieces.append(_new_year(file, schema))
        stop = 0
    return _joined_part(file, header, pieces[::-1], names), stop


def _interval_at(offset: int, schema: Schema) -> int:
    return (offset - year_file.HEADER_SIZE) // schema.record_size + 1


def _joined_part(file: File, header: Header, pieces: "list[Piece]", names: Sequence[str]) -> Part:
    schema = header.schema
    index = _joined([piece[0] for piece in pieces], np.dtype(np.int64))
    wrong = _joined([piece[2] for piece in pieces], np.dtype(bool))
    if schema.is_variable:
        slots = _joined([piece[1] for piece in pieces], year_file.SLOT)
        payloads = _payloads(file, header, slots, wrong)
        return Part(index, [], payloads, wrong if wrong.any() else None)
    columns = [
        _joined([piece[1][name] for piece in pieces], schema.row[name], copy=True) for name in names
    ]
    return Part(index, columns, [], wrong if wrong.any() else None)


Piece = tuple[Ints, npt.NDArray[np.void], npt.NDArray[np.bool_]]


def _pieces(file: File, schema: Schema, first: int, stop: int) -> list[Piece]:
    """Return intervals first..stop-1 as copies: the owner writes to year files in place."""
    step = _WINDOW // schema.record_size
    return [_records(file, schema, low, min(stop, low + step)) for low in range(first, stop, step)]


def _records(file: File, schema: Schema, first: int, stop: int) -> Piece:
    """Return the records or slots that are not empty: intervals, bytes, and which are invalid."""
    data = file.read_at(schema.offset_of(first), (stop - first) * schema.record_size)
    count = len(data) // schema.record_size
    records = np.frombuffer(data, schema.record, count)
    field = "index" if schema.is_variable else INDEX_FIELD
    stored = np.ascontiguousarray(records[field])
    index = np.arange(first, first + count, dtype=np.int64)
    if (stored == index).all():
        return index, records, np.zeros(count, bool)
    held = np.flatnonzero(stored)
    index, records = index[held], records[held]
    return index, records, stored[held] != index


def _new_year(file: File, schema: Schema) -> Piece:
    data = file.read_at(schema.offset_of(0), schema.record_size)
    records = np.frombuffer(data, schema.record, len(data) // schema.record_size)
    if not any(data):
        records = records[:0]
    return np.zeros(len(records), np.int64), records, np.zeros(len(records), bool)


def _payloads(
    file: File, header: Header, slots: npt.NDArray[np.void], wrong: npt.NDArray[np.bool_]
) -> list[bytes]:
    found = []
    size = file.size() if len(slots) else 0
    for at, (_, offset, length) in enumerate(slots.tolist()):
        if header.stop <= offset <= offset + length <= size and length > 0:
            found.append(file.read_at(offset, length))
        else:
            found.append(b"")
            wrong[at] = True
    return found


def _joined(pieces: Sequence[npt.NDArray[Any]], dtype: np.dtype[Any], *, copy: bool = False) -> Any:
    if len(pieces) == 1:
        return np.array(pieces[0]) if copy else pieces[0]
    return np.concatenate(pieces) if pieces else np.empty(0, dtype)


def overlaid(
    part: Part,
    schema: Schema,
    names: Sequence[str],
    sets: Sequence[market_wal.WriteSet],
    path: str,
) -> Frame:
    """Lay groups over the rows of a file of bars; the latest row of an interval counts."""
    if not sets:
        _refuse_wrong(part, slice(None), path)
        return Frame(part.index, None, part.columns)
    index = np.concatenate([part.index, *(one.index for one in sets)])
    gone = [one.kind == market_wal.REMOVED for one in sets]
    sizes = [len(part.index), *(one.count for one in sets)]
    removed = np.repeat([False, *gone], sizes)
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    keep = order[np.append(ordered[1:] != ordered[:-1], True)[: len(ordered)]]
    keep = keep[~removed[keep]]
    _refuse_wrong(part, keep[keep < len(part.index)], path)
    rows = [stored_rows(one, schema) for one in sets]
    columns = [
        np.concatenate([column, *(row[name] for row in rows)])[keep]
        for name, column in zip(names, part.columns, strict=True)
    ]
    return Frame(index[keep], None, columns)


def stored_rows(one: market_wal.WriteSet, schema: Schema) -> npt.NDArray[np.void]:
    if one.kind == market_wal.REMOVED:
        return np.zeros(one.count, schema.stored)
    rows: npt.NDArray[np.void] = one.rows.reshape(-1).view(schema.stored)
    return rows


@dataclass(frozen=True, slots=True)
class Ticks:
    """Rows of a file where intervals hold many."""

    index: Ints
    rows: npt.NDArray[np.void]  # with their ticks


def overlaid_ticks(
    part: Part,
    schema: Schema,
    sets: Sequence[market_wal.WriteSet],
    planned: Payloads,
    path: str,
) -> Ticks:
    """Lay groups over the rows of a file of ticks; intervals in a plan are taken from the plan."""
    payloads = dict(zip(part.index.tolist(), part.payloads, strict=True))
    wrong = set(part.index[part.wrong].tolist()) if part.wrong is not None else set()
    for index in wrong - planned.keys():
        raise CorruptError(path, schema.offset_of(index), "a slot points outside of the file")
    payloads.update(planned)
    pieces = [Ticks(np.empty(0, np.int64), np.empty(0, schema.stored))]
    for index in sorted(payloads):
        if payloads[index]:
            rows = decoded(payloads[index], schema, path, index)
            pieces.append(Ticks(np.full(len(rows), index, np.int64), rows))
    found = _concatenated(pieces)
    for one in sets:
        if one.kind == market_wal.REMOVED:
            found = _without(found, one)
        else:
            found = _concatenated([found, Ticks(one.index, stored_rows(one, schema))])
    if sets:
        order = np.lexsort((found.rows[TICKS_FIELD], found.index))  # stable: in the order of commit
        found = Ticks(found.index[order], found.rows[order])
    return found


def decoded(payload: bytes, schema: Schema, path: str, index: int) -> npt.NDArray[np.void]:
    rows = year_file.decode_payload(payload, schema.stored.itemsize)
    if isinstance(rows, Flaw):
        raise CorruptError(path, schema.offset_of(index), f"the payload of its slot: {rows.why}")
    return np.frombuffer(rows[0], schema.stored)


def _concatenated(pieces: Sequence[Ticks]) -> Ticks:
    return Ticks(
        np.concatenate([piece.index for piece in pieces]),
        np.concatenate([piece.rows for piece in pieces]),
    )


def _without(found: Ticks, one: market_wal.WriteSet) -> Ticks:
    order = np.argsort(one.index)
    spans = one.rows.reshape(-1).view("<u4").reshape(-1, 2)[order]
    at = np.searchsorted(one.index[order], found.index)
    at[at == len(order)] = 0
    ticks = found.rows[TICKS_FIELD]
    gone = one.index[order][at] == found.index
    gone &= (spans[at, 0] <= ticks) & (ticks <= spans[at, 1])
    return Ticks(found.index[~gone], found.rows[~gone])


def taken_out(found: Ticks, other: Ticks) -> Ticks | None:
    """Return the ticks without these, the last of equal ones; None if one is missing."""
    whole = _concatenated([found, other])
    width = whole.rows.dtype.itemsize
    data = np.empty((len(whole.index), 8 + width), np.uint8)
    data[:, :8] = whole.index.astype("<i8").view(np.uint8).reshape(-1, 8)
    data[:, 8:] = np.ascontiguousarray(whole.rows).view(np.uint8).reshape(-1, width)
    _, codes = np.unique(data.view(f"V{8 + width}")[:, 0], return_inverse=True)
    own, count = codes[: len(found.index)], len(found.index)
    spare = np.bincount(codes[count:], minlength=int(codes.max(initial=0)) + 1)
    order = np.argsort(own, kind="stable")
    begins = np.flatnonzero(np.append(True, np.diff(own[order]) != 0)[:count])
    sizes = np.diff(np.append(begins, count))
    after = np.empty(count, np.int64)  # so many equal ones follow
    after[order] = np.repeat(begins + sizes - 1, sizes) - np.arange(count)
    keep = after >= spare[own]
    if count - int(keep.sum()) != len(other.index):
        return None
    return Ticks(found.index[keep], found.rows[keep])


def _refuse_wrong(part: Part, shown: Ints | slice, path: str) -> None:
    if part.wrong is not None and part.wrong[shown].any():
        index = int(part.index[shown][part.wrong[shown]][0])
        raise CorruptError(
            path, 0, f"the record of interval {index} has the number of another interval"
        )
