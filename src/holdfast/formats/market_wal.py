"""The write-ahead log of MarketStore's design: bytes to values and back.

The page: docs/formats/market_wal.md

wal     := status message*                                           integers are little-endian
status  := 2:i8 file_status:i8 replay_state:i8 owning_pid:i64
message := info | group | status
info    := 1:i8 tgid:i64 destination:i8 status:i8
group   := 0:i8 length:i64 tgid:i64 count:i64 set[count] md5[16]
set     := kind:i8 length:i16 path year:i16 intervals:i64 count:i32 width:i64
           index:i64[count] row[width][count]

A group's length counts from its tgid to its last set; its MD5 covers the length too.  A group is
committed by the info (destination 0, status 2) of its tgid, and in the year files by (1, 2).
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.formats.flaw import Flaw

Bytes = bytes | bytearray | memoryview
Ints = npt.NDArray[np.int64]

GROUP, INFO, STATUS = 0, 1, 2
WAL, PRIMARY = 0, 1  # destinations
PREPARING, INTENDED, COMPLETE, ABORTED = 0, 1, 2, 3
OPEN, CLOSED = 1, 2
NOT_REPLAYED, REPLAYED, REPLAYING = 1, 2, 3

# Kinds of sets: the design's two, and what it needs besides to be able to carry everything.
FIXED, VARIABLE = 0, 1
NEW_FIXED_FILE, NEW_VARIABLE_FILE = 2, 3  # rows: the columns, as encode_columns has them
REMOVED = 4  # width 0: these intervals are emptied; 8: ticks from..to of them, inclusive
PLACED = 5  # what a write-back puts where: index is an offset in the file; see the page
DECISION = 6  # first in a group: it waits for one; with a tgid: this one's is the row, a status

INFO_SIZE = STATUS_SIZE = 11
GROUP_SIZE_MIN = 1 + 8 + 16 + 16
PATH_SIZE_MAX, COUNT_MAX = 2**15 - 1, 2**31 - 1
_STATUS, _INFO = struct.Struct("<bbbq"), struct.Struct("<bqbb")
_LENGTH, _IDS = struct.Struct("<bq"), struct.Struct("<qq")
_PATH, _SHAPE = struct.Struct("<bh"), struct.Struct("<hqiq")
_PLACE, _COUNT = struct.Struct("<hq"), struct.Struct("<iq")


class Status(NamedTuple):
    file_status: int
    replay_state: int
    owner: int


class Info(NamedTuple):
    """The state of a group, in the log or in the year files."""

    offset: int
    tgid: int
    destination: int
    status: int


class Group(NamedTuple):
    """A complete group; `body` is from its tgid to its last set."""

    offset: int
    tgid: int
    body: Bytes

    @property
    def stop(self) -> int:
        return self.offset + 9 + len(self.body) + 16

    @property
    def first_kind(self) -> int | None:
        """Return the kind of the first set; None if there are no sets."""
        return self.body[16] if len(self.body) > 16 else None

    @property
    def digest(self) -> bytes:
        return hashlib.md5(self.body, usedforsecurity=False).digest()


class Write(NamedTuple):
    """The bytes of one write that brings a group, and the group as it is read back."""

    messages: bytes
    group: Group


class Gap(NamedTuple):
    """Invalid bytes with valid messages after them.  A tgid if they belong to a group."""

    offset: int
    stop: int
    tgid: int | None
    why: str


Message = Info | Group | Gap


@dataclass(frozen=True, slots=True)
class Scan:
    """Messages in order.  From `stop` on there is nothing, or the flaw."""

    messages: list[Message]
    stop: int
    flaw: Flaw | None


class WriteSet:
    """A part of a group: rows for one file.  The arrays are made when they are asked for."""

    __slots__ = ("at", "body", "count", "intervals", "kind", "path", "width", "year")

    def __init__(
        self,
        kind: int,
        path: str,
        year: int,
        intervals: int,
        count: int,
        width: int,
        body: Bytes,
        at: int,  # where in the body the first index is
    ) -> None:
        self.kind, self.path, self.year, self.intervals = kind, path, year, intervals
        self.count, self.width, self.body, self.at = count, width, body, at

    @property
    def index(self) -> Ints:
        return np.frombuffer(self.body, "<i8", self.count, self.at)

    @property
    def rows(self) -> npt.NDArray[np.uint8]:
        flat = np.frombuffer(self.body, np.uint8, self.count * self.width, self.at + 8 * self.count)
        return flat.reshape(self.count, self.width)


def encode_status(status: Status) -> bytes:
    return _STATUS.pack(STATUS, *status)


def decode_status(data: Bytes) -> Status | Flaw:
    if len(data) < STATUS_SIZE or data[0] != STATUS:
        found = bytes(data[:STATUS_SIZE]).hex()
        return Flaw(0, f"not a log: it begins with {found}, not with a status")
    return Status(*_STATUS.unpack_from(data)[1:])


def encode_info(tgid: int, destination: int, status: int) -> bytes:
    return _INFO.pack(INFO, tgid, destination, status)


def encode_group(tgid: int, sets: Bytes, count: int) -> bytes:
    covered = _LENGTH.pack(GROUP, 16 + len(sets)) + _IDS.pack(tgid, count) + sets
    return covered + hashlib.md5(memoryview(covered)[1:], usedforsecurity=False).digest()


def encode_write(tgid: int, sets: Bytes, count: int, status: int = COMPLETE) -> Write:
    """Encode the write that commits a group; with INTENDED, the one that prepares it."""
    group = encode_group(tgid, sets, count)
    info, decision = encode_info(tgid, WAL, PREPARING), encode_info(tgid, WAL, status)
    return Write(b"".join((info, group, decision)), Group(0, tgid, group[9:-16]))


def rewrite(group: Group, status: int = COMPLETE) -> bytes:
    """Encode the write that brings a group of another log to this one."""
    return encode_write(group.tgid, group.body[16:], _IDS.unpack_from(group.body)[1], status)[0]


def group_of(body: Bytes) -> Group:
    """Return the group that has this body."""
    return Group(0, _IDS.unpack_from(body)[0], body)


def encode_replaying(owner: int) -> tuple[int, bytes]:
    """Encode that a log is being replayed, and where: its first two bytes are not written.

    So if this write is torn, the status cannot read as closed and replayed.
    """
    return 2, _STATUS.pack(STATUS, OPEN, REPLAYING, owner)[2:]


def encode_place(kind: int, path: str, year: int, intervals: int) -> bytes:
    """Encode the head of a set, up to its count: the same for every set of a file."""
    name = path.encode("ascii")
    if len(name) > PATH_SIZE_MAX:
        raise ValueError(f"the path has {len(name)} bytes; at most {PATH_SIZE_MAX} fit")
    return _PATH.pack(kind, len(name)) + name + _PLACE.pack(year, intervals)


def encode_set(place: bytes, index: Sequence[int] | Ints, rows: Bytes, width: int) -> bytes:
    indexes = np.asarray(index, "<i8").tobytes()
    return b"".join((place, _COUNT.pack(len(index), width), indexes, rows))


def encode_decision(tgids: int | Sequence[int] = (), status: int = 0) -> bytes:
    """Encode the set that makes a group wait, or the one that decides on several groups."""
    place = encode_place(DECISION, "", 0, 0)
    if isinstance(tgids, int):
        tgids = (tgids,)
    return encode_set(place, tgids, bytes([status]) * len(tgids), 1 if tgids else 0)


def encode_sets(
    places: Sequence[bytes], bounds: Ints, index: Ints, rows: npt.NDArray[np.uint8]
) -> bytes:
    """Encode many sets at once: set i has rows bounds[i]:bounds[i + 1]."""
    count, width = rows.shape
    if len(places) == count:  # one row each, the rule for bars as they come
        fixed = np.empty(
            count, [("count", "<i4"), ("width", "<i8"), ("index", "<i8"), ("row", f"V{width}")]
        )
        fixed["count"], fixed["width"], fixed["index"] = 1, width, index
        fixed["row"] = np.ascontiguousarray(rows).view(f"V{width}")[:, 0]
        flat, size = fixed.tobytes(), fixed.itemsize
        parts = [b""] * (2 * count)
        parts[::2] = places
        parts[1::2] = [flat[at : at + size] for at in range(0, len(flat), size)]
        return b"".join(parts)
    indexes, data, cuts = index.astype("<i8").tobytes(), rows.tobytes(), bounds.tolist()
    parts = []
    for place, start, stop in zip(places, cuts, cuts[1:], strict=False):
        counted = _COUNT.pack(stop - start, width)
        parts += (place, counted, indexes[8 * start : 8 * stop], data[width * start : width * stop])
    return b"".join(parts)


def decode_sets(group: Group) -> list[WriteSet] | Flaw:
    """Decode the sets of a group.  Its MD5 is right, but its writer may be hostile."""
    body, at, size = group.body, 16, len(group.body)
    count = _IDS.unpack_from(body)[1]
    sets: list[WriteSet] = []
    try:
        for _ in range(count):
            kind, length = _PATH.unpack_from(body, at)
            path = str(body[at + 3 : at + 3 + max(length, 0)], "ascii")
            year, intervals, rows, width = _SHAPE.unpack_from(body, at + 3 + length)
            data = at + 25 + length
            if length < 0 or rows < 0 or width < 0 or rows * (8 + width) > size - data:
                return Flaw(group.offset + 9 + at, f"a set of {rows} rows of {width} bytes")
            sets.append(WriteSet(kind, path, year, intervals, rows, width, body, data))
            at = data + rows * (8 + width)
    except (struct.error, UnicodeDecodeError) as error:
        return Flaw(group.offset + 9 + at, f"invalid set: {error}")
    if at != size or count < 0:
        return Flaw(group.offset + 9 + at, f"{size - at} bytes after {count} sets")
    return sets


def encode_again(one: WriteSet) -> bytes:
    """Encode a set that was decoded."""
    place = encode_place(one.kind, one.path, one.year, one.intervals)
    return encode_set(place, one.index, one.rows.tobytes(), one.width)


def single_rows(sets: Sequence[WriteSet], width: int) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Return index and row of many sets of one group that have one row each."""
    at = np.array([one.at for one in sets])
    taken = np.frombuffer(sets[0].body, np.uint8)[at[:, None] + np.arange(8 + width)]
    return taken[:, :8].copy().view("<i8")[:, 0], taken[:, 8:]


