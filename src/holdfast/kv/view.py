"""One state of a store: rows in memory, above SSTs of the WAL, above the levels.

Sources are ordered from the newest to the oldest, and a row of a newer one hides those of older
ones.  A scan merges them chunk by chunk: see merging.py.

    View          one state; never changes
    PinnedView    a View whose SSTs are kept from being deleted until it is closed
    Current       the View that an open store shows now, and replaces
    Scan          the rows of a range, as Arrow batches
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from holdfast.errors import CorruptError, UnavailableError
from holdfast.formats.sst import Rows
from holdfast.formats.sst.rows import SCHEMA
from holdfast.handle import Closing, Handle
from holdfast.kv.memtable import Layer, checked_key
from holdfast.kv.merging import merge, reversed_rows, without_tombstones
from holdfast.kv.snapshots import Lease
from holdfast.kv.tables import Levels, Table, differ
from holdfast.metrics import Histogram
from holdfast.runtime import Runtime

_BATCH_ROWS = 4096  # a batch has more only where a chunk has
_BATCH_SIZE = 2**20
TRIES_MAX = 10
_PAIRS = pa.schema([SCHEMA.field("key"), SCHEMA.field("value")])


@dataclass(frozen=True, slots=True)
class View:
    """One state of a store.  It never changes, also while the store is written."""

    layers: tuple[Layer, ...]  # in memory, the newest first
    tables: tuple[Table, ...]  # of the WAL, where memory does not reach; the newest first
    levels: Levels

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        checked_key(key)
        for layer in self.layers:
            row = layer.rows.get(key)
            if row is not None:
                return row[0]
        return self.get_stored(key)

    def get_stored(self, key: bytes) -> bytes | None:
        """Return the value of a key that is not in memory, or None."""
        for table in self.tables:
            found = table.get(key)
            if found is not None:
                return found[0]
        found = self.levels.get(key)
        return found and found[0]

    def rows(self, start: bytes, stop: bytes | None, *, reverse: bool = False) -> Iterator[Rows]:
        """Yield the live rows with start <= key < stop in chunks; none is empty."""
        streams = [layer.scan(start, stop, reverse=reverse) for layer in self.layers]
        streams += [table.scan(start, stop, reverse=reverse) for table in self.tables]
        streams += self.levels.streams(start, stop, reverse=reverse)
        live = map(without_tombstones, merge(streams, reverse=reverse))
        for group in _groups(live):
            yield reversed_rows(Rows.concat(group[::-1])) if reverse else Rows.concat(group)


class Scan(Iterator[pa.RecordBatch]):
    """The rows of a range in key order: an iterator of Arrow batches of key and value.

    polars, duckdb, pandas and pyarrow read it by `__arrow_c_stream__`.  Either way it is read once.
    """

    __slots__ = ("_chunks", "_schema")

    def __init__(self, chunks: Iterator[Rows], *, seqs: bool) -> None:
        self._chunks, self._schema = chunks, SCHEMA if seqs else _PAIRS

    def __next__(self) -> pa.RecordBatch:
        rows = next(self._chunks)
        columns = [rows.keys, rows.values, rows.seqs][: len(self._schema)]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield pairs of key and value."""
        for rows in self._chunks:
            yield from zip(rows.keys.to_pylist(), rows.values.to_pylist(), strict=True)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the batches that were not read yet, as a stream."""
        reader = pa.RecordBatchReader.from_batches(self._schema, self)
        return reader.__arrow_c_stream__(requested_schema)


class Readable(Closing):
    """What can be scanned: an open store, or a view of one."""

    _handle: Handle

    def scan(
        self,
        start: bytes | None = None,
        stop: bytes | None = None,
        *,
        prefix: bytes = b"",
        reverse: bool = False,
        seqs: bool = False,
    ) -> Scan:
        """Return the rows with start <= key < stop, as an iterator of Arrow batches in key order.

        All rows are of the state at the first batch.  Columns
        are key and value; with `seqs`, also seq, the sequence number of the write.
        """
        self._check()
        first, end = bounds(start, stop, prefix)
        return Scan(self._rows(first, end, reverse), seqs=seqs)

    def items(
        self,
        start: bytes | None = None,
        stop: bytes | None = None,
        *,
        prefix: bytes = b"",
        reverse: bool = False,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of `scan` as pairs of key and value, one by one."""
        return self.scan(start, stop, prefix=prefix, reverse=reverse).items()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export all rows, of columns key and value, as an Arrow stream."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def _check(self) -> None:
        self._handle.check_read()

    @abstractmethod
    def _rows(self, start: bytes, stop: bytes | None, reverse: bool) -> Iterator[Rows]: ...


