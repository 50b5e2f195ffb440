"""One raft-wal segment, open for reading, and the tail that also grows.

A checksum covers a whole batch, so a batch is verified before any entry of it is served: once per
sealed segment that is loaded, where it lies in a memory map; for the tail each time it is read.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import numpy as np

from holdfast.disk import Disk, File
from holdfast.errors import CorruptError
from holdfast.formats import raft_wal as fmt
from holdfast.formats.flaw import Flaw
from holdfast.formats.raft_meta import SegmentMeta
from holdfast.logs.log import Damage, OnDamage
from holdfast.logs.raft_wal.directory import header_of, name_of
from holdfast.logs.raft_wal.emitter import Emitter

if TYPE_CHECKING:
    import pyarrow as pa

_READ_SIZE_MIN = 64 * 1024
_FRAME_HEADER_SIZE = fmt.FRAME_HEADER_SIZE


class _Open:
    """A sealed segment's bytes, where its entries are, and which batches nobody has verified."""

    __slots__ = ("counts", "data", "found", "lengths", "source", "starts", "unverified")

    def __init__(self, data: memoryview, found: fmt.Scan, *, is_whole: bool) -> None:
        self.data, self.found = data, found
        # Bytes or a map: a slice of either is bytes, with no view in between.
        self.source = cast("bytes", data.obj)
        self.starts, self.lengths = found.starts.data, found.lengths.data
        self.counts = found.counts.tolist()
        self.unverified = set(range(len(self.counts)))
        if not is_whole:
            self.unverified.add(-1)  # no read may take the short way


class Sealed:
    """A segment that never changes again.  Entries outside first_index..stop_index are gone."""

    def __init__(self, disk: Disk, meta: SegmentMeta, size: int) -> None:
        self.disk, self.meta, self.size, self.name = disk, meta, size, name_of(meta)
        self.first_index, self.stop_index = meta.min_index, meta.max_index + 1
        self._base_index = meta.base_index
        self._open: _Open | None = None

    def read(self, index: int) -> bytes:
        loaded = self._open or self._load()
        i = index - self._base_index
        if loaded.unverified:
            self._verify(loaded, i)
        start = loaded.starts[i] + _FRAME_HEADER_SIZE
        return loaded.source[start : start + loaded.lengths[i]]

    def _verify(self, loaded: "_Open", i: int) -> None:
        """The batch of entry i, counted from the base, unless it was before."""
        found = loaded.found
        if i >= len(found.starts):
            why = f"entry {i + self._base_index} was not found"
            raise CorruptError(self.name, found.stop, why)
        k = bisect_right(loaded.counts, i)
        if k in loaded.unverified:
            begin, commit = int(found.begins[k]), int(found.commits[k])
            if not fmt.batch_holds(loaded.data, begin, commit):
                why = f"entry {i + self._base_index}: {fmt.BAD_CHECKSUM}"
                raise CorruptError(self.name, begin, why)
            loaded.unverified.remove(k)

    def scan(
        self, start: int, stop: int, on_damage: OnDamage | None = None, *, verify: bool = True
    ) -> "Iterator[pa.RecordBatch]":
        try:
            loaded = self._load()
        except CorruptError as broken:
            if on_damage is None:
                raise
            return on_damage(Damage(self.name, broken.offset, start, stop - 1, broken.why))
        data, found = loaded.data, loaded.found
        emit = Emitter(self.name, self.meta.base_index, on_damage, verify=verify)
        end = max(start, min(stop, self.meta.base_index + len(found.starts)))
        first = start - self.meta.base_index
        yield from emit.entries(found, lambda a, b: data[a:b], first, end - start)
        if end < stop:
            why = f"entries {end} to {stop - 1} were not found"
            if on_damage is None:
                raise CorruptError(self.name, found.stop, why)
            on_damage(Damage(self.name, found.stop, end, stop - 1, why))

    def check(self) -> Damage | None:
        """Every byte read, not mapped: a dying disk answers with an error instead of a signal."""
        file = self.disk.open(self.name)
        try:
            data = memoryview(file.read_at(0, self.size))
        finally:
            file.close()
        try:
            found, flaw = self.judge(data)
        except CorruptError as error:
            return self._damage(error.offset, self.first_index, self.stop_index - 1, error.why)
        base, bad = self.meta.base_index, fmt.bad_batches(data, found)
        for k in bad:
            first = max(self.first_index, base + (int(found.counts[k - 1]) if k else 0))
            last = min(self.stop_index, base + int(found.counts[k])) - 1
            if first <= last:
                return self._damage(int(found.begins[k]), first, last, fmt.BAD_CHECKSUM)
        if flaw is None or (bad and self.stop_index <= base + len(found.starts)):
            return None  # what is damaged was truncated away
        return self._beyond(found, flaw) or self._damage(flaw.offset, 0, 0, flaw.why)

    def unload(self) -> None:
        self._open = None

    def close(self) -> None:
        self.unload()

    def _load(self) -> "_Open":
        if self._open is None:
            file = self.disk.open(self.name)
            try:
                data = file.map()  # the map outlives the file
            finally:
                file.close()
            found, _ = self.judge(data)
            self._open = _Open(
                data, found, is_whole=len(found.starts) >= self.stop_index - self._base_index
            )
        return self._open

    def judge(self, data: memoryview) -> tuple[fmt.Scan, Flaw | None]:
        """Where batches are.  By the index; by walking if the index is what is damaged."""
        header = fmt.decode_header(data)
        if header != header_of(self.meta):
            why = header.why if isinstance(header, Flaw) else f"its header says {header}"
            raise CorruptError(self.name, 0, why)
        found: fmt.Scan | Flaw = fmt.scan_sealed(data, self.meta.index_start)
        flaw = found if isinstance(found, Flaw) else None
        if flaw is not None:
            found = fmt.scan_sealed(data, self.meta.index_start, strict=False)
            if isinstance(found, Flaw) or not _last_holds(data, found):
                found = fmt.scan(data, verify=False)
        assert isinstance(found, fmt.Scan)
        if flaw is None and len(found.starts) < self.stop_index - self.meta.base_index:
            flaw = Flaw(found.stop, f"only {len(found.starts)} entries")
        return found, flaw

    def _beyond(self, found: fmt.Scan, flaw: Flaw | None) -> Damage | None:
        """Entries that were not found at all."""
        first = max(self.first_index, self.meta.base_index + len(found.starts))
        if first >= self.stop_index:
            return None
        assert flaw is not None
        return Damage(self.name, found.stop, first, self.stop_index - 1, flaw.why)

    def _damage(self, offset: int, first: int, last: int, why: str) -> Damage:
        return Damage(self.name, offset, first, last, why)


