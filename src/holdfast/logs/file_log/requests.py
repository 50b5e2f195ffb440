"""Request ids: they name the client's request, so that a repeated request is recognised.

    id := seconds:u32 host[3] process:u16 number[3]        big-endian, but for the host's bytes

The remembered ids are those in the log's files that are recent enough.
"""

import hashlib
from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from holdfast.formats.rlog_entry import NO_REQUEST, REQUEST_ID_SIZE
from holdfast.logs.file_log.view import Segment
from holdfast.logs.log import SegmentInfo
from holdfast.logs.retention import Trim
from holdfast.runtime import Numbers, Runtime

TTL_MS = 8 * 3_600_000

_NUMBERS = 1 << 24


class RequestIds:
    """New ids.  They count from a random number on, modulo 2^24."""

    def __init__(self, runtime: Runtime) -> None:
        host = hashlib.md5(runtime.hostname().encode(), usedforsecurity=False).digest()[:3]
        self._who = host + (runtime.process_id() & 0xFFFF).to_bytes(2, "big")
        self._runtime, self._numbers = runtime, Numbers(runtime.new_id().int % _NUMBERS)

    def take(self, count: int) -> list[bytes]:
        """Return `count` new ids."""
        prefix = (self._runtime.now_ms() // 1000 & 0xFFFFFFFF).to_bytes(4, "big") + self._who
        first = self._numbers.take(count)
        return [
            prefix + (number % _NUMBERS).to_bytes(3, "big")
            for number in range(first, first + count)
        ]


class RequestCache:
    """The entry of each request.  It is loaded from the log at first use."""

    def __init__(self, ttl_ms: int | None, size_max: int | None, runtime: Runtime) -> None:
        if ttl_ms is size_max is None:
            raise ValueError("request_ttl_ms and requests_max are both None; set one limit")
        self._ttl_ms, self._size_max, self._runtime = ttl_ms, size_max, runtime
        self._known: dict[bytes, int] | None = None  # oldest first

    def load(self, segments: Sequence[Segment]) -> None:
        """Load the ids of a log's entries, newest first.

        It ends where the original ends: at an id that is too old, if more ids were too old than
        its file has slots.  Entries without an id do not count.
        """
        stretches: list[dict[bytes, int]] = []
        count = expired = 0
        for part in reversed(segments):
            if not part.count:
                continue
            ids = part.headers(part.base, part.base + part.count).request_ids
            part.unload()  # a log may have more files than a process may open
            named, fresh = ids.any(axis=1), self._fresh(ids)
            is_old = named & ~fresh
            old = expired + np.cumsum(is_old[::-1])[::-1]  # from the newest on
            ends = np.flatnonzero(is_old & (old > part.head.header.capacity))
            begin = int(ends[-1]) + 1 if len(ends) else 0
            rows = begin + np.flatnonzero((named & fresh)[begin:])
            text = np.ascontiguousarray(ids[rows]).tobytes()
            cuts = range(0, len(text), REQUEST_ID_SIZE)
            keys = [text[at : at + REQUEST_ID_SIZE] for at in cuts]
            stretches.append(dict(zip(keys, (rows + part.base).tolist(), strict=True)))
            count, expired = count + len(rows), int(old[0])
            if len(ends) or (self._size_max is not None and count >= self._size_max):
                break
        known: dict[bytes, int] = {}
        for stretch in reversed(stretches):
            known |= stretch
        self._known = known
        self._trim()

    @property
    def is_loaded(self) -> bool:
        return self._known is not None

    def find(self, request_id: bytes) -> int | None:
        """Return the index of the entry of this request, if it is remembered."""
        assert self._known is not None, "load it first"
        index = self._known.get(request_id)
        if index is None or not self._is_fresh(request_id):
            return None
        return index

    def add(self, request_ids: Iterable[bytes], first: int) -> None:
        if self._known is not None:
            for index, request_id in enumerate(request_ids, first):
                if request_id != NO_REQUEST:
                    self._known[request_id] = index
            self._trim()

    def forget(self) -> None:
        """Load again at the next use: entries were removed."""
        self._known = None

    def oldest_index(self) -> int | None:
        """Return the first entry whose request is remembered: files before it may be removed."""
        assert self._known is not None, "load it first"
        self._trim()
        fresh = (index for request_id, index in self._known.items() if self._is_fresh(request_id))
        return min(fresh, default=None)

    def _trim(self) -> None:
        known = self._known
        assert known is not None
        if self._size_max is not None and len(known) > self._size_max:
            for request_id in list(islice(known, len(known) - self._size_max)):
                del known[request_id]
        while known and not self._is_fresh(oldest := next(iter(known))):
            del known[oldest]

    def _is_fresh(self, request_id: bytes) -> bool:
        if self._ttl_ms is None:
            return True
        return int.from_bytes(request_id[:4], "big") * 1000 >= self._runtime.now_ms() - self._ttl_ms

    def _fresh(self, ids: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        if self._ttl_ms is None:
            return np.ones(len(ids), np.bool_)
        seconds = np.ascontiguousarray(ids[:, :4]).view(">u4").reshape(-1).astype(np.int64)
        fresh: npt.NDArray[np.bool_] = seconds * 1000 >= self._runtime.now_ms() - self._ttl_ms
        return fresh


def keep_needed(plan: Trim, first_index: int, oldest: int | None) -> Trim:
    """Stop a trim at the first file that is still needed.

    A file with entries after the snapshot is: without it the log cannot be opened.  So is a file
    with the `oldest` remembered request, or a later one.
    """
    removed: list[SegmentInfo] = []
    stopped_by = plan.stopped_by
    for segment in plan.removed:
        if segment.last_index >= first_index:
            stopped_by = f"the snapshot, of entry {first_index - 1}, does not cover {segment.name}"
            break
        if oldest is not None and segment.last_index >= oldest:
            stopped_by = f"{segment.name} has requests that are still remembered"
            break
        removed.append(segment)
    return Trim(tuple(removed), sum(s.size for s in removed), first_index, stopped_by)
