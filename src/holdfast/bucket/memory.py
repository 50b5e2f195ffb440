"""A bucket in memory, for tests and experiments; it ends with the process."""

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping

from holdfast.bucket.bucket import (
    Buffer,
    ObjectInfo,
    checked,
    checked_prefix,
    checked_range,
)
from holdfast.runtime import now_ms


class MemoryBucket:
    """See Bucket."""

    def __init__(self, *, clock: Callable[[], int] = now_ms) -> None:
        self._clock = clock
        self._mutex = threading.Lock()
        self._objects: dict[str, tuple[bytes, int]] = {}
        self._names: list[str] = []  # the same, in order

    def __repr__(self) -> str:
        return f"MemoryBucket({len(self._names)} objects)"

    def get(self, name: str) -> bytes:
        try:
            return self._objects[checked(name)][0]
        except KeyError:
            raise FileNotFoundError(f"no object {name}") from None

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        checked_range(start, stop)
        return self.get(name)[start:stop]

    def put_if_absent(
        self, name: str, data: Buffer, *, metadata: Mapping[str, str] | None = None
    ) -> None:
        kept = bytes(data)
        with self._mutex:
            if checked(name) in self._objects:
                raise FileExistsError(f"object {name} exists")
            self._put(name, kept)

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        directory = checked_prefix(prefix)
        with self._mutex:
            start = max(bisect_left(self._names, directory), bisect_right(self._names, after))
            stop = bisect_left(self._names, directory + "\U0010ffff") if directory else None
            return [
                ObjectInfo(name, len(self._objects[name][0]), self._objects[name][1])
                for name in self._names[start:stop]
            ]

    def delete(self, *names: str) -> None:
        with self._mutex:
            for name in names:
                if self._objects.pop(checked(name), None) is not None:
                    del self._names[bisect_left(self._names, name)]

    def copy(self, source: str, destination: str) -> None:
        with self._mutex:
            self._put(checked(destination), self.get(source))

    def _put(self, name: str, data: bytes) -> None:
        if name not in self._objects:
            insort(self._names, name)
        self._objects[name] = data, self._clock()