class PinnedView(Readable):
    """One state of a store.  What it needs is not deleted until it is closed."""

    def __init__(self, view: View, lease: Lease, manifest_id: int, store: Handle) -> None:
        self._view, self._lease, self.manifest_id, self._store = view, lease, manifest_id, store
        self._handle = Handle(f"the view of {store.name}")
        lease.pin(manifest_id)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key in this state, or None."""
        self._check()
        try:
            return self._view.get(key)
        except FileNotFoundError as error:
            raise self._gone(error) from error

    def close(self) -> None:
        """Allow what this view needs to be deleted."""
        if self._handle.close():
            self._lease.unpin(self.manifest_id)

    __del__ = close  # a scan that is abandoned half way ends here

    def _rows(self, start: bytes, stop: bytes | None, reverse: bool) -> Iterator[Rows]:
        try:
            yield from self.rows(start, stop, reverse)
        except FileNotFoundError as error:
            raise self._gone(error) from error

    def rows(self, start: bytes, stop: bytes | None, reverse: bool) -> Iterator[Rows]:
        """Yield the rows of a range.  FileNotFoundError, before the first ones: the view is old."""
        self._check()
        is_first = True
        try:
            for rows in self._view.rows(start, stop, reverse=reverse):
                is_first = False
                yield rows
                self._check()
        except FileNotFoundError as error:
            if is_first:
                raise
            raise self._gone(error) from error

    @property
    def state(self) -> View:
        """Return the state that is read."""
        return self._view

    def _check(self) -> None:
        self._store.check_read()
        super()._check()

    def _gone(self, error: FileNotFoundError) -> Exception:
        if self._lease.keeps(self.manifest_id):
            return CorruptError(str(error), 0, "missing, but a live snapshot needs it")
        return UnavailableError(f"the snapshot of this view has expired ({error}); open a new view")


class Current:
    """The view that an open store shows.  It is replaced as a whole, so each read has one state."""

    view: View
    manifest_id: int

    def __init__(self, handle: Handle, runtime: Runtime, refresh: Callable[[], None]) -> None:
        self._handle, self._refresh, self._monotonic = handle, refresh, runtime.monotonic
        self.gets = 0
        self.seconds = Histogram()  # of gets that memory cannot answer

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        if self._handle.refusal is not None:
            self._handle.check_read()
        self.gets += 1
        if type(key) is not bytes:
            checked_key(key)
        for layer in self.view.layers:
            row = layer.rows.get(key)
            if row is not None:
                return row[0]
        return self._get_stored(key)

    def _get_stored(self, key: bytes) -> bytes | None:
        began = self._monotonic()
        try:
            return self._get_or_refresh(key)
        finally:
            self.seconds.observe(self._monotonic() - began)

    def _get_or_refresh(self, key: bytes) -> bytes | None:
        for _ in range(TRIES_MAX):
            view = self.view
            try:
                return view.get(key)
            except FileNotFoundError as error:
                self.replace(view, error)
        raise too_fast()

    def replace(self, view: View, error: FileNotFoundError) -> None:
        """Refresh: an SST that this view needs is missing, so its rows were compacted into others.

        CorruptError if the newest manifest needs it, too.
        """
        self._refresh()
        if not differ(self.view.levels.manifest, view.levels.manifest):
            raise CorruptError(str(error), 0, "missing; the manifest names it") from error


def too_fast() -> UnavailableError:
    return UnavailableError("SSTs are deleted faster than they can be read; use a snapshot")


def bounds(start: bytes | None, stop: bytes | None, prefix: bytes) -> tuple[bytes, bytes | None]:
    """Return the half-open range of keys that is within all three."""
    for bound in (start, stop, prefix):
        if bound is not None and not isinstance(bound, bytes):
            raise TypeError(f"a bound must be bytes, not {type(bound).__name__}")
    after = _after(prefix)
    stops = [bound for bound in (stop, after) if bound is not None]
    return max(start or b"", prefix), min(stops) if stops else None


def _groups(chunks: Iterable[Rows]) -> Iterator[list[Rows]]:
    """Join small chunks, so that there are not many batches; none is empty."""
    group: list[Rows] = []
    count = size = 0
    for rows in chunks:
        group.append(rows)
        count, size = count + len(rows), size + rows.size
        if count >= _BATCH_ROWS or size >= _BATCH_SIZE:
            yield group
            group, count, size = [], 0, 0
    if count:
        yield group


def _after(prefix: bytes) -> bytes | None:
    """Return the smallest key above all that begin with `prefix`; None if there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
