"""SSTs in a bucket, read in parts: footer, index and filter once, then blocks as needed.

Verified blocks are kept in one cache, with a limit in bytes, that all tables of a store share.  A
table itself holds nothing, so there may be a hundred thousand of them.

The compacted part of a store: the SSTs that one manifest names, from the newest to the oldest.

L0 is a list of SSTs, each with any keys.  Below it are sorted runs, in which a key can be in one
SST only.  A manifest may name a hundred thousand SSTs; a Table is created for those that are read.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from holdfast.bucket.bucket import Bucket
from holdfast.errors import CorruptError
from holdfast.formats.manifest import Manifest, Run, SstInfo
from holdfast.formats.sst import (
    Block,
    Filter,
    Found,
    Index,
    Info,
    Rows,
    decode_blocks,
    decode_filter,
    decode_index,
    decode_info,
    footer_size,
    open_block,
)
from holdfast.kv.names import level_name
from holdfast.runtime import Runtime

Result = TypeVar("Result")

CACHE_SIZE = 64 * 2**20
_TAIL_SIZE = 64 * 1024  # of most tables it holds filter, index and footer
_READ_SIZE = 2**20
_CHUNK_SIZE = 2 * 2**20  # of rows at once; memory for more would not be reused
_HEAD = -1


class Cache:
    """A cache of recently used values, with a limit in bytes."""

    def __init__(self, size_max: int, runtime: Runtime) -> None:
        self._size_max, self.size = size_max, 0
        self.hits = self.misses = 0  # about: they are counted without a lock
        self._kept: OrderedDict[tuple[str, int], tuple[Any, int]] = OrderedDict()
        self._lock = runtime.lock()

    def get(self, key: tuple[str, int]) -> Any:
        """Return the cached value, or None.  Takes no lock: it may find evicted entries."""
        found = self._kept.get(key)
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        try:  # noqa: SIM105 - suppress() would take half the time of a get
            self._kept.move_to_end(key)
        except KeyError:
            pass
        return found[0]

    def put(self, key: tuple[str, int], thing: Any, size: int) -> None:
        with self._lock:
            replaced = self._kept.pop(key, None)
            self.size += size - (replaced[1] if replaced else 0)
            self._kept[key] = thing, size
            while self.size > self._size_max and self._kept:
                self.size -= self._kept.popitem(last=False)[1][1]


@dataclass(frozen=True, slots=True)
class Head:
    """What must be known of a table before any of its blocks is read."""

    info: Info
    index: Index
    filter: Filter


class Table:
    """One SST.  FileNotFoundError from any method: it was deleted, so the caller's view is old."""

    __slots__ = ("_bucket", "_cache", "_epoch", "_head_offset", "name", "size")

    def __init__(
        self,
        bucket: Bucket,
        cache: Cache,
        name: str,
        size: int,
        head_offset: int | None = None,
        *,
        epoch: int | None = None,
    ) -> None:
        """`head_offset`: where the blocks end, if known; it saves a request.

        `epoch` is that of the writer.  It is needed for an SST of the WAL: after garbage collection
        has deleted it, a writer that was fenced long ago can create another SST with the same id.
        """
        self._bucket, self._cache, self.name, self.size = bucket, cache, name, size
        self._epoch = epoch
        self._head_offset = max(0, size - _TAIL_SIZE) if head_offset is None else head_offset

    def __repr__(self) -> str:
        return f"Table({self.name})"

    @property
    def info(self) -> Info:
        return self._head().info

    @property
    def index(self) -> Index:
        return self._head().index

    def get(self, key: bytes) -> Found | None:
        """Return value (None for a tombstone) and seq of a key; None if it is not in this table."""
        head = self._head()
        if not head.filter.may_contain(key):
            return None
        number = head.index.find(key)
        return None if number < 0 else self._block(head, number).get(key)

    def scan(
        self,
        start: bytes,
        stop: bytes | None,
        *,
        reverse: bool = False,
        read_size: int | None = None,
        chunk_size: int | None = None,
    ) -> Iterator[Rows]:
        """Yield the rows with start <= key < stop in chunks; with `reverse`, the last chunk first.

        A request reads about `read_size` bytes, and a chunk is made of about `chunk_size` of them.
        """
        head = self._head()
        index = head.index
        requests = _groups(index, index.range(start, stop), read_size or _READ_SIZE)
        for request in reversed(requests) if reverse else requests:
            first = index.offsets[request.start]
            read = partial(self._read, first, index.offsets[request.stop])
            data = memoryview(self._sure(read))
            chunks = _groups(index, request, chunk_size or _CHUNK_SIZE)
            for numbers in reversed(chunks) if reverse else chunks:
                rows = self._rows(index, numbers, data, first).range(start, stop)
                if len(rows):
                    yield rows

    def _rows(self, index: Index, numbers: range, data: memoryview, first: int) -> Rows:
        """Return the rows of some blocks; `data` is the object from byte `first` on."""
        spans = [index.span(number) for number in numbers]
        blocks = [data[start - first : stop - first] for start, stop in spans]
        return decode_blocks(blocks, [start for start, _ in spans], where=self.name)

    def _block(self, head: Head, number: int) -> Block:
        found: Block | None = self._cache.get((self.name, number))
        if found is None:
            start, stop = head.index.span(number)
            found = self._sure(
                lambda: open_block(self._read(start, stop), where=self.name, offset=start)
            )
            self._cache.put((self.name, number), found, found.size)
        elif not found.is_listed:  # it is read again, so the work pays
            found.list_keys()
            self._cache.put((self.name, number), found, found.size)
        return found

    def _head(self) -> Head:
        found: Head | None = self._cache.get((self.name, _HEAD))
        if found is None:
            found, size = self._sure(self._load_head)
            self._cache.put((self.name, _HEAD), found, size)
        return found

    def _load_head(self) -> tuple[Head, int]:
        start = self._head_offset
        tail = self._read(start, self.size)
        if footer_size(tail, where=self.name, size=self.size) > len(tail):
            start, tail = 0, self._read(0, self.size)
        info = decode_info(tail, self.size, where=self.name)
        if info.filter_offset < start:
            start, tail = info.filter_offset, self._read(info.filter_offset, self.size)
        view = memoryview(tail)[info.filter_offset - start :]
        meta, stop = info.filter_len, info.filter_len + info.block_meta_len
        bloom = decode_filter(view[:meta], where=self.name, offset=info.filter_offset)
        index = decode_index(view[meta:stop], where=self.name, offset=info.block_meta_offset)
        if index.offsets[-1] != info.filter_offset:
            raise CorruptError(self.name, info.block_meta_offset, "an index of other blocks")
        # First keys become Python objects, and each takes more than its bytes.
        return Head(info, index, bloom), len(view) + 100 * len(index)

    def _sure(self, read: Callable[[], Result]) -> Result:
        """Return what was read, if the same SST still exists afterwards: then it existed all the
        time.
        """
        try:
            found = read()
        except CorruptError:
            self._refuse_another()
            raise
        self._refuse_another()
        return found

    def _refuse_another(self) -> None:
        if self._epoch is None:
            return
        start = max(0, self.size - _TAIL_SIZE)
        try:
            tail = self._bucket.get_range(self.name, start, self.size)
            if footer_size(tail, where=self.name, size=self.size) > len(tail):  # of long keys
                tail = self._bucket.get(self.name)
            info = decode_info(tail, self.size, where=self.name)
        except CorruptError:  # damaged, or of another size
            data = self._bucket.get(self.name)
            info = decode_info(data, len(data), where=self.name)
        if info.writer_epoch != self._epoch:
            raise FileNotFoundError(
                f"{self.name} was collected, and created again by another writer"
            )

    def _read(self, start: int, stop: int) -> bytes:
        data = self._bucket.get_range(self.name, start, stop)
        if len(data) != stop - start:
            raise CorruptError(
                self.name, start + len(data), f"cut short; expected {self.size} bytes"
            )
        return data


