"""The background writer: from the log to the year files, in the order of the design.

Data, sync, index, sync; then the log records that the groups are done.  So after a crash no index
in a year file is there before its data.  The log still has every group that is not recorded as
done, and the next owner writes the same bytes again.

Intervals of ticks are read, merged and written whole, often in place.  The result is put into the
log first, as a plan.  So it too can be written again, and no row is added twice.
"""

import logging
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.bars import parts
from holdfast.bars.catalog import Catalog, read_header, split_path, year_path
from holdfast.bars.commits import Commits
from holdfast.bars.view import NEW_FILE, Change, Payloads, Placed, new_files
from holdfast.bars.year_files import Files
from holdfast.cuts import keep_aside
from holdfast.disk import Disk, File
from holdfast.errors import CorruptError
from holdfast.formats import market_wal as wal
from holdfast.formats import year_file as fmt
from holdfast.formats.bar_time import parse_timeframe
from holdfast.formats.flaw import Flaw
from holdfast.group_commit import Alone
from holdfast.metrics import Histogram, Metric
from holdfast.runtime import Runtime

_LOG = logging.getLogger("holdfast")
Ints = npt.NDArray[np.int64]


class WriteBack:
    """The background writer of an owner."""

    def __init__(
        self,
        disk: Disk,
        catalog: Catalog,
        commits: Commits,
        runtime: Runtime,
        *,
        size_max: int,
        compress: bool | None,
        open_files_max: int,
    ) -> None:
        self._disk, self._catalog, self._commits = disk, catalog, commits
        self._size_max, self._compress = size_max, compress
        self._monotonic = runtime.monotonic
        self._files, self._volume = Files(disk, open_files_max), disk.volume()
        self.alone = Alone(runtime)
        self._seconds, self._group_count = Histogram(), 0

    def run(self) -> int:
        """Write all groups that are committed now to the year files; return how many there were.

        They are written in steps, because a group may be large.
        """
        return self.alone.run(self._run)

    def metrics(self) -> list[Metric]:
        return [
            Metric("written_back_total", "counter", self._group_count, "groups written back"),
            self._seconds.metric("write_back_seconds", "time that one step of write-back takes"),
        ]

    def close(self) -> None:
        self._files.close()
        self._volume.close()

    def _run(self) -> int:
        wanted, done = len(self._commits.pending.waiting()), 0
        while (step := self._commits.guarded(self._step)) and (done := done + step) < wanted:
            pass
        return done

    def _step(self) -> int:
        began = self._monotonic()
        changes = self._commits.pending.waiting()
        plans = [change for change in changes if change.is_plan]
        if plans:  # of a previous owner: it is carried out unchanged
            covered = plans[0].covers
            changes = [change for change in changes if change.tgid in covered] + plans[:1]
        else:
            changes = first_of(changes, self._size_max)
        if not changes:
            self._commits.remove_finished()
            return 0
        batch = Batch(changes)
        make_files(batch, self._catalog, self._files)
        if not plans:
            placed = plan_ticks(batch, self._disk, self._files, self._compress)
            if placed:
                plan = self._commits.log_plan([change.tgid for change in changes], placed)
                batch = Batch([*changes, plan])
        collect(batch, self._catalog, self._files)
        batch.data.carry_out(self._files)
        self._volume.sync()
        batch.index.carry_out(self._files)
        self._volume.sync()
        self._commits.retire(batch.changes)
        self._commits.remove_finished()
        self._group_count += len(changes)
        self._seconds.observe(self._monotonic() - began)
        return len(changes)


class Writes:
    """Paths, offsets and bytes to write, as columns: an object for each write is too slow.

    There may be more files than can be open.  Passes alternate direction, so that files left open
    by one pass are used first by the next.
    """

    def __init__(self, *, backwards: bool) -> None:
        self._backwards = backwards
        self.paths: list[str] = []
        self.offsets: list[int] = []
        self.data: list[bytes] = []

    def add(self, path: str, offset: int, data: bytes) -> None:
        self.paths.append(path)
        self.offsets.append(offset)
        self.data.append(data)

    def carry_out(self, files: Files) -> None:
        get = files.get
        writes = list(zip(self.paths, self.offsets, self.data, strict=True))
        for path, offset, data in reversed(writes) if self._backwards else writes:
            get(path).write_at(offset, data)


