"""raft-wal segments: bytes to values and back.  The page: docs/formats/raft_wal.md

segment := [header batch*] zero*                                 integers are little-endian
header  := 0x58eb6b0d:u32 reserved[3] version:u8 base_index:u64 id:u64 codec:u64
batch   := entry* [index] commit
entry   := 1:u8 reserved[3] length:u32 payload[length] zero[-length mod 8]
index   := 2:u8 reserved[3] length:u32 (offset:u32)* zero[-length mod 8]
commit  := 3:u8 reserved[3] crc32c:u32

A commit's checksum covers all bytes since the commit before it, and in the first batch the header
too.  A segment whose last batch has an index is sealed and takes no more.
"""

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import google_crc32c
import numpy as np
import numpy.typing as npt

from holdfast.formats.checksums import CRC32C, mismatches
from holdfast.formats.flaw import Flaw

MAGIC = 0x58EB6B0D  # and, in the same eight bytes, no reserved flags and version 0
HEADER_SIZE, FRAME_HEADER_SIZE, COMMIT_SIZE = 32, 8, 8
ENTRY, INDEX, COMMIT = 1, 2, 3
RAFT_CODEC = 1  # payloads are holdfast.formats.raft_entry's
CUSTOM_CODEC_MIN = 65_536
OPAQUE_CODEC = 0x686F6C64  # Holdfast's: plain payloads, any bytes
ENTRY_SIZE_MAX = 64 * 2**20
SEGMENT_SIZE_MAX = 2**31 - 1  # of a segment's limit; the original creates no larger file
OFFSET_MAX = 2**32 - 1  # what an index can name
BAD_CHECKSUM = "checksum mismatch"

Bytes = bytes | bytearray | memoryview
Offsets = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.uint8]
Values = npt.NDArray[np.uint32]

_HEADER = struct.Struct("<QQQQ")
_FRAME = struct.Struct("<II")  # type and reserved bytes together
_WINDOW_SIZE = 1 << 20
_LARGE = 4096
_FEW = 16
_SHORT = 128  # words that a loop walks quicker than numpy
_DETOURS_MAX = 512  # in one look at a window; a payload may be full of likely headers
_COMMITS_MAX = 256  # held to the last one, which may take long for a payload full of them
_ONE, _LOW_WORD = np.uint32(1), np.uint64(2**32 - 1)


@dataclass(frozen=True, slots=True)
class Header:
    base_index: int
    id: int
    codec: int


@dataclass(frozen=True, slots=True)
class Batch:
    """One write: its bytes, where in the file its entries are, and its index if it has one."""

    data: bytes
    offsets: "array[int]"
    index_start: int  # of the first offset in the index frame; 0 if this batch does not seal


@dataclass(frozen=True, slots=True)
class Scan:
    """Entry i is the frame at starts[i]; batch k is bytes begins[k]:commits[k] and its commit.

    counts[k] entries are in batches 0..k.  `stop` is the end of the last batch: after it the bytes
    end, or are unwritten, or have the flaw.
    """

    starts: Offsets
    lengths: Offsets
    begins: Offsets
    commits: Offsets
    counts: Offsets
    index_start: int  # of the first offset in the index frame; 0 if there is none
    stop: int
    flaw: Flaw | None


def encode_header(header: Header) -> bytes:
    return _HEADER.pack(MAGIC, header.base_index, header.id, header.codec)


def decode_header(data: Bytes) -> Header | Flaw:
    if len(data) < HEADER_SIZE:
        return Flaw(0, f"header of {HEADER_SIZE} bytes cut to {len(data)}")
    magic, base_index, id, codec = _HEADER.unpack_from(data)
    if magic != MAGIC:
        return Flaw(0, f"invalid segment header: {bytes(data[:8]).hex()}")
    return Header(base_index, id, codec)


def index_frame_size(count: int) -> int:
    return FRAME_HEADER_SIZE + (4 * count + 7) // 8 * 8


