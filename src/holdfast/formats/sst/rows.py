"""Rows of the kv store: keys, values and sequence numbers as Arrow arrays.

A null value is a tombstone.  No Python runs per row, and slices copy nothing.  Offsets have 32
bits, so that a block becomes arrays without a conversion: one Rows holds less than 2 GiB.

    Rows.from_pairs([(key, value or None, seq), ...])    a memtable's content, in order
    Rows.from_batch(batch), rows.to_batch()              a RecordBatch of key, value, seq
    Rows.concat([...]), rows.slice(start, stop), rows.take(places), len(rows), rows.size
    rows.is_sorted()                                     keys rise, and none comes twice
    rows.find(key)                                       where the first key >= this one lies
    rows.range(start, stop)                              the rows with start <= key < stop
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Pair = tuple[bytes, bytes | None, int]

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("seq", pa.uint64(), nullable=False),
    ]
)
SIZE_MAX = 2**31 - 1
_KEY, _VALUE, _SEQ = itemgetter(0), itemgetter(1), itemgetter(2)


@dataclass(frozen=True, slots=True)
class Rows:
    """Three arrays of one length: binary keys, binary values that may be null, uint64 seqs."""

    keys: Any
    values: Any
    seqs: Any

    def __post_init__(self) -> None:
        arrays = (self.keys, self.values, self.seqs)
        if [array.type for array in arrays] != SCHEMA.types:
            raise ValueError(
                f"rows must have the types {SCHEMA.types}, not {[array.type for array in arrays]}"
            )
        if not len(self.keys) == len(self.values) == len(self.seqs):
            raise ValueError(
                f"the columns have different lengths: {[len(array) for array in arrays]}"
            )

    @classmethod
    def from_pairs(cls, pairs: Sequence[Pair]) -> "Rows":
        """Return rows of tuples (key, value or None, seq), in the order given."""
        return cls.from_columns(
            list(map(_KEY, pairs)), list(map(_VALUE, pairs)), list(map(_SEQ, pairs))
        )

    @classmethod
    def from_columns(
        cls, keys: Sequence[bytes], values: Sequence[bytes | None], seqs: Sequence[int]
    ) -> "Rows":
        """Return rows of three Python lists."""
        return cls(binary(keys), binary(values), numbers(np.array(seqs, np.uint64)))

    @classmethod
    def from_batch(cls, batch: Any) -> "Rows":
        """Return rows of a RecordBatch that has the columns key, value and seq."""
        columns = (batch.column(field.name).cast(field.type) for field in SCHEMA)
        return cls(*columns)

    @classmethod
    def concat(cls, parts: "Sequence[Rows]") -> "Rows":
        """Return all parts, one after the other; a single part is not copied."""
        if not parts:
            return EMPTY
        if len(parts) == 1:
            return parts[0]
        if sum(part.size for part in parts) > SIZE_MAX:
            raise ValueError(f"rows of more than {SIZE_MAX} bytes")
        return cls(
            pa.concat_arrays([part.keys for part in parts]),
            pa.concat_arrays([part.values for part in parts]),
            pa.concat_arrays([part.seqs for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def size(self) -> int:
        """Bytes of keys and values, and eight for each sequence number."""
        return span(self.keys) + span(self.values) + 8 * len(self)

    def slice(self, start: int, stop: int) -> "Rows":
        """Return the rows at these places, without a copy."""
        count = stop - start
        return Rows(
            self.keys.slice(start, count),
            self.values.slice(start, count),
            self.seqs.slice(start, count),
        )

    def take(self, places: Any) -> "Rows":
        """Return the rows at these places, a numpy or Arrow array of integers, in their order."""
        at = numbers(places) if isinstance(places, np.ndarray) else places
        return Rows(self.keys.take(at), self.values.take(at), self.seqs.take(at))

    def filter(self, mask: Any) -> "Rows":
        """Return the rows at which an Arrow array of booleans is true."""
        return Rows(self.keys.filter(mask), self.values.filter(mask), self.seqs.filter(mask))

    def is_sorted(self) -> bool:
        """Return whether keys rise from row to row, so that no key comes twice."""
        if len(self) < 2:
            return True
        rising = pc.less(self.keys[:-1], self.keys[1:])
        return bool(pc.all(rising, min_count=0).as_py())

    def find(self, key: bytes) -> int:
        """Return the place of the first row whose key is `key` or above; of sorted rows."""
        if not len(self):
            return 0
        offsets, data = column(self.keys)
        ends = offsets.data
        return bisect_left(range(len(self)), key, key=lambda i: bytes(data[ends[i] : ends[i + 1]]))

    def range(self, start: bytes | None, stop: bytes | None) -> "Rows":
        """Return the rows with start <= key < stop, without a copy; None: unbounded."""
        first = 0 if start is None else self.find(start)
        last = len(self) if stop is None else self.find(stop)
        return self.slice(first, max(first, last))

    def to_batch(self) -> Any:
        """Return a RecordBatch of key, value and seq over the same memory."""
        return pa.RecordBatch.from_arrays([self.keys, self.values, self.seqs], schema=SCHEMA)

    def to_pairs(self) -> list[Pair]:
        """Return the rows as Python tuples, for tests and single looks."""
        columns = (self.keys.to_pylist(), self.values.to_pylist(), self.seqs.to_pylist())
        return list(zip(*columns, strict=True))


def column(array: Any) -> tuple[npt.NDArray[np.int32], memoryview]:
    """Return offsets and bytes of a binary array, not empty; offsets count from its buffer."""
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return ends, memoryview(b"" if data is None else data)


def span(array: Any) -> int:
    """Return how many bytes the values of a binary array take."""
    if not len(array):
        return 0
    ends, _ = column(array)
    return int(ends[-1]) - int(ends[0])


def numbers(values: npt.NDArray[Any]) -> Any:
    """Return an Arrow array over numpy's memory.  pa.array would first import pandas."""
    kind = pa.from_numpy_dtype(values.dtype)
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [None, buffer], 0)


def integers(array: Any) -> npt.NDArray[np.uint64]:
    """Return an Arrow array of uint64, as numpy's, over the same memory."""
    return np.frombuffer(array.buffers()[1], np.uint64)[array.offset :][: len(array)]


def booleans(array: Any) -> npt.NDArray[np.bool_]:
    """Return an Arrow array of booleans without nulls, as numpy's."""
    bits = np.frombuffer(array.buffers()[1], np.uint8)
    return np.unpackbits(bits, bitorder="little")[array.offset :][: len(array)].view(np.bool_)


def binary(items: Sequence[bytes | None]) -> Any:
    """Return an Arrow array of bytes; None is null."""
    valid = None
    if None in items:
        there = np.fromiter((item is not None for item in items), np.bool_, len(items))
        valid = pa.py_buffer(np.packbits(there, bitorder="little"))
    whole = [item or b"" for item in items] if valid is not None else items
    ends = np.zeros(len(items) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, whole), np.int64, len(items)), out=ends[1:])  # type: ignore[arg-type]
    if ends[-1] > SIZE_MAX:
        raise ValueError(f"rows of more than {SIZE_MAX} bytes")
    buffers = [valid, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(whole))]  # type: ignore[arg-type]
    return pa.Array.from_buffers(pa.binary(), len(items), buffers)


EMPTY = Rows.from_columns([], [], [])
