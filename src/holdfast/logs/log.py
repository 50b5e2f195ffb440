"""What every log can do, and the words in which all of them answer.

A log is a row of entries with contiguous indexes.  One owner locks it, recovers it and appends;
any number of guests read it, beside a live owner too, and change nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeAlias, runtime_checkable

from holdfast.errors import OutOfRangeError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

Payloads: TypeAlias = "Sequence[bytes] | pa.Array | pa.ChunkedArray"
Bytes: TypeAlias = bytes | bytearray | memoryview

_BUFFERS: set[type] = {bytes, bytearray, memoryview}
BATCH_ENTRIES_MAX = 65_536
BATCH_SIZE_MAX = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are not what they should be, and the indexes that are lost with them."""

    file: str
    offset: int
    first_index: int  # of the damaged range; 0 where it cannot be known
    last_index: int
    why: str
    torn: bool = False  # the unacknowledged end of a write that a crash cut short

    def __str__(self) -> str:
        lost = f"entries {self.first_index}..{self.last_index}" if self.first_index else "unknown"
        return f"{self.file} at byte {self.offset}: {self.why} (affects {lost})"


OnDamage: TypeAlias = Callable[[Damage], None]


class Guest(Protocol):
    """A log open for reading.  Empty means last_index == first_index - 1."""

    @property
    def first_index(self) -> int: ...

    @property
    def last_index(self) -> int: ...

    def read(self, index: int) -> bytes:
        """One payload, its checksum verified.  OutOfRangeError if there is no such entry."""
        ...

    def scan(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        on_damage: OnDamage | None = None,
    ) -> "Iterator[pa.RecordBatch]":
        """Entries start..stop-1 as Arrow batches, every checksum verified.

        Columns `index` (int64), `payload` (binary view) and `offset` (int64: the entry's first
        byte in its file).  Yields what is sound before a damaged entry, then raises CorruptError;
        with `on_damage`, tells it the damage instead and goes on behind it.
        """
        ...

    def refresh(self) -> int:
        """See what the owner has appended, rotated or removed; return last_index.

        What a guest exposes is durable: it syncs what it has seen before it shows it.
        """
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None: ...


class Log(Guest, Protocol):
    """A log open for writing, by its only owner."""

    def append(self, payloads: Payloads) -> int:
        """Add a batch; return its last index.  The batch is durable when this returns.

        While the process lives, all of the batch is visible or none.  Many threads may append;
        one sync serves all that wait.
        """
        ...


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One file of a log, as an operator sees it."""

    name: str
    state: str  # active, sealed, or damaged
    first_index: int
    last_index: int  # first_index - 1 when it holds nothing
    size: int
    created_ms: int
    id: str


@runtime_checkable
class Inspectable(Protocol):
    """A log that can say what it is made of, and check each part."""

    @property
    def damage(self) -> Sequence[Damage]:
        """What opening found.  Entries that it does not name can be read."""
        ...

    def segments(self) -> list[SegmentInfo]: ...

    def check(self, name: str) -> Damage | None:
        """Read one segment from end to end and verify every checksum."""
        ...


@runtime_checkable
class Described(Protocol):
    """A log that knows more of itself and of its payloads than every log does."""

    def facts(self) -> dict[str, str]:
        """What an operator may want to see of it."""
        ...

    def decode_columns(self, batch: "pa.RecordBatch") -> "pa.RecordBatch | None":
        """A scanned batch with the fields of its payloads; None if they have none."""
        ...

    def check_whole(self) -> list[Damage]:
        """What no segment alone can tell."""
        ...


@dataclass(frozen=True, slots=True)
class Metric:
    """One value that can be watched: counted since the log was opened, or as it is now."""

    name: str
    kind: Literal["counter", "gauge"]
    value: float
    about: str
    labels: tuple[tuple[str, str], ...] = ()


@runtime_checkable
class Measured(Protocol):
    """A log that counts what it does."""

    def metrics(self) -> list[Metric]: ...


def as_payloads(payloads: Payloads) -> Sequence[Bytes]:
    """Whatever append was given, as buffers; Arrow's without copying one of them."""
    if isinstance(payloads, bytes | bytearray | memoryview | str):
        raise TypeError("append takes a batch: put a single payload into a list")
    if isinstance(payloads, list | tuple):
        if strange := set(map(type, payloads)) - _BUFFERS:
            raise TypeError(f"a payload is bytes, not {strange.pop().__name__}")
        return payloads
    import pyarrow as pa

    if isinstance(payloads, pa.ChunkedArray):
        return [payload for chunk in payloads.chunks for payload in as_payloads(chunk)]
    if isinstance(payloads, pa.Array):
        return _arrow_payloads(payloads)
    return as_payloads(list(payloads))


def _arrow_payloads(array: "pa.Array") -> Sequence[Bytes]:
    values, bounds = arrow_slices(array)
    return [values[a:b] for a, b in pairwise(bounds.tolist())]


def arrow_slices(array: "pa.Array") -> "tuple[bytes, npt.NDArray[np.int64]]":
    """The payloads of an Arrow array behind one another, and the bounds between them."""
    import numpy as np
    import pyarrow as pa

    if array.null_count:
        raise ValueError(f"{array.null_count} payloads are null")
    array = array.cast(pa.large_binary())
    _, offsets, values = array.buffers()
    if not len(array) or values is None:
        return b"", np.zeros(len(array) + 1, np.int64)
    bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    first = int(bounds[0])
    return bytes(memoryview(values)[first : int(bounds[-1])]), bounds - first


def clip(start: int | None, stop: int | None, first: int, last: int) -> tuple[int, int]:
    """The half-open range asked for, checked against what the log has."""
    start = first if start is None else start
    stop = last + 1 if stop is None else stop
    if start > stop:
        raise ValueError(f"start {start} is after stop {stop}")
    if start < first or stop > last + 1:
        raise OutOfRangeError(f"entries {start}..{stop - 1} of a log that holds {first}..{last}")
    return start, stop
