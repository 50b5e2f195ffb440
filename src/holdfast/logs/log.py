"""What every log can do, and the types that all of them share.

A log is a sequence of entries with contiguous indexes.  One owner locks it, recovers it and
appends.  Any number of readers read it, also beside a live owner, and change nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, cast, runtime_checkable

from holdfast.errors import OutOfRangeError
from holdfast.metrics import Metric

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from holdfast.group_commit import Submitted
    from holdfast.logs.retention import Retention, Trim
    from holdfast.logs.status import LogStatus
    from holdfast.logs.verify import VerifyReport


class ArrowStream(Protocol):
    """Arrow data of any library: polars, duckdb, pandas, pyarrow."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


Payloads: TypeAlias = "Sequence[bytes] | pa.Array | pa.ChunkedArray | ArrowStream"
Bytes: TypeAlias = bytes | bytearray | memoryview

_BUFFERS: set[type] = {bytes, bytearray, memoryview}
INDEX_MAX = 2**63 - 2  # Arrow's int64 holds every index, and the stop of every range
FIRST_INDEX_MAX = 2**62  # of a new log: no number of appends leads from here to INDEX_MAX
BATCH_ENTRIES_MAX = 65_536
BATCH_SIZE_MAX = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Damage:
    """Invalid or missing bytes, and the indexes that are lost with them."""

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


class Batches(Protocol):
    """The batches of a scan: an iterator, and an Arrow stream for polars, duckdb and others."""

    def __iter__(self) -> "Iterator[pa.RecordBatch]": ...

    def __next__(self) -> "pa.RecordBatch": ...

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


class LogReader(Protocol):
    """A log open for reading: no lock, no change, beside a live owner or without one.

    A context manager.  After `close` every call raises ClosedError; `damage` stays readable.  In
    an empty log last_index is first_index - 1.  It is an Arrow stream of `index` and `payload`.
    """

    @property
    def first_index(self) -> int: ...

    @property
    def last_index(self) -> int: ...

    def read(self, index: int, /) -> bytes:
        """Return one payload, its checksum verified.  OutOfRangeError if it does not exist."""
        ...

    def fingerprint(self, index: int, /) -> bytes:
        """Return what differs between an entry and another that replaces it after a rollback."""
        ...

    def scan(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        on_damage: OnDamage | None = None,
    ) -> Batches:
        """Return entries start..stop-1 as Arrow batches, every checksum verified.

        Columns `index` (int64), `payload` (binary view) and `offset` (int64: the entry's first
        byte in its file).  At a damaged entry raises CorruptError; with `on_damage`, reports the
        damage and continues after it.
        """
        ...

    def refresh(self) -> int:
        """Show what the owner has appended, rotated or removed; return last_index.

        What a reader shows is durable: it syncs it first.
        """
        ...

    @property
    def damage(self) -> Sequence[Damage]:
        """Return the damage that opening found.  Entries that it does not name can be read."""
        ...

    def segments(self) -> "list[SegmentInfo]":
        """Return the segments, oldest first."""
        ...

    def check(self, name: str) -> Damage | None:
        """Read one segment from end to end and verify every checksum."""
        ...

    def status(self) -> "LogStatus":
        """Return a summary of the log."""
        ...

    def verify(self, on_progress: Callable[[int, int], None] = ...) -> "VerifyReport":
        """Verify every checksum of the log."""
        ...

    def metrics(self) -> list[Metric]:
        """Return what was counted since this was opened."""
        ...

    def close(self) -> None: ...

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None: ...


class Log(LogReader, Protocol):
    """A log open for writing, by its only owner."""

    @property
    def recovered(self) -> Sequence[str]:
        """Return what recovery did when the log was opened, one line for each act."""
        ...

    def append(self, payloads: Payloads) -> int:
        """Append a batch and return its last index.  It is durable when this returns.

        While the process lives, all of the batch is visible or nothing.  Many threads may append;
        one sync serves all that wait.
        """
        ...

    def submit(self, payloads: Payloads) -> "Submitted":
        """Append a batch without waiting for it."""
        ...

    def rotate(self) -> str:
        """Seal the active segment, if it holds anything; return the active segment's name."""
        ...

    def plan_trim(self, limits: "Retention") -> "Trim":
        """Return what `trim` would remove.  Nothing is changed."""
        ...

    def trim(self, limits: "Retention") -> "Trim":
        """Durably remove the oldest segments that `limits` names and no replica still needs."""
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
class Described(Protocol):
    """A log of a format that has more than entries."""

    def facts(self) -> dict[str, str]:
        """Return what an operator may want to see of it."""
        ...

    def decode_columns(self, batch: "pa.RecordBatch") -> "pa.RecordBatch | None":
        """Return a scanned batch with the fields of its payloads; None if they have none."""
        ...

    def check_whole(self) -> list[Damage]:
        """Return the damage that no segment alone shows."""
        ...


