"""The records of two-phase writes: which writer holds which name.  The page: docs/buckets.md

Every store of records promises to all clients that share it:

1. If several clients insert one destination, one succeeds; all get its record.  An
   insert is durable when it returns, and repeating it with the same source changes nothing.
2. A destination at or below its directory's watermark is refused, also when its record is deleted.
3. After `begin_sweep` has returned, an insert that was not made before, and that carries an
   older epoch, is refused.  So a temporary object that no record names then is never named again.

UnavailableError means that the outcome is unknown; every call may be repeated.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from holdfast.errors import MissingError


@dataclass(frozen=True, slots=True)
class Record:
    """The bytes in object `source` are, or are about to be, object `destination`."""

    destination: str
    source: str
    committed: bool = False  # the copy was made


class SweptError(Exception):
    """The epoch has ended: a temporary object of it may be deleted.  Write it again."""


class Records(Protocol):
    """One store's records.  Any number of threads and processes may use it."""

    def epoch(self) -> int:
        """Return how many sweeps there have been."""
        ...

    def insert(self, destination: str, source: str, epoch: int) -> Record:
        """Take `destination` unless it is taken; return the record that holds it, ours or not.

        FileExistsError if it is at or below the watermark, SweptError if the epoch has passed.
        """
        ...

    def commit(self, record: Record) -> None:
        """Record that the copy was made.  Repeating it, or a retired record, is fine."""
        ...

    def find(self, destination: str) -> Record | None: ...

    def uncommitted(self) -> list[Record]:
        """Return the records whose copies may be missing, by destination."""
        ...

    def retire(self, directory: str, boundary: str) -> None:
        """Raise the directory's watermark, then delete the committed records up to it."""
        ...

    def begin_sweep(self) -> int:
        """Begin a new epoch, and return it."""
        ...

    def close(self) -> None: ...


@contextmanager
def driver_of(what: str, extra: str) -> Iterator[None]:
    """Import a driver in this block; MissingError says how to install it."""
    try:
        yield
    except ImportError as error:
        raise MissingError(f"{what}: pip install 'holdfast[{extra}]'") from error


def directory_of(destination: str) -> str:
    """Return the directory of a name: `wal/` of `wal/00000000000000000007.sst`."""
    return destination[: destination.rfind("/") + 1]