class Batch:
    """Changes to write to the year files, by kind, and their writes in two phases."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes = changes
        self.plans = [change for change in changes if change.is_plan]
        planned = frozenset[int]().union(*(plan.covers for plan in self.plans))
        self.new: dict[str, wal.WriteSet] = {}
        self.bars: dict[str, list[wal.WriteSet]] = {}
        self.ticks: dict[str, list[wal.WriteSet]] = {}  # that no plan covers
        self.data, self.index = Writes(backwards=True), Writes(backwards=False)
        for change in changes:
            for one in () if change.is_plan else change.sets:
                if one.kind == wal.FIXED or (one.kind == wal.REMOVED and one.width == 0):
                    self.bars.setdefault(one.path, []).append(one)
                elif one.kind in NEW_FILE:
                    self.new[one.path] = one
                elif change.tgid not in planned and one.kind != wal.DECISION:
                    self.ticks.setdefault(one.path, []).append(one)

    @property
    def paths(self) -> set[str]:
        placed = [path for plan in self.plans for path in plan.by_path if path]
        return {*self.new, *self.bars, *self.ticks, *placed}


def first_of(changes: Sequence[Change], size_max: int) -> list[Change]:
    """Return the first changes, of at most `size_max` bytes, but at least one."""
    sizes = np.cumsum([len(change.group.body) for change in changes])
    return list(changes[: max(1, int(np.searchsorted(sizes, size_max, side="right")))])


def make_files(batch: Batch, catalog: Catalog, files: Files) -> None:
    """Create the files that groups bring, and the missing ones that they name."""
    for schema, key, year in new_files(batch.new.values()):
        files.make(year_path(key, year), _header(key, year, schema))
        catalog.add(key, year, schema)
    for path in sorted(batch.paths - batch.new.keys() - catalog.present):
        named = split_path(path)
        if named is not None and named.year not in catalog.years(named.key):
            known = catalog.schema(named.key)
            if known is None:
                raise CorruptError(path, 0, "the year file is missing; its schema is unknown")
            files.make(path, _header(named.key, named.year, known))
            catalog.add(named.key, named.year, known)
    catalog.present |= batch.paths


def _header(key: str, year: int, schema: fmt.Schema) -> fmt.Header:
    return fmt.Header(year, parse_timeframe(key.split("/")[1]), schema)


def plan_ticks(batch: Batch, disk: Disk, files: Files, compress: bool | None) -> dict[str, Placed]:
    """Plan what intervals of ticks will hold, and where; empty if there are no ticks."""
    return {
        path: _Planner(disk, files.get(path), path, compress).plan(sets)
        for path, sets in batch.ticks.items()
    }


class _Planner:
    """Merges what is new into the intervals of one file."""

    def __init__(self, disk: Disk, file: File, path: str, compress: bool | None) -> None:
        self._disk, self._file, self._path, self._compress = disk, file, path, compress
        self._header = read_header(file, path)
        self._schema = self._header.schema
        if not self._schema.is_variable:
            raise CorruptError(path, 280, "many rows for a file of one row per interval")
        self._stop = max(file.size(), self._header.stop)

    def plan(self, sets: Sequence[wal.WriteSet]) -> Placed:
        touched = list(dict.fromkeys(index for one in sets for index in one.index.tolist()))
        old = {index: slot for index in touched if (slot := self._slot(index))[2]}
        kept = {index: payload for index in old if (payload := self._payload(index, old[index]))}
        whole = parts.Part(np.array(list(kept), np.int64), [], list(kept.values()), None)
        ticks = parts.overlaid_ticks(whole, self._schema, sets, {}, self._path)
        payloads: Payloads = {}
        slots = np.zeros(len(touched), fmt.SLOT)
        for at, index in enumerate(touched):
            low, high = np.searchsorted(ticks.index, [index, index + 1])
            if low < high:  # else it is emptied: a slot of zeros
                rows = ticks.rows[low:high].tobytes()
                payload = fmt.encode_payload(rows, compress=self._squeezes(kept.get(index)))
                offset = self._place(old.get(index), len(payload))
                payloads[offset] = payload
                slots[at] = (index, offset, len(payload))
        offsets = np.array([self._schema.offset_of(index) for index in touched], np.int64)
        return Placed(self._header.year, payloads, offsets, slots)

    def _slot(self, index: int) -> tuple[int, int, int]:
        data = self._file.read_at(self._schema.offset_of(index), fmt.SLOT.itemsize)
        data = data.ljust(fmt.SLOT.itemsize, b"\0")
        slot: tuple[int, int, int] = np.frombuffer(data, fmt.SLOT)[0].item()
        return slot

    def _payload(self, index: int, slot: tuple[int, int, int]) -> bytes:
        """Return the payload of an interval; an unreadable one is kept in a cut file."""
        stored, offset, length = slot
        sound = stored == index and self._header.stop <= offset <= offset + length <= self._stop
        data = self._file.read_at(offset, length) if sound else np.array(slot).tobytes()
        if sound and not isinstance(fmt.decode_payload(data, self._schema.stored.itemsize), Flaw):
            return data
        kept = keep_aside(self._disk, self._path.replace("/", "_"), offset, data)
        _LOG.error("%s: interval %d cannot be read; kept in %s", self._path, index, kept)
        return b""

    def _squeezes(self, old: bytes | None) -> bool:
        """Return whether to compress, as the file does: a server reads only one of the two."""
        if self._compress is None and old is None:
            first, last = self._header.first_index, self._header.last_index
            part, _ = parts.read_tail(self._file, self._header, first, last, (), 1)
            old = part.payloads[-1] if part.payloads else None
        if self._compress is None:
            rows = fmt.decode_payload(old or b"", self._schema.stored.itemsize)
            self._compress = isinstance(rows, Flaw) or rows[1]
        return self._compress

    def _place(self, old: tuple[int, int, int] | None, length: int) -> int:
        """Return the place: the old one if its payload ends the file, as MarketStore does it."""
        at_end = old is not None and old[1] + old[2] == self._stop and old[1] >= self._header.stop
        offset = old[1] if at_end and old is not None else self._stop
        self._stop = max(self._stop, offset + length)
        return offset


def collect(batch: Batch, catalog: Catalog, files: Files) -> None:
    """Collect all writes of a batch: data for before the first sync, indexes for after it."""
    singles: dict[tuple[fmt.Schema, int], list[wal.WriteSet]] = {}
    keys = [path[: path.rindex("/")] for path in batch.bars]
    for sets, schema in zip(batch.bars.values(), catalog.schemas(keys), strict=True):
        assert schema is not None  # its files exist now
        one = sets[0]
        if len(sets) == one.count == 1 and one.kind == wal.FIXED:
            singles.setdefault((schema, id(one.body)), []).append(one)
        else:
            _collect_bars(batch, one.path, schema, sets, files)
    for (schema, _), ones in singles.items():
        _collect_singles(batch, schema, ones)
    for plan in batch.plans:
        _collect_plan(batch, plan)


def _collect_singles(batch: Batch, schema: fmt.Schema, ones: Sequence[wal.WriteSet]) -> None:
    """Collect one bar for each of many files, from one group: the usual case of live bars."""
    width = schema.row.itemsize
    index, data = wal.single_rows(ones, width)
    offsets = schema.offset_of(0) + index * schema.record_size
    paths, size = [one.path for one in ones], len(ones)
    fields = fmt.new_year_marked(index, data).astype("<i8").tobytes()
    rows = data.tobytes()
    batch.data.paths += paths
    batch.data.offsets += (offsets + 8).tolist()
    batch.data.data += [rows[n : n + width] for n in range(0, size * width, width)]
    batch.index.paths += paths
    batch.index.offsets += offsets.tolist()
    batch.index.data += [fields[n : n + 8] for n in range(0, size * 8, 8)]


def _collect_plan(batch: Batch, plan: Change) -> None:
    for path, sets in plan.by_path.items():
        for one in sets if path else ():
            writes = batch.index if one.year else batch.data
            for offset, row in zip(one.index.tolist(), one.rows, strict=True):
                writes.add(path, offset, row.tobytes())


def _collect_bars(
    batch: Batch, path: str, schema: fmt.Schema, sets: Sequence[wal.WriteSet], files: Files
) -> None:
    index: Ints = _joined([one.index for one in sets])
    gone = np.repeat([one.kind == wal.REMOVED for one in sets], [one.count for one in sets])
    rows = _joined([parts.stored_rows(one, schema) for one in sets])
    if (index[1:] <= index[:-1]).any():
        order = np.argsort(index, kind="stable")
        order = order[np.append(index[order][1:] != index[order][:-1], True)]  # the later counts
        index, gone, rows = index[order], gone[order], rows[order]
    cuts = np.flatnonzero((np.diff(index) != 1) | (gone[1:] != gone[:-1]) | (index[:-1] == 0)) + 1
    for low, high in pairwise([0, *cuts.tolist(), len(index)]):
        first, offset = int(index[low]), schema.offset_of(int(index[low]))
        if gone[low]:
            batch.index.add(path, offset, bytes((high - low) * schema.record_size))
        elif high - low == 1:
            _collect_bar(batch, path, schema, first, rows[low].tobytes())
        else:
            _collect_run(batch, path, schema, index[low:high], rows[low:high], files)


def _joined(arrays: Sequence[npt.NDArray[Any]]) -> Any:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _collect_bar(batch: Batch, path: str, schema: fmt.Schema, index: int, data: bytes) -> None:
    offset = schema.offset_of(index)
    stored = index if index or any(data) else fmt.NO_DATA_MARK
    batch.data.add(path, offset + 8, data)
    batch.index.add(path, offset, stored.to_bytes(8, "little", signed=True))


def _collect_run(
    batch: Batch,
    path: str,
    schema: fmt.Schema,
    index: Ints,
    rows: npt.NDArray[np.void],
    files: Files,
) -> None:
    """Collect consecutive records: each is written twice, first with its old index."""
    offset, size = schema.offset_of(int(index[0])), len(rows) * schema.record_size
    old = files.get(path).read_at(offset, size).ljust(size, b"\0")
    records = np.frombuffer(old, np.uint8).reshape(len(rows), -1).copy()
    width = schema.row.itemsize
    records[:, 8 : 8 + width] = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), width)
    batch.data.add(path, offset, records.tobytes())
    records[:, :8] = index.astype("<i8").view(np.uint8).reshape(-1, 8)
    batch.index.add(path, offset, records.tobytes())