def check_first_index(index: int) -> None:
    """Raise ValueError unless a new log may start at this index."""
    if not 1 <= index <= FIRST_INDEX_MAX:
        raise ValueError(f"first_index is {index}; expected 1 to {FIRST_INDEX_MAX}")


def as_payloads(payloads: Payloads) -> Sequence[Bytes]:
    """Return the payloads of a batch as buffers.  TypeError if it is not a batch of bytes."""
    if isinstance(payloads, list | tuple):
        if strange := set(map(type, payloads)) - _BUFFERS:
            raise TypeError(f"a payload must be bytes, not {strange.pop().__name__}")
        return payloads
    if isinstance(payloads, bytes | bytearray | memoryview | str):
        raise TypeError("append takes a batch: put a single payload into a list")
    array = to_arrow(payloads)
    if array is None:
        return as_payloads(list(cast("Sequence[bytes]", payloads)))
    values, bounds = arrow_slices(array)
    return [values[a:b] for a, b in pairwise(bounds.tolist())]


def to_arrow(payloads: Payloads) -> "pa.Array | None":
    """Return payloads that come as Arrow as one array; None if they are something else.

    Of a table, the column named `payload`, or the only one.  Copied only if it has many chunks.
    """
    if isinstance(payloads, list | tuple):
        return None
    import pyarrow as pa

    if hasattr(payloads, "__arrow_c_stream__"):
        payloads = pa.chunked_array(payloads).combine_chunks()
    elif not hasattr(payloads, "__arrow_c_array__"):
        return None
    array = pa.array(payloads)
    column = "payloads"
    if pa.types.is_struct(array.type):
        names = [field.name for field in array.type]
        if "payload" not in names and len(names) != 1:
            raise TypeError(f"no column 'payload' among {', '.join(names) or 'no columns'}")
        column = "payload" if "payload" in names else names[0]
        array = array.field(column)
        column = f"column {column!r}"
    if not _is_bytes(array.type):
        raise TypeError(f"{column} has type {array.type}; expected binary or string")
    if array.null_count:
        raise ValueError(f"{column}: {array.null_count} values are null; expected bytes")
    return array


def _is_bytes(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    kinds = pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string()
    return kind in (*kinds, pa.string_view()) or pa.types.is_fixed_size_binary(kind)


def arrow_slices(array: "pa.Array") -> "tuple[bytes, npt.NDArray[np.int64]]":
    """Return the payloads of an Arrow array in one buffer, and the bounds between them."""
    import numpy as np
    import pyarrow as pa

    array = array.cast(pa.large_binary())
    _, offsets, values = array.buffers()
    if not len(array) or values is None:
        return b"", np.zeros(len(array) + 1, np.int64)
    bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    first = int(bounds[0])
    return bytes(memoryview(values)[first : int(bounds[-1])]), bounds - first


def clip(start: int | None, stop: int | None, first: int, last: int) -> tuple[int, int]:
    """Return the half-open range that was asked for, checked against what the log has."""
    start = first if start is None else start
    stop = last + 1 if stop is None else stop
    if start > stop:
        raise ValueError(f"start {start} is after stop {stop}")
    if start < first or stop > last + 1:
        span = f"entries {start}..{stop - 1}" if stop - 1 > start else f"entry {start}"
        raise out_of_range(span, first, last)
    return start, stop


def out_of_range(what: str, first: int, last: int) -> OutOfRangeError:
    """Return the error for entries that a log does not have."""
    held = f"the log holds {first}..{last}" if last >= first else "the log is empty"
    return OutOfRangeError(f"no {what}: {held}")
