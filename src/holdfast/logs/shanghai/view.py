"""The segments of a Shanghai log, open for reading: sealed ones, and the active one that grows.

A sealed segment never changes again, so it is read through a memory map.  The active segment may
be cut by its owner's recovery while it is read, so it is read with plain reads.
"""

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from holdfast.disk import Disk, File
from holdfast.errors import CorruptError
from holdfast.formats import shanghai as fmt
from holdfast.formats.flaw import Flaw
from holdfast.logs.log import BATCH_ENTRIES_MAX, BATCH_SIZE_MAX, Damage, OnDamage, SegmentInfo

if TYPE_CHECKING:
    import pyarrow as pa

_READ_SIZE = 8 * 2**20
_SKIPS_MAX = 64  # damaged entries counted one by one; then the whole rest is called damaged


class Sealed:
    """A segment that has a successor: stop_index is the successor's first LSN."""

    def __init__(self, disk: Disk, name: str, size: int, header: fmt.Header, stop: int) -> None:
        self.disk, self.name, self.size, self.header = disk, name, size, header
        self.first_index, self.stop_index = header.first_lsn, stop
        self._open: tuple[memoryview, fmt.Bounds] | None = None

    @property
    def info(self) -> SegmentInfo:
        return _info(self, "sealed")

    def read(self, lsn: int) -> bytes:
        data, bounds = self._open or self.load()
        i = lsn - self.first_index
        if i >= len(bounds) - 1:
            raise self._broken(bounds)
        begin = bounds.item(i)
        payload = fmt.payload_at(data, begin, bounds.item(i + 1))
        if payload is None:
            raise CorruptError(self.name, begin, f"entry {lsn}: {fmt.BAD_CHECKSUM}")
        return payload

    def scan(
        self, start: int, stop: int, on_damage: OnDamage | None = None, *, verify: bool = True
    ) -> "Iterator[pa.RecordBatch]":
        try:
            data, bounds = self.load()
        except CorruptError as broken:
            if on_damage is None:
                raise
            return on_damage(Damage(self.name, broken.offset, start, stop - 1, broken.why))
        found = min(stop, self.first_index + len(bounds) - 1)
        emit = _Emitter(self.name, on_damage, verify=verify)
        for first, last in _cut(bounds, start - self.first_index, found - self.first_index):
            begin = int(bounds[first])
            region = data[begin : int(bounds[last])]
            relative = bounds[first : last + 1] - begin
            yield from emit.batches(begin, region, relative, self.first_index + first)
        if found < stop:
            error = self._broken(bounds)
            if on_damage is None:
                raise error
            on_damage(Damage(self.name, error.offset, max(start, found), stop - 1, error.why))

    def load(self) -> tuple[memoryview, fmt.Bounds]:
        """The bytes and where its entries are, found once."""
        if self._open is None:
            file = self.disk.open(self.name)
            try:
                data = file.map()  # the map outlives the file
            finally:
                file.close()
            found = fmt.scan(data, verify=False)
            count, wanted = len(found.bounds) - 1, self.stop_index - self.first_index
            if count > wanted or (found.flaw is None and count < wanted):
                raise CorruptError(self.name, 32, self._miscounted(count))
            self._open = data, found.bounds
        return self._open

    def unload(self) -> None:
        self._open = None

    def close(self) -> None:
        self.unload()

    def check(self) -> Damage | None:
        """Every byte read, not mapped: a dying disk answers with an error instead of a signal."""
        bad: list[Flaw] = []
        lsns: list[int] = []
        lsn, offset = self.first_index, fmt.HEADER_SIZE
        file = self.disk.open(self.name)
        try:
            while True:
                bounds, flaw = read_entries(file, offset, self.size)
                lsn += len(bounds) - 1
                if flaw is None or flaw.why != fmt.BAD_CHECKSUM or len(bad) == _SKIPS_MAX:
                    break
                bad.append(flaw)
                lsns.append(lsn)
                lsn, offset = lsn + 1, flaw.offset + fmt.entry_size(file.read_at(flaw.offset, 8))
        finally:
            file.close()
        if flaw is None and lsn == self.stop_index:
            return Damage(self.name, bad[0].offset, lsns[0], lsns[-1], bad[0].why) if bad else None
        if lsn > self.stop_index or (flaw is None and not bad):
            return Damage(self.name, 32, 0, 0, self._miscounted(lsn - self.first_index))
        first, flaw = (lsns[0], bad[0]) if bad else (lsn, flaw)
        assert flaw is not None
        return Damage(self.name, flaw.offset, first, self.stop_index - 1, flaw.why)

    def _miscounted(self, count: int) -> str:
        return f"{count} entries, but LSNs {self.first_index} to {self.stop_index - 1}"

    def _broken(self, bounds: fmt.Bounds) -> CorruptError:
        offset = int(bounds[-1])
        flaw = fmt.decode_entry(self.load()[0], offset)
        why = flaw.why if isinstance(flaw, Flaw) else "entries are missing"
        lsn = self.first_index + len(bounds) - 1
        return CorruptError(self.name, offset, f"entries {lsn} to {self.stop_index - 1}: {why}")