def _groups(index: Index, numbers: range, read_size: int) -> list[range]:
    """Return groups of blocks, each read with one request."""
    groups, first = [], numbers.start
    for number in numbers:
        if index.offsets[number + 1] - index.offsets[first] > read_size and number > first:
            groups.append(range(first, number))
            first = number
    if first < numbers.stop:
        groups.append(range(first, numbers.stop))
    return groups


def differ(a: Manifest, b: Manifest) -> bool:
    """Return whether two manifests name different levels."""
    return a.wal_id_last_compacted != b.wal_id_last_compacted or not np.array_equal(
        a.sst_ids, b.sst_ids
    )


class Levels:
    """The SSTs of one manifest.  Never changes; any number of threads may read it."""

    def __init__(self, manifest: Manifest, bucket: Bucket, cache: Cache) -> None:
        self.manifest = manifest
        self._bucket, self._cache = bucket, cache
        self._l0 = [self._table(info) for info in manifest.l0]
        # Of each run the tables that were asked for, by their place in it.
        self._runs: list[tuple[Run, dict[int, Table]]] = [(run, {}) for run in manifest.runs]

    def get(self, key: bytes) -> Found | None:
        """Return the newest value (None: a tombstone) and seq of a key; None if there is none."""
        for table in self._l0:
            found = table.get(key)
            if found is not None:
                return found
        for run, tables in self._runs:
            place = run.find(key)
            if place < 0:
                continue
            known = tables.get(place)
            if known is None:
                known = tables[place] = self._table(run[place])
            found = known.get(key)
            if found is not None:
                return found
        return None

    def streams(
        self, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> list[Iterator[Rows]]:
        """Return one stream for each SST of L0 and for each run, the newest first."""
        streams = [table.scan(start, stop, reverse=reverse) for table in self._l0]
        for run, _ in self._runs:
            infos = run.range(start, stop)
            streams.append(self._chained(infos[::-1] if reverse else infos, start, stop, reverse))
        return streams

    def _chained(
        self, infos: Sequence[SstInfo], start: bytes, stop: bytes | None, reverse: bool
    ) -> Iterator[Rows]:
        for info in infos:
            yield from self._table(info).scan(start, stop, reverse=reverse)

    def _table(self, info: SstInfo) -> Table:
        name = level_name(info.id)
        return Table(self._bucket, self._cache, name, info.size, info.filter_offset)
