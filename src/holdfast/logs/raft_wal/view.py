"""The segments of a raft-wal log, open for reading: sealed ones, and the active one that grows.

A checksum covers a whole batch, so a batch is verified before any entry of it is returned.  A
sealed segment is read through a memory map, and each batch is verified once while it is loaded.
The active segment is read with plain reads, and verified each time.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np

from holdfast.disk import Disk, File
from holdfast.errors import CorruptError
from holdfast.formats import raft_wal as fmt
from holdfast.formats.flaw import Flaw
from holdfast.formats.raft_meta import SegmentMeta
from holdfast.logs.log import (
    Bytes,
    Damage,
    OnDamage,
    SegmentInfo,
)
from holdfast.logs.raft_wal.arrow import emit, report
from holdfast.logs.raft_wal.directory import header_of, name_of
from holdfast.logs.raft_wal.recovery import Survey
from holdfast.runtime import from_rfc3339

if TYPE_CHECKING:
    import pyarrow as pa

_READ_SIZE_MIN = 64 * 1024
_FRAME_HEADER_SIZE = fmt.FRAME_HEADER_SIZE


class _Open:
    """The bytes of a sealed segment, where its entries are, and the batches not verified yet."""

    __slots__ = ("counts", "data", "found", "lengths", "source", "starts", "unverified")

    def __init__(self, data: memoryview, found: fmt.Scan, *, is_whole: bool) -> None:
        self.data, self.found = data, found
        # Bytes or a map: a slice of either is bytes, with no view in between.
        self.source = cast("bytes", data.obj)
        self.starts, self.lengths = found.starts.data, found.lengths.data
        self.counts = found.counts.tolist()
        self.unverified = set(range(len(self.counts)))
        if not is_whole:
            self.unverified.add(-1)  # so that every read checks whether its entry was found


class Sealed:
    """A segment that never changes again.  Entries outside first_index..stop_index were removed."""

    def __init__(self, disk: Disk, meta: SegmentMeta, size: int) -> None:
        self.disk, self.meta, self.size, self.name = disk, meta, size, name_of(meta)
        self.first_index, self.stop_index = meta.min_index, meta.max_index + 1
        self._base_index = meta.base_index
        self._open: _Open | None = None

    @cached_property
    def info(self) -> SegmentInfo:
        return _info(self, "sealed")

    def read(self, index: int) -> bytes:
        loaded = self._open or self._load()
        i = index - self._base_index
        if loaded.unverified:
            self._verify(loaded, i)
        start = loaded.starts[i] + _FRAME_HEADER_SIZE
        return loaded.source[start : start + loaded.lengths[i]]

    def _verify(self, loaded: "_Open", i: int) -> None:
        """Verify the batch of entry i, counted from the base, unless it was verified before."""
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
        except CorruptError as error:
            return report(self.name, error.offset, (start, stop - 1), error.why, on_damage)
        data = loaded.data
        yield from emit(
            self.name,
            self.meta,
            loaded.found,
            lambda begin, end: data[begin:end],
            (start, stop),
            on_damage,
            verify=verify,
        )

    def check(self) -> Damage | None:
        """Read every byte, not mapped: a failing disk raises an error instead of a signal."""
        file = self.disk.open(self.name)
        try:
            data = memoryview(file.read_at(0, self.size))
        finally:
            file.close()
        return next(iter(self.judge(data).damage()), None)

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
            found = self.judge(data).found
            self._open = _Open(
                data, found, is_whole=len(found.starts) >= self.stop_index - self._base_index
            )
        return self._open

    def judge(self, data: memoryview) -> "JudgedSealed":
        """Find the batches by the index; by following the frames if the index is damaged.

        Frames lead only up to the first bad batch: a length in it may be wrong, and then entries
        after it would be counted wrong.  CorruptError if this is another segment.
        """
        header = fmt.decode_header(data)
        if header != header_of(self.meta):
            why = header.why if isinstance(header, Flaw) else f"its header says {header}"
            raise CorruptError(self.name, 0, why)
        found = fmt.scan_sealed(data, self.meta.index_start)
        if isinstance(found, fmt.Scan):
            return JudgedSealed(self.meta, data, found, None)
        again = fmt.scan_sealed(data, self.meta.index_start, strict=False)
        if isinstance(again, fmt.Scan) and _last_holds(data, again):
            return JudgedSealed(self.meta, data, again, None)
        return JudgedSealed(self.meta, data, fmt.scan(data), found)


@dataclass(frozen=True, slots=True)
class JudgedSealed:
    """The batches of a sealed segment.  With a flaw of the index, they were found by the frames."""

    meta: SegmentMeta
    data: memoryview
    found: fmt.Scan
    index_flaw: Flaw | None

    def bad(self) -> list[int]:
        """Return which batches do not match their checksums."""
        return fmt.bad_slices(self.data, self.found.begins, self.found.commits)

    def damage(self) -> Iterator[Damage]:
        """Yield what is damaged of the entries that were not removed, and of the index."""
        meta, found, flaw = self.meta, self.found, self.index_flaw
        name, base = name_of(meta), meta.base_index
        for k in self.bad():
            first = max(meta.min_index, base + (int(found.counts[k - 1]) if k else 0))
            last = min(meta.max_index, base + int(found.counts[k]) - 1)
            if first <= last:
                yield Damage(name, int(found.begins[k]), first, last, fmt.BAD_CHECKSUM)
        first = max(meta.min_index, base + len(found.starts))
        if first <= meta.max_index:
            why = flaw.why if flaw else f"only {len(found.starts)} entries"
            yield Damage(name, found.stop, first, meta.max_index, why)
        elif flaw is not None:
            yield Damage(name, flaw.offset, 0, 0, f"{flaw.why}; its entries can be read")


def _last_holds(data: memoryview, found: fmt.Scan) -> bool:
    """Return whether the index can be relied on: it is in the last batch, which has a checksum."""
    return fmt.batch_holds(data, int(found.begins[-1]), int(found.commits[-1]))


class Active:
    """The segment that entries are appended to.

    `count` grows last, so that readers see only whole batches.
    """

    def __init__(self, file: File | None, meta: SegmentMeta, found: fmt.Scan) -> None:
        self._file, self.meta, self.name = file, meta, name_of(meta)
        self.first_index = meta.min_index
        self.starts, self.commits, self.counts = array("q"), array("q"), array("q")
        self.count = self.stop = self.index_start = 0
        self._recent: tuple[int, bytes] = (-1, b"")  # a batch that was read, and what it holds
        self.extend(found)

    @property
    def has_file(self) -> bool:
        """Whether the file of this segment was created."""
        return self._file is not None

    @property
    def file(self) -> File:
        assert self._file is not None, "an entry of a segment that has no file"
        return self._file

    @property
    def stop_index(self) -> int:
        return self.meta.base_index + self.count

    @property
    def size(self) -> int:
        return self.stop

    @property
    def info(self) -> SegmentInfo:
        return _info(self, "active")

    def extend(self, found: fmt.Scan) -> None:
        """Show batches that are durable and come next."""
        counts = found.counts + self.count
        self.starts.frombytes(found.starts.astype(np.int64).tobytes())
        self.commits.frombytes(found.commits.astype(np.int64).tobytes())
        self.counts.frombytes(counts.astype(np.int64).tobytes())
        self.stop, self.index_start = found.stop, found.index_start
        self.count = len(self.starts)

    def encode(
        self, payloads: Sequence[Bytes], lengths: list[int], size_limit: int | None
    ) -> fmt.Batch:
        """Encode the next batch.  It seals the segment at `size_limit`; with None in any case."""
        return fmt.encode_batch(
            payloads,
            offset=self.stop,
            header=b"" if self.stop else fmt.encode_header(header_of(self.meta)),
            earlier=self.starts,
            size_limit=size_limit,
            lengths=lengths,
        )

    def push(self, batch: fmt.Batch) -> None:
        """Show one batch that was just written and synced."""
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
        yield from emit(
            self.name,
            self.meta,
            self._layout(),
            lambda begin, end: memoryview(self.file.read_at(begin, end - begin)),
            (start, stop),
            on_damage,
            verify=verify,
        )

    def starting_at(self, meta: SegmentMeta) -> "Active":
        """Return the same segment with fewer entries at its head, to use in place of this one."""
        other = Active(self._file, meta, fmt.NOTHING)
        other.starts, other.commits, other.counts = self.starts, self.commits, self.counts
        other.count, other.stop, other.index_start = self.count, self.stop, self.index_start
        return other

    def check(self) -> None:
        """Return nothing: what its end means, recovery says."""

    def unload(self) -> None:
        """Nothing is loaded: it is read with plain reads."""

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
        unknown = np.zeros(0, np.int64)  # the frames themselves say it
        return fmt.Scan(starts, unknown, begins, commits, counts, 0, self.stop, None)


def open_segments(disk: Disk, found: Survey) -> tuple[Sealed | Active, ...]:
    """Open the segments that a survey found.  FileNotFoundError if one was removed since."""
    segments: list[Sealed | Active] = []
    for meta in found.state.segments:
        name = name_of(meta)
        if meta.sealed:
            segments.append(Sealed(disk, meta, found.sizes.get(name, 0)))
        else:
            file = disk.open(name) if name in found.sizes else None
            segments.append(Active(file, meta, found.found))
    return tuple(segments)


def created_ms(meta: SegmentMeta) -> int:
    return from_rfc3339(meta.create_time)


def _info(segment: Sealed | Active, state: str) -> SegmentInfo:
    meta, first, last = segment.meta, segment.first_index, segment.stop_index - 1
    id = f"{meta.id:016x}"
    return SegmentInfo(segment.name, state, first, last, segment.size, created_ms(meta), id)


def read_batches(file: File, stop: int) -> fmt.Scan:
    """Find whole, valid batches from byte `stop` on, which is 0 or after a commit.

    If nothing is new, eight bytes are read.
    """
    size = _READ_SIZE_MIN if any(file.read_at(stop, fmt.FRAME_HEADER_SIZE)) else 0
    while True:
        data = file.read_at(stop, size)
        found = fmt.scan(memoryview(data), stop)
        if len(found.commits) or found.flaw is None or len(data) < size:
            return found
        size *= 4
