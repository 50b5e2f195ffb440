"""Request ids: who asked for an entry, so that who asks twice is recognised.

    id := seconds:u32 host[3] process:u16 number[3]        big-endian, but for the host's bytes

Which ids are remembered follows from the log itself: those in its files that are young enough.
"""

import hashlib
from collections.abc import Callable, Iterable
from itertools import islice

import numpy as np
import numpy.typing as npt

from holdfast import runtime
from holdfast.formats.rlog_entry import NO_REQUEST, REQUEST_ID_SIZE

TTL_MS = 8 * 3_600_000

_NUMBERS = 1 << 24


class RequestIds:
    """New ids.  `number` is where to begin counting; it goes round."""

    def __init__(
        self, now_ms: Callable[[], int], hostname: str, process_id: int, number: int
    ) -> None:
        host = hashlib.md5(hostname.encode(), usedforsecurity=False).digest()[:3]
        self._who = host + (process_id & 0xFFFF).to_bytes(2, "big")
        self._now_ms, self._numbers = now_ms, runtime.Numbers(number)

    def take(self, count: int) -> list[bytes]:
        """As many ids, that nobody else gets."""
        prefix = (self._now_ms() // 1000 & 0xFFFFFFFF).to_bytes(4, "big") + self._who
        first = self._numbers.take(count)
        return [
            prefix + (number % _NUMBERS).to_bytes(3, "big")
            for number in range(first, first + count)
        ]


class RequestCache:
    """Which entry each request became.  Filled from the log when first asked."""

    def __init__(self, ttl_ms: int | None, size_max: int | None, now_ms: Callable[[], int]) -> None:
        if ttl_ms is size_max is None:
            raise ValueError("remember requests for a while, or so many of them; not for ever all")
        self._ttl_ms, self._size_max, self._now_ms = ttl_ms, size_max, now_ms
        self._known: dict[bytes, int] | None = None  # oldest first

    def load(self, newest_first: Iterable[tuple[int, npt.NDArray[np.uint8]]]) -> None:
        """Take in the ids of the log's entries: the first index and ids of each stretch."""
        stretches: list[dict[bytes, int]] = []
        count = 0
        for first, ids in newest_first:
            fresh = self._fresh(ids)
            rows = np.flatnonzero(fresh & ids.any(axis=1))
            text = np.ascontiguousarray(ids[rows]).tobytes()
            cuts = range(0, len(text), REQUEST_ID_SIZE)
            keys = [text[at : at + REQUEST_ID_SIZE] for at in cuts]
            stretches.append(dict(zip(keys, (rows + first).tolist(), strict=True)))
            count += len(rows)
            if not fresh.any() or (self._size_max is not None and count >= self._size_max):
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
        """The index of the entry that this request became, if it is young enough to be known."""
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
        """Entries have gone: look at the log again when next asked."""
        self._known = None

    def oldest_index(self) -> int | None:
        """The first entry whose request is still known: what is before may be pruned."""
        assert self._known is not None, "load it first"
        self._trim()
        return min(self._known.values(), default=None)

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
        return int.from_bytes(request_id[:4], "big") * 1000 >= self._now_ms() - self._ttl_ms

    def _fresh(self, ids: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        if self._ttl_ms is None:
            return np.ones(len(ids), np.bool_)
        seconds = np.ascontiguousarray(ids[:, :4]).view(">u4").reshape(-1).astype(np.int64)
        fresh: npt.NDArray[np.bool_] = seconds * 1000 >= self._now_ms() - self._ttl_ms
        return fresh