def encode_batch(
    payloads: Sequence[Bytes],
    *,
    offset: int,
    header: bytes = b"",
    earlier: Sequence[int] = (),
    size_limit: int | None,
    lengths: list[int] | None = None,
) -> Batch:
    """Encode one batch, to be written at `offset`, with `header` if it is the segment's first.

    The batch has the index, and so seals the segment, if entries and index together would pass
    `size_limit`; with None in any case.  `earlier` are the offsets of the entries before it.
    `lengths` are those of the payloads, if they are known already.
    """
    lengths = list(map(len, payloads)) if lengths is None else lengths
    frames, offsets = _encode_frames(payloads, lengths, offset + len(header))
    if len(frames) > ENTRY_SIZE_MAX and max(lengths) > ENTRY_SIZE_MAX:
        raise ValueError(f"a payload has {max(lengths)} bytes; at most {ENTRY_SIZE_MAX} fit")
    stop, count = offset + len(header) + len(frames), len(earlier) + len(lengths)
    seals = size_limit is None or stop + index_frame_size(count) > size_limit
    index = _encode_index(earlier, offsets) if seals else b""
    if stop + len(index) + COMMIT_SIZE > OFFSET_MAX:
        raise ValueError(f"a segment of {stop} bytes is too large: at most {OFFSET_MAX}")
    covered = b"".join((header, frames, index)) if header or index else frames
    data = covered + _FRAME.pack(COMMIT, google_crc32c.value(covered))
    return Batch(data, offsets, stop + FRAME_HEADER_SIZE if seals else 0)


def _encode_frames(
    payloads: Sequence[Bytes], lengths: list[int], at: int
) -> "tuple[bytes, array[int]]":
    """Return the frames, and where each is if the first is at `at`.

    One join if all have one length, one formatting if they differ.  A single frame runs few lines:
    after a long wait all code and data are out of the processor's caches, and each line costs.
    """
    if not lengths:
        return b"", array("q")
    length = lengths[0]
    if len(lengths) == 1:
        frame = _FRAME.pack(ENTRY, length) + payloads[0]
        return frame + bytes(-length % 8) if length % 8 else frame, array("q", (at,))
    if lengths.count(length) == len(lengths):
        header, pad = _FRAME.pack(ENTRY, length), bytes(-length % 8)
        parts = list(payloads)
        parts[0] = header + parts[0]
        parts[-1] = bytes(parts[-1]) + pad
        size = (length + 15) & -8
        places = np.arange(at, at + size * len(lengths), size, dtype=np.int64)
        return (pad + header).join(parts), array("q", places.tobytes())
    frames = b"".join(map(_pattern, lengths)) % tuple(payloads)
    sizes = (np.array(lengths, np.int64) + 15) & -8
    return frames, array("q", (np.cumsum(sizes) - sizes + at).tobytes())


@lru_cache(4096)
def _pattern(length: int) -> bytes:
    header = _FRAME.pack(ENTRY, length).replace(b"%", b"%%")
    return header + b"%b" + bytes(-length % 8)


def _encode_index(earlier: Sequence[int], offsets: "array[int]") -> bytes:
    named = np.concatenate([np.asarray(each, np.int64) for each in (earlier, offsets)])
    named = named.astype("<u4")
    length = 4 * len(named)
    return _FRAME.pack(INDEX, length) + named.tobytes() + bytes(-length % 8)


def frame_length(data: Bytes, offset: int) -> int:
    """Return the length of the payload of the frame at `offset`, which must be there."""
    return int(_FRAME.unpack_from(data, offset)[1])


def frame_lengths(data: memoryview, places: Offsets) -> Offsets:
    """Return the lengths of the payloads of many frames."""
    return _heads(data, places)[1].astype(np.int64)


def scan(data: memoryview, base: int = 0, *, verify: bool = True) -> Scan:
    """Find all batches by following the frames, up to the end or the first flaw.

    `data` is the file from byte `base` on, which is 0 or after a commit frame.  Without `verify`
    checksums are not compared.
    """
    begin = HEADER_SIZE if base == 0 else 0
    places, kinds, values, flaw = _walk(data, begin)
    commits = places[kinds == COMMIT]
    is_entry = kinds == ENTRY
    starts = places[is_entry]
    begins = np.append(0, commits[:-1] + COMMIT_SIZE)[: len(commits)]
    counts = np.searchsorted(starts, commits)
    index_start, wrong = _judge_index(data, places, kinds, values, base)
    if wrong is not None:
        keep = int(np.searchsorted(commits, wrong.offset))
        commits, flaw = commits[:keep], wrong
    if verify and (bad := bad_slices(data, begins[: len(commits)], commits)):
        commits, flaw = commits[: bad[0]], Flaw(0, BAD_CHECKSUM)
    stop = int(commits[-1]) + COMMIT_SIZE if len(commits) else 0
    if flaw is None and len(places) and places[-1] >= stop:
        flaw = Flaw(0, "a batch without its commit")
    count = int(counts[len(commits) - 1]) if len(commits) else 0
    return Scan(
        starts[:count] + base,
        values[is_entry][:count].astype(np.int64),
        begins[: len(commits)] + base,
        commits + base,
        counts[: len(commits)],
        index_start if base < index_start <= stop + base else 0,
        stop + base,
        None if flaw is None else Flaw(stop + base, flaw.why),
    )