def encode_columns(columns: Sequence[tuple[str, int]]) -> bytes:
    """Encode names and type codes, as both dialects have them."""
    parts = [bytes([len(columns)])]
    for name, code in columns:
        word = name.encode()
        parts.append(bytes([len(word)]) + word + bytes([code]))
    return b"".join(parts)


def decode_columns(data: Bytes, at: int = 0) -> tuple[tuple[tuple[str, int], ...], int]:
    """Decode the columns; return them and where they end.  ValueError if they do not end."""
    columns = []
    try:
        count, at = data[at], at + 1
        for _ in range(count):
            stop = at + 1 + data[at]
            columns.append((str(data[at + 1 : stop], "utf-8"), data[stop]))
            at = stop + 1
    except IndexError as error:
        raise ValueError("columns cut short") from error
    return tuple(columns), at


def scan(data: memoryview, start: int = STATUS_SIZE) -> Scan:
    """Read the messages from `start` on.  After an invalid one, look for valid ones beyond it."""
    messages: list[Message] = []
    at, size = start, len(data)
    announced: Iterator[int] | None = None
    while at < size:
        message = _message_at(data, at)
        if isinstance(message, Flaw):
            announced = _announced(data, at) if announced is None else announced
            behind = next((place for place in announced if place > at), None)
            recorded = _recorded(data, at, messages)
            if recorded is not None and (behind is None or recorded < behind):
                behind, announced = recorded, None
            if behind is None:
                return Scan(messages, at, message)
            messages.append(Gap(at, behind, None, message.why))
            at = behind
        else:
            if message is not None:
                messages.append(message)
            at = message.stop if isinstance(message, Group | Gap) else at + INFO_SIZE
    return Scan(messages, at, None)