class Active:
    """The last segment.  Bytes up to bounds[-1] are durable; an entry shows when its bound does."""

    def __init__(self, file: File, name: str, header: fmt.Header, bounds: "array[int]") -> None:
        self.file, self.name, self.header, self.bounds = file, name, header, bounds
        self.first_index = header.first_lsn

    @property
    def stop_index(self) -> int:
        return self.first_index + len(self.bounds) - 1

    @property
    def size(self) -> int:
        return self.bounds[-1]

    @property
    def info(self) -> SegmentInfo:
        return _info(self, "active")

    def read(self, lsn: int) -> bytes:
        i = lsn - self.first_index
        begin, end = self.bounds[i], self.bounds[i + 1]
        payload = fmt.payload_at(self.file.read_at(begin, end - begin), 0, end - begin)
        if payload is None:
            raise CorruptError(self.name, begin, f"entry {lsn}: {fmt.BAD_CHECKSUM}")
        return payload

    def scan(
        self, start: int, stop: int, on_damage: OnDamage | None = None, *, verify: bool = True
    ) -> "Iterator[pa.RecordBatch]":
        emit = _Emitter(self.name, on_damage, verify=verify)
        offset = start - self.first_index
        bounds = np.array(self.bounds[offset : stop - self.first_index + 1], np.int64)
        for first, last in _cut(bounds, 0, stop - start):
            begin, end = int(bounds[first]), int(bounds[last])
            region = memoryview(self.file.read_at(begin, end - begin))
            relative = bounds[first : last + 1] - begin
            yield from emit.batches(begin, region, relative, start + first)

    def check(self) -> None:
        """Return nothing: what its end means, the other segments and the mark say."""

    def unload(self) -> None:
        """Nothing is loaded: it is read with plain reads."""

    def close(self) -> None:
        self.file.close()


def _info(segment: Sealed | Active, state: str) -> SegmentInfo:
    header, last = segment.header, segment.stop_index - 1
    name, first, size = segment.name, segment.first_index, segment.size
    return SegmentInfo(name, state, first, last, size, header.created_ms, str(header.id))


def read_entries(file: File, offset: int, size: int) -> "tuple[array[int], Flaw | None]":
    """Scan bytes offset..size in bounded reads: where entries are, and the flaw that ends them."""
    bounds, at, step = array("q", [offset]), offset, _READ_SIZE
    while at < size:
        data = file.read_at(at, min(step, size - at))
        found = fmt.scan(data, 0)
        if len(found.bounds) > 1:
            bounds.frombytes((found.bounds[1:] + at).tobytes())
            at, step = bounds[-1], _READ_SIZE
        elif len(data) < (needs := fmt.entry_size(data)) <= min(size - at, fmt.ENTRY_SIZE_MAX):
            if len(data) < step:
                return bounds, Flaw(at, "the file is shorter than its directory said")
            step = needs  # the read, not the file, cut this entry
        else:
            return bounds, Flaw(at, found.flaw.why if found.flaw else "no entry")
    return bounds, None


def _cut(bounds: fmt.Bounds, first: int, stop: int) -> Iterator[tuple[int, int]]:
    """Entries first..stop-1 in runs that make a decent Arrow batch."""
    while first < stop:
        room = int(np.searchsorted(bounds, bounds[first] + BATCH_SIZE_MAX, "right")) - 1
        last = min(stop, first + BATCH_ENTRIES_MAX, max(room, first + 1))
        yield first, last
        first = last


class _Emitter:
    """Makes Arrow batches of sound entries; raises at a damaged one, or reports it and goes on."""

    def __init__(self, name: str, on_damage: OnDamage | None, *, verify: bool) -> None:
        self._name, self._on_damage, self._verify = name, on_damage, verify

    def batches(
        self, begin: int, region: memoryview, bounds: fmt.Bounds, lsn: int
    ) -> "Iterator[pa.RecordBatch]":
        """`region` is the file's bytes from `begin` on; `bounds` are relative to it."""
        bad = fmt.bad_checksums(region, bounds) if self._verify else []
        first = 0
        for stop in (*bad, len(bounds) - 1):
            if first < stop:
                yield _batch(begin, region, bounds[first : stop + 1], lsn + first)
            if stop == len(bounds) - 1:
                return
            offset, why = begin + int(bounds[stop]), f"entry {lsn + stop}: checksum mismatch"
            if self._on_damage is None:
                raise CorruptError(self._name, offset, why)
            self._on_damage(Damage(self._name, offset, lsn + stop, lsn + stop, why))
            first = stop + 1


def _batch(begin: int, region: memoryview, bounds: fmt.Bounds, lsn: int) -> "pa.RecordBatch":
    import pyarrow as pa

    count = len(bounds) - 1
    views = pa.py_buffer(fmt.payload_views(region, bounds))
    payload = pa.Array.from_buffers(pa.binary_view(), count, [None, views, pa.py_buffer(region)])
    index = pa.array(np.arange(lsn, lsn + count, dtype=np.int64))
    offset = pa.array(bounds[:-1] + begin)
    return pa.RecordBatch.from_arrays([index, payload, offset], ["index", "payload", "offset"])