def _last_holds(data: memoryview, found: fmt.Scan) -> bool:
    """The index is in the last batch, so it can be relied on if that holds its checksum."""
    return fmt.batch_holds(data, int(found.begins[-1]), int(found.commits[-1]))


class Tail:
    """The segment that takes entries.  `count` grows last, so readers see only whole batches."""

    def __init__(self, file: File | None, meta: SegmentMeta, found: fmt.Scan) -> None:
        self._file, self.meta, self.name = file, meta, name_of(meta)
        self.first_index = meta.min_index
        self.starts, self.commits, self.counts = array("q"), array("q"), array("q")
        self.count = self.stop = self.index_start = 0
        self._recent: tuple[int, bytes] = (-1, b"")  # a batch that was read, and what it holds
        self.extend(found)

    @property
    def is_made(self) -> bool:
        """Is there a file yet?"""
        return self._file is not None

    @property
    def file(self) -> File:
        assert self._file is not None, "an entry of a segment that was not made"
        return self._file

    @property
    def stop_index(self) -> int:
        return self.meta.base_index + self.count

    @property
    def size(self) -> int:
        return self.stop

    def extend(self, found: fmt.Scan) -> None:
        """Show batches that are durable and follow on what is here."""
        counts = found.counts + self.count
        self.starts.frombytes(found.starts.astype(np.int64).tobytes())
        self.commits.frombytes(found.commits.astype(np.int64).tobytes())
        self.counts.frombytes(counts.astype(np.int64).tobytes())
        self.stop, self.index_start = found.stop, found.index_start
        self.count = len(self.starts)

    def push(self, batch: fmt.Batch) -> None:
        """Show one batch that we have just written and synced."""
        self.starts += batch.offsets
        self.commits.append(self.stop + len(batch.data) - fmt.COMMIT_SIZE)
        self.counts.append(len(self.starts))
        self.stop += len(batch.data)
        self.index_start = batch.index_start
        self.count = len(self.starts)

    def read(self, index: int) -> bytes:
        i = index - self.meta.base_index
        k = bisect_right(self.counts, i)
        begin = self.commits[k - 1] + fmt.COMMIT_SIZE if k else 0
        recent, data = self._recent
        if recent != k:
            commit = self.commits[k]
            data = self.file.read_at(begin, commit + fmt.COMMIT_SIZE - begin)
            if not fmt.batch_holds(memoryview(data), 0, commit - begin):
                raise CorruptError(self.name, begin, f"entry {index}: {fmt.BAD_CHECKSUM}")
            self._recent = k, data
        start = self.starts[i] - begin
        length = fmt.frame_length(data, start)
        return data[start + fmt.FRAME_HEADER_SIZE : start + fmt.FRAME_HEADER_SIZE + length]

    def scan(
        self, start: int, stop: int, on_damage: OnDamage | None = None, *, verify: bool = True
    ) -> "Iterator[pa.RecordBatch]":
        emit = Emitter(self.name, self.meta.base_index, on_damage, verify=verify)
        yield from emit.entries(
            self._layout(),
            lambda begin, end: memoryview(self.file.read_at(begin, end - begin)),
            start - self.meta.base_index,
            stop - start,
        )

    def beginning_at(self, meta: SegmentMeta) -> "Tail":
        """The same with fewer entries at its head; one or the other is used from now on."""
        other = Tail(self._file, meta, fmt.NOTHING)
        other.starts, other.commits, other.counts = self.starts, self.commits, self.counts
        other.count, other.stop, other.index_start = self.count, self.stop, self.index_start
        return other

    def unload(self) -> None:
        """There is nothing to let go of: it is read with plain reads."""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _layout(self) -> fmt.Scan:
        count = self.count
        starts = np.array(self.starts[:count], np.int64)
        batches = bisect_right(self.counts, count - 1) + 1 if count else 0
        commits = np.array(self.commits[:batches], np.int64)
        counts = np.array(self.counts[:batches], np.int64)
        begins = np.append(0, commits[:-1] + fmt.COMMIT_SIZE)[:batches]
        unknown = np.zeros(0, np.int64)  # the frames themselves tell
        return fmt.Scan(starts, unknown, begins, commits, counts, 0, self.stop, None)


def read_batches(file: File, stop: int) -> fmt.Scan:
    """Whole, sound batches from byte `stop` on, which is 0 or behind a commit; a piece at a time.

    Where nothing new is, eight bytes are read.
    """
    size = _READ_SIZE_MIN if any(file.read_at(stop, fmt.FRAME_HEADER_SIZE)) else 0
    while True:
        data = file.read_at(stop, size)
        found = fmt.scan(memoryview(data), stop)
        if len(found.commits) or found.flaw is None or len(data) < size:
            return found
        size *= 4
