"""The second door: named objects that are created once, and what they promise.

1. `put_if_absent` creates a whole and durable object, or none.  If several callers create one
   name, one succeeds.  The others get FileExistsError, and can then read the object.
2. An object that `get` or `list` has shown stays until it is deleted.
3. `list` shows every object that was created before the call.
4. UnavailableError means that the store did not answer: whether a change was made is unknown.

Names are relative, with `/` between parts, in characters that every store accepts.
The page: docs/buckets.md
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

Buffer = bytes | bytearray | memoryview

_PART = r"(?!\.\.?(?:/|\Z))[A-Za-z0-9._=-]{1,200}"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
_NAME_MAX = 700  # S3 takes 1,024 bytes, of which the bucket's own prefix needs some


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object of a listing; `modified_ms` is by the clock of the store."""

    name: str
    size: int
    modified_ms: int


class Bucket(Protocol):
    """Objects by name.  Any number of threads and processes may use one bucket."""

    def get(self, name: str) -> bytes:
        """Return the whole object; FileNotFoundError if it is missing."""
        ...

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        """Return bytes start to stop, the latter not included; fewer where the object ends."""
        ...

    def put_if_absent(
        self, name: str, data: Buffer, *, metadata: Mapping[str, str] | None = None
    ) -> None:
        """Create an object, whole and durable on return.  FileExistsError if the name is taken.

        The caller may change `data` after this has returned or raised.  `metadata` is stored where
        the store supports it; nothing may rely on it.
        """
        ...

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        """Return the objects below `prefix` whose names are greater than `after`, sorted.

        `prefix` is whole parts (`wal` or `wal/`), or empty for all; `after` is a full name.
        """
        ...

    def delete(self, *names: str) -> None:
        """Remove objects durably; missing ones are ignored."""
        ...

    def copy(self, source: str, destination: str) -> None:
        """Copy `source` to `destination`, durably; an existing object is replaced as a whole."""
        ...


@runtime_checkable
class Sweepable(Protocol):
    """A bucket with temporary files beside the objects, which `list` never shows."""

    def sweep(self, before_ms: int) -> int:
        """Remove temporary files of dead processes from before that time; return how many."""
        ...


@runtime_checkable
class HasReserve(Protocol):
    """A bucket on a disk, with space that is kept for ways out of a full one."""

    def give_up_reserve(self) -> bool:
        """If the disk is full, free that space and return True."""
        ...

    def keep_reserve(self) -> None:
        """Keep space again, as much as the disk allows."""
        ...


@runtime_checkable
class Retirable(Protocol):
    """A bucket that remembers every name that was ever used, until `retire`."""

    def retire(self, prefix: str, boundary: str) -> None:
        """Forget names up to `boundary` (included) in directory `prefix`; they cannot be used
        again.
        """
        ...


@contextmanager
def room(bucket: Bucket) -> Iterator[None]:
    """Run a step that frees space, or opens a store, with the reserve of a bucket that has one."""
    if not isinstance(bucket, HasReserve):
        yield
        return
    is_full = bucket.give_up_reserve()
    try:
        yield
    finally:
        if is_full:
            bucket.keep_reserve()


def checked(name: str) -> str:
    """Return the name; ValueError if it is not valid."""
    if not _NAME.fullmatch(name) or len(name) > _NAME_MAX:
        raise ValueError(f"invalid object name {name[:100]!r}; see docs/buckets.md for valid names")
    return name


def checked_prefix(prefix: str) -> str:
    """Return a directory's name with its slash, or nothing for the whole bucket."""
    return f"{checked(prefix.removesuffix('/'))}/" if prefix else ""


def checked_range(start: int, stop: int) -> int:
    """Return how many bytes to ask for."""
    if not 0 <= start <= stop:
        raise ValueError(f"invalid range of bytes: start {start}, stop {stop}")
    return stop - start
