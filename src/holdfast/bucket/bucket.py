"""The second door to the world: named objects that are made once, and what they promise.

1. `put_if_absent` makes an object that is whole and durable, or none.  Of many who create one
   name, one wins; the others get FileExistsError, and by then the winner's object can be read.
2. What `get` or `list` has once shown stays, until somebody deletes it.
3. `list` shows all that was created before it was called.
4. UnavailableError means that the store did not answer: whether a change was made is unknown.

Names are relative, with `/` between parts, and so plain that every store takes them as they are.
The page: docs/buckets.md
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

Buffer = bytes | bytearray | memoryview

_PART = r"(?!\.\.?(?:/|\Z))[A-Za-z0-9._=-]{1,200}"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
_NAME_MAX = 700  # S3 takes 1,024 bytes, of which the bucket's own prefix needs some


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing tells; `modified_ms` is by the store's clock, not ours."""

    name: str
    size: int
    modified_ms: int


class Bucket(Protocol):
    """Objects by name.  Any number of threads and processes may use one bucket."""

    def get(self, name: str) -> bytes:
        """The whole object, or FileNotFoundError."""
        ...

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        """Bytes start to stop, the latter not included; fewer where the object ends."""
        ...

    def put_if_absent(
        self, name: str, data: Buffer, *, metadata: Mapping[str, str] | None = None
    ) -> None:
        """Create; whole and durable when this returns.  FileExistsError if the name is taken.

        `data` is the caller's to change when this has returned, or raised an error.
        `metadata` goes along where the store has a place for it; nothing may rely on it.
        """
        ...

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        """The objects in directory `prefix`, deep, whose names are greater than `after`; sorted.

        `prefix` is whole parts (`wal` or `wal/`), or empty for all; `after` is a full name.
        """
        ...

    def delete(self, *names: str) -> None:
        """Remove durably; what is missing is fine."""
        ...

    def copy(self, source: str, destination: str) -> None:
        """Make `destination` the same as `source`, durably; what was there is replaced, whole."""
        ...


@runtime_checkable
class Sweepable(Protocol):
    """A bucket that keeps temporaries of its own beside the objects, which `list` never shows."""

    def sweep(self, before_ms: int) -> int:
        """Remove what dead processes left half made before that time of the store; how many."""
        ...


@runtime_checkable
class Retirable(Protocol):
    """A bucket that remembers which names were ever taken, until it is told to forget."""

    def retire(self, prefix: str, boundary: str) -> None:
        """Forget names up to `boundary` (included) in directory `prefix`; they stay refused."""
        ...


def checked(name: str) -> str:
    """The name, if it is one."""
    if not _NAME.fullmatch(name) or len(name) > _NAME_MAX:
        raise ValueError(f"{name[:100]!r} is not an object's name")
    return name


def checked_prefix(prefix: str) -> str:
    """A directory's name with its slash, or nothing for the whole bucket."""
    return f"{checked(prefix.removesuffix('/'))}/" if prefix else ""


def checked_range(start: int, stop: int) -> int:
    """How many bytes to ask for."""
    if not 0 <= start <= stop:
        raise ValueError(f"bytes {start} to {stop} are not a range")
    return stop - start