def _recorded(data: memoryview, at: int, messages: list[Message]) -> int | None:
    """Return where, after an invalid group, a later write records a known group as done.

    Only another write has such an info, so the invalid group was synced before it.
    """
    last = messages[-1] if messages else None
    known = {message.tgid or 0 for message in messages[:-1]}
    if not isinstance(last, Info) or last[2:] != (WAL, PREPARING):
        return None
    if last.tgid <= max(known, default=0):
        return None
    # Two places name the group.  If neither does, these may be such infos, torn.
    decided = encode_info(last.tgid, WAL, COMPLETE)
    if data[at + 9 : at + 17] != decided[1:9] and bytes(data[at:]).find(decided) < 0:
        return None
    known.add(last.tgid)
    flat = np.frombuffer(data, np.uint8)[at:]
    count = len(flat) - INFO_SIZE + 1
    if count <= 0:
        return None
    likely = flat[:count] == INFO
    likely &= flat[9 : count + 9] == PRIMARY
    likely &= flat[10 : count + 10] == COMPLETE
    for place in np.flatnonzero(likely).tolist():
        if _LENGTH.unpack_from(data, at + place)[1] in known:
            return at + int(place)
    return None


def _message_at(data: memoryview, at: int) -> Message | Flaw | None:
    """Return the message there; None for a status, which counts only at the start."""
    kind, rest = data[at], len(data) - at
    if kind in (INFO, STATUS):
        if rest < INFO_SIZE:
            return Flaw(at, f"a message of {INFO_SIZE} bytes cut to {rest}")
        return Info(at, *_INFO.unpack_from(data, at)[1:]) if kind == INFO else None
    if kind != GROUP:
        return Flaw(at, f"invalid message: it begins with {kind}")
    if rest < GROUP_SIZE_MIN:
        return Flaw(at, f"a group cut to {rest} bytes")
    length = _LENGTH.unpack_from(data, at)[1]
    if not 16 <= length <= rest - 25:
        return Flaw(at, f"a group of {length} bytes, where {rest - 25} are left")
    stop = at + 9 + length
    (tgid,) = struct.unpack_from("<q", data, at + 9)
    if hashlib.md5(data[at + 1 : stop], usedforsecurity=False).digest() == data[stop : stop + 16]:
        return Group(at, tgid, data[at + 9 : stop])
    follower = _LENGTH.unpack_from(data, stop + 16) if rest >= length + 25 + INFO_SIZE else (0, 0)
    if follower == (INFO, tgid):  # its length is right, then
        return Gap(at, stop + 16, tgid, "a group whose checksum is wrong")
    return Flaw(at, "a group whose checksum is wrong")


def _announced(data: memoryview, at: int) -> Iterator[int]:
    """Yield the places after `at` where a valid group follows an info of the same tgid."""
    flat = np.frombuffer(data, np.uint8)[at:]
    count = len(flat) - INFO_SIZE - GROUP_SIZE_MIN
    if count <= 0:
        return
    likely = flat[1 : count + 1] == INFO
    for offset in (10, 11, 12):  # to the log, preparing, and then a group
        likely &= flat[offset : count + offset] == 0
    for offset in range(8):
        likely &= flat[offset + 2 : count + offset + 2] == flat[offset + 21 : count + offset + 21]
    budget = 4 * len(data)  # a hostile log may be full of likely groups
    for place in np.flatnonzero(likely).tolist():
        found = at + 1 + place
        length = _LENGTH.unpack_from(data, found + INFO_SIZE)[1]
        if 16 <= length <= len(data) - found - INFO_SIZE - 25:
            budget -= length
            if budget < 0:
                return
            if isinstance(_message_at(data, found + INFO_SIZE), Group):
                yield found
