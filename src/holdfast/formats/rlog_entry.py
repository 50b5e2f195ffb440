"""Entries of a FileLog, bytes to values and back.  The page: docs/formats/rlog.md

entry := request_id[12] type:u8 term[7] data               the term is little-endian

An entry has neither a size nor a checksum: the slots of its file say where it ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.formats.flaw import Flaw

REQUEST_ID_SIZE = 12
TYPE_OFFSET = 12
ENTRY_HEADER_SIZE = 20
STATE, CONFIG, CHECKPOINT = 0, 1, 2
TYPE_NAMES = ("state", "config", "checkpoint")
NO_REQUEST = bytes(REQUEST_ID_SIZE)
CHECKPOINT_DATA = b"\xc0"
TERM_MAX = 2**53 - 1  # what the original can count to

Bytes = bytes | bytearray | memoryview
Offsets = npt.NDArray[np.int64]
_TERM_SIZE = 7


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One entry, decoded."""

    term: int
    data: Bytes = b""
    type: int = STATE
    request_id: bytes = NO_REQUEST


@dataclass(frozen=True, slots=True)
class EntryHeaders:
    """The headers of many entries, a row for each."""

    request_ids: npt.NDArray[np.uint8]  # twelve columns
    types: npt.NDArray[np.uint8]
    terms: Offsets


def encode_header(request_id: bytes, type: int, term: int) -> bytes:
    if len(request_id) != REQUEST_ID_SIZE:
        raise ValueError(f"a request id of {len(request_id)} bytes; expected {REQUEST_ID_SIZE}")
    return request_id + encode_type_and_term(type, term)


def encode_type_and_term(type: int, term: int) -> bytes:
    if not STATE <= type <= CHECKPOINT:
        raise ValueError(f"entry type {type}; expected 0, 1 or 2")
    if not 0 <= term <= TERM_MAX:
        raise ValueError(f"term {term}; expected 0 to {TERM_MAX}")
    return bytes((type,)) + term.to_bytes(_TERM_SIZE, "little")


def encode_entries(entries: Sequence[FileEntry]) -> tuple[bytes, Offsets]:
    """Encode entries without gaps; return the bytes, and where each entry ends."""
    headers = [encode_header(e.request_id, e.type, e.term) for e in entries]
    return join_entries(headers, [entry.data for entry in entries])


def join_entries(headers: Sequence[bytes], datas: Sequence[Bytes]) -> tuple[bytes, Offsets]:
    pieces: list[Bytes] = [b""] * (2 * len(datas))
    pieces[::2], pieces[1::2] = headers, datas
    lengths = np.fromiter(map(len, datas), np.int64, len(datas))
    return b"".join(pieces), np.cumsum(lengths + ENTRY_HEADER_SIZE)


def decode_entry(entry: bytes) -> FileEntry | Flaw:
    if len(entry) < ENTRY_HEADER_SIZE:
        return Flaw(0, f"an entry of {len(entry)} bytes; expected at least {ENTRY_HEADER_SIZE}")
    type = entry[TYPE_OFFSET]
    if type > CHECKPOINT:
        return Flaw(TYPE_OFFSET, f"entry type {type}; expected 0, 1 or 2")
    term = int.from_bytes(entry[TYPE_OFFSET + 1 : ENTRY_HEADER_SIZE], "little")
    data, request_id = entry[ENTRY_HEADER_SIZE:], entry[:REQUEST_ID_SIZE]
    if not any(entry[:ENTRY_HEADER_SIZE]):
        return Flaw(0, "a header of zeros")
    return FileEntry(term, data, type, request_id)


def decode_headers(data: memoryview, starts: Offsets) -> EntryHeaders:
    """Decode the headers at these offsets; each must lie inside `data`."""
    rows = np.zeros((0, ENTRY_HEADER_SIZE), np.uint8)
    if len(starts):
        every = np.frombuffer(data, np.uint8)
        windows = np.lib.stride_tricks.sliding_window_view(every, ENTRY_HEADER_SIZE)
        rows = windows[starts]
    terms = np.zeros((len(rows), 8), np.uint8)
    terms[:, :_TERM_SIZE] = rows[:, TYPE_OFFSET + 1 :]
    return EntryHeaders(
        rows[:, :REQUEST_ID_SIZE], rows[:, TYPE_OFFSET], terms.view("<i8").reshape(-1)
    )


def bad_entries(data: memoryview, bounds: Offsets) -> npt.NDArray[np.bool_]:
    """Return which entries between `bounds` are not valid: too short, or with a bad header."""
    bad: npt.NDArray[np.bool_] = np.diff(bounds) < ENTRY_HEADER_SIZE
    if not bad.any():
        return _bad_headers(data, bounds[:-1])
    fit = np.flatnonzero(~bad)
    bad[fit] = _bad_headers(data, bounds[:-1][fit])
    return bad


def _bad_headers(data: memoryview, starts: Offsets) -> npt.NDArray[np.bool_]:
    """Return which headers are not valid: an unknown type, too large a term, or all zeros."""
    if not len(starts):
        return np.zeros(0, np.bool_)
    words = np.ndarray(len(data) - 7, "<u8", data, strides=(1,))
    words = words[starts + TYPE_OFFSET]  # the type below the term
    bad: npt.NDArray[np.bool_] = ((words & 0xFF) > CHECKPOINT) | (words >> 8 > TERM_MAX)
    zeros = np.flatnonzero(words == 0)
    bad[zeros] = ~decode_headers(data, starts[zeros]).request_ids.any(axis=1)
    return bad