def scan_sealed(data: memoryview, index_start: int, *, strict: bool = True) -> Scan | Flaw:
    """Find all batches of a sealed segment by its index; checksums are not compared.

    Unless `strict`, a frame may be damaged: its batch will not match its checksum, others will.
    """
    at = index_start - FRAME_HEADER_SIZE
    if at < HEADER_SIZE or at % 8 or index_start > len(data):
        return Flaw(max(at, 0), "an index frame cannot be here")
    kind, length = _FRAME.unpack_from(data, at)
    commit = at + index_frame_size(length // 4)
    if kind & 255 != INDEX or length % 4 or commit + COMMIT_SIZE > len(data):
        return Flaw(at, "no index frame at the place that the meta store names")
    starts = np.frombuffer(data, "<u4", length // 4, index_start).astype(np.int64)
    nexts = np.append(starts[1:], at)
    if not len(starts) or starts[0] != HEADER_SIZE or (nexts - starts < 8).any():
        return Flaw(index_start, "the index does not fit the segment")
    kinds, values = _heads(data, starts)
    lengths = values.astype(np.int64)
    gaps = nexts - starts - FRAME_HEADER_SIZE - ((lengths + 7) & -8)
    is_broken = (kinds != ENTRY) | ((gaps != 0) & (gaps != COMMIT_SIZE))
    if is_broken.any():
        broken = np.flatnonzero(is_broken)
        if strict:
            return Flaw(int(starts[broken[0]]), "the index and the frames contradict each other")
        ends_batch = _heads(data, nexts[broken] - COMMIT_SIZE)[0] == COMMIT
        gaps[broken] = np.where(ends_batch, COMMIT_SIZE, 0)
    inner = np.flatnonzero(gaps == COMMIT_SIZE)
    commits = np.append(nexts[inner] - COMMIT_SIZE, commit)
    counts = np.append(inner + 1, len(starts))
    if strict and (_heads(data, commits)[0] != COMMIT).any():
        return Flaw(commit, "a batch without its commit")
    begins = np.append(0, commits[:-1] + COMMIT_SIZE)
    stop = commit + COMMIT_SIZE
    return Scan(starts, lengths, begins, commits, counts, index_start, stop, None)


def bad_slices(data: memoryview, begins: Offsets, commits: Offsets) -> list[int]:
    """Return which of the batches between these places of `data` do not match their checksums."""
    if not len(commits):
        return []
    if len(commits) < _FEW or commits[-1] - begins[0] > _LARGE * len(commits):
        # A call for each is cheap enough.
        pairs = enumerate(zip(begins.tolist(), commits.tolist(), strict=True))
        return [i for i, (begin, commit) in pairs if not batch_holds(data, begin, commit)]
    return mismatches(data, begins, commits, _heads(data, commits)[1].astype(np.uint32), CRC32C)


def batch_holds(data: memoryview, begin: int, commit: int) -> bool:
    """Return whether the bytes from `begin` to `commit` match the commit frame there."""
    kind, crc = _FRAME.unpack_from(data, commit)
    return bool(kind & 255 == COMMIT and CRC32C.of(data[begin:commit]) == crc)


def is_followed_by_batch(rest: bytes, begin: int) -> bool:
    """Return whether a valid batch comes after the bad one that starts at `begin`.

    Then the bad batch is not torn: it was synced before the other was written, which begins after
    a commit frame, or where the frames break off.  Before that place a payload may be full of
    batches, which prove nothing.
    """
    data = memoryview(rest + bytes(-len(rest) % 8))
    words = np.frombuffer(data, "<u8")
    used = np.flatnonzero(words)
    last = 8 * int(used[-1]) if len(used) else 0
    places, kinds, values, _ = _walk(data[:last], 0 if begin else HEADER_SIZE)
    broken = 0
    if len(places):
        broken = _after(int(places[-1]), int(kinds[-1]), int(values[-1]))
    commits = 8 * np.flatnonzero(words & _LOW_WORD == COMMIT)
    spans = list(pairwise(commits[commits >= broken].tolist()))
    if last in commits:
        spans += [(at, last) for at in (broken, *commits[commits < last][-_COMMITS_MAX:].tolist())]
    starts = ((at + COMMIT_SIZE, commit) for at, commit in spans)
    return any(at < commit and batch_holds(data, at, commit) for at, commit in starts)


def _heads(data: memoryview, places: Offsets) -> tuple[Kinds, Values]:
    """Return types and values of the frames at these places."""
    words = np.frombuffer(data[: len(data) // 8 * 8], "<u4").reshape(-1, 2)[places // 8]
    return (words[:, 0] & 255).astype(np.uint8), words[:, 1]


def _judge_index(
    data: memoryview, places: Offsets, kinds: Kinds, values: Values, base: int
) -> tuple[int, Flaw | None]:
    """Return where the index begins, and its flaw: it must be last, and name all entries."""
    found = np.flatnonzero(kinds == INDEX)
    if not len(found):
        return 0, None
    i = int(found[0])
    at, length = int(places[i]), int(values[i])
    starts = places[:i][kinds[:i] == ENTRY] + base
    named = np.frombuffer(data, "<u4", length // 4, at + FRAME_HEADER_SIZE).astype(np.int64)
    earlier = len(named) - len(starts)  # entries before `base`
    if length % 4 or earlier < 0 or (base == 0 and earlier) or (named[earlier:] != starts).any():
        return 0, Flaw(at, "an index that does not name the entries before it")
    if len(kinds) > i + 1 and kinds[i + 1] != COMMIT:
        return 0, Flaw(at, "an index in the middle of a batch")
    if len(kinds) > i + 2:
        return at + FRAME_HEADER_SIZE + base, Flaw(int(places[i + 2]), "frames after the index")
    return at + FRAME_HEADER_SIZE + base, None


def _walk(data: memoryview, at: int) -> tuple[Offsets, Kinds, Values, Flaw | None]:
    """Follow the frames from `at` on, a window at a time.

    All words of a window that look like frame headers are found at once.  Usually each frame ends
    where the next begins; where one does not, the words inside of it were payload.
    """
    words = np.frombuffer(data[: len(data) // 8 * 8], "<u4").reshape(-1, 2)
    pieces: list[Offsets] = [np.zeros(0, np.int64)]
    heads: list[Values] = [words[:0]]  # read here, while the window is still in the CPU's cache
    flaw = None
    while at // 8 < len(words):
        window = words[at // 8 : (at + _WINDOW_SIZE) // 8]
        places, reached = _chain(window, at)
        if not len(places):
            kind, value = map(int, words[at // 8])
            if kind or value:
                flaw = Flaw(at, f"a frame of type {kind:#x}" if kind else "a frame of no type")
            break
        pieces.append(places)
        heads.append(window[(places - at) // 8])
        if reached > len(data):
            flaw = Flaw(int(places[-1]), "a frame cut by the end of the file")
            pieces[-1], heads[-1] = pieces[-1][:-1], heads[-1][:-1]
            break
        at = reached
    found, head = np.concatenate(pieces), np.concatenate(heads)
    return found, (head[:, 0] & 255).astype(np.uint8), head[:, 1], flaw


def _chain(window: Values, at: int) -> tuple[Offsets, int]:
    """Return the frames of a walk through `window`, which begins at `at`, and where the walk ends.

    No frames if there is none at `at`.
    """
    if len(window) < _SHORT:
        found, reached = _plain_walk(window)
        return found + at, reached + at
    likely = np.flatnonzero(window[:, 0] - _ONE < 3)
    if not len(likely) or likely[0] != 0:
        return likely[:0], at
    heads, places = window[likely], likely * 8
    sizes = (heads[:, 1].astype(np.int64) + 7) & -8
    sizes[heads[:, 0] == COMMIT] = 0
    after = places + sizes + FRAME_HEADER_SIZE
    breaks = np.flatnonzero(after[:-1] != places[1:])
    if not len(breaks):
        return places + at, int(after[-1]) + at
    if len(breaks) > _DETOURS_MAX:
        found, reached = _plain_walk(window)
        return found + at, reached + at
    runs: list[Offsets] = []
    first = reached = 0
    while first < len(places) and places[first] == reached:
        next_break = int(np.searchsorted(breaks, first))
        last = int(breaks[next_break]) if next_break < len(breaks) else len(places) - 1
        runs.append(places[first : last + 1])
        reached = int(after[last])
        first = int(np.searchsorted(places, reached))
    return np.concatenate(runs) + at, reached + at


def _plain_walk(window: Values) -> tuple[Offsets, int]:
    """Do the same one step at a time: faster where payloads are full of likely headers."""
    places, at, kinds, values = [], 0, window[:, 0].tolist(), window[:, 1].tolist()
    while at < len(kinds) and 1 <= kinds[at] <= 3:
        places.append(at)
        at += 1 if kinds[at] == COMMIT else 1 + (values[at] + 7) // 8
    return np.array(places, np.int64) * 8, at * 8


def _after(at: int, kind: int, value: int) -> int:
    return at + FRAME_HEADER_SIZE + (0 if kind == COMMIT else (value + 7) // 8 * 8)


NOTHING = scan(memoryview(b""))
