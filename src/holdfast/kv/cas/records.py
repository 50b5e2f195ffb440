"""The records of two-phase writes: who holds which name.  The page: docs/buckets.md

What any store of records promises, to all the clients that share it:

1. Of many inserts for one destination one wins, for ever; all get the winner's record.  An
   insert is durable when it returns, and repeating it with the same source changes nothing.
2. A destination at or below its directory's watermark is refused, also when its record is gone.
3. After `begin_sweep` has returned, an insert that was not made before, and that carries an
   older epoch, is refused.  So a temporary that no record names then is never named again.

UnavailableError means that the outcome is unknown; every call may be repeated.
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Record:
    """The bytes in object `source` are, or are about to be, object `destination`."""

    destination: str
    source: str
    committed: bool = False  # the copy was made


class SweptError(Exception):
    """The epoch is over: what was put under it may be swept away.  Put it again."""


class Records(Protocol):
    """One store's records.  Any number of threads and processes may use it."""

    def epoch(self) -> int:
        """How many sweeps there have been."""
        ...

    def insert(self, destination: str, source: str, epoch: int) -> Record:
        """Take `destination` unless it is taken; return the record that holds it, ours or not.

        FileExistsError if it is at or below the watermark, SweptError if the epoch has passed.
        """
        ...

    def commit(self, record: Record) -> None:
        """Note that the copy was made.  No matter if that is known, or the record retired."""
        ...

    def find(self, destination: str) -> Record | None: ...

    def uncommitted(self) -> list[Record]:
        """Whose copies may not have been made, by destination."""
        ...

    def retire(self, directory: str, boundary: str) -> None:
        """Raise the directory's watermark, then forget the committed records up to it."""
        ...

    def begin_sweep(self) -> int:
        """Begin a new epoch, and return it."""
        ...

    def close(self) -> None: ...


def directory_of(destination: str) -> str:
    """What a watermark is kept for: `wal/` of `wal/00000000000000000007.sst`."""
    return destination[: destination.rfind("/") + 1]
