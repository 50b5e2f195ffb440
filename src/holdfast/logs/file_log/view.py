"""A picture of a FileLog: its index files, open for reading, and its snapshot.

The last file is active: it takes entries (holdfast.logs.file_log.active).  The others are sealed:
only a rollback changes them.  A file is covered if the snapshot stands for all of its entries.

A rollback changes any file in place, so nothing that is returned is mapped: bytes are copied, and
then the copy is confirmed.  Within the owner's process `revoke` says what a rollback removes.  A
guest has a witness of each file, taken with the view: the slot and the header of its last entry.  A
rollback clears that slot first, and an entry that is written in its place has another request id or
term.  An entry without a request id counts only while the mark was not lowered.

The format has no checksums.  These faults are detected: slots that do not increase, entries that
end beyond the file, are shorter than their header, or have an unknown type.  They are not returned.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from holdfast.disk import Disk, File
from holdfast.errors import ChangedError, CorruptError
from holdfast.formats import rlog, snapshot_file
from holdfast.formats.flaw import Flaw
from holdfast.formats.mark import Mark
from holdfast.formats.rlog_entry import (
    CHECKPOINT,
    ENTRY_HEADER_SIZE,
    NO_REQUEST,
    TYPE_NAMES,
    TYPE_OFFSET,
    EntryHeaders,
    Offsets,
    bad_entries,
    decode_headers,
)
from holdfast.formats.views import binary_views
from holdfast.logs.file_log.directory import IndexFile, base_name, reader
from holdfast.logs.file_log.examined import NOT_AN_ENTRY, count_sound, examine
from holdfast.logs.file_log.history import created_ms
from holdfast.logs.log import BATCH_ENTRIES_MAX, BATCH_SIZE_MAX, Damage, OnDamage, SegmentInfo
from holdfast.logs.mark import was_lowered
from holdfast.logs.view import View

if TYPE_CHECKING:
    import pyarrow as pa

_BLANK = bytes(ENTRY_HEADER_SIZE)


class Witness(NamedTuple):
    """The last entry of an index file, as it was when the view was made."""

    slot: int  # of the entry
    end: bytes  # what is in that slot
    start: int  # the byte at which the entry begins
    header: bytes
    mark: Mark | Flaw | None  # of the log, read before

    def is_in(self, file: File) -> bool:
        """Return whether the file still has this entry, so that no earlier one was replaced."""
        offset = rlog.TABLE_START + rlog.SLOT_SIZE * self.slot
        end = file.read_at(offset, rlog.SLOT_SIZE)
        return end == self.end and file.read_at(self.start, len(self.header)) == self.header


def take_witness(
    file: File, head: rlog.Head, count: int, mark: Mark | Flaw | None
) -> Witness | None:
    """Return the witness of the `count` entries in an open file; None if there are none."""
    if not count:
        return None
    first = max(count - 2, 0)
    offset = rlog.TABLE_START + rlog.SLOT_SIZE * first
    ends = file.read_at(offset, rlog.SLOT_SIZE * (count - first))
    begin = int.from_bytes(ends[: -rlog.SLOT_SIZE], "little")
    start = head.data_start + begin
    header = file.read_at(start, ENTRY_HEADER_SIZE)
    return Witness(count - 1, ends[-rlog.SLOT_SIZE :], start, header, mark)


def witness_of(
    disk: Disk, found: IndexFile, count: int, mark: Mark | Flaw | None
) -> Witness | None:
    assert isinstance(found.head, rlog.Head), "only such files have entries"
    with closing(disk.open(found.name)) as file:
        return take_witness(file, found.head, count, mark)


class Loaded(NamedTuple):
    """The slots of an index file, and where its bytes are read."""

    file: File
    ends: rlog.Slots
    sound: int  # entries from here on cannot be read ...
    flaw: Flaw  # ... because of this
    witness: Witness | None = None  # of a guest


class Segment:
    """An index file with `count` entries from index `base` on.

    `first_index` and `stop_index` leave out the entries before `floor`, which the snapshot covers.
    A guest has a `witness`: an owner in another process may change the file.
    """

    state = "sealed"
    _open: Loaded | None = None

    def __init__(
        self,
        disk: Disk,
        found: IndexFile,
        head: rlog.Head,
        count: int,
        *,
        floor: int = 1,
        witness: Witness | None = None,
    ) -> None:
        self.disk, self.name, self.size, self.head = disk, found.name, found.size, head
        self.base, self.count, self.witness = found.index, count, witness
        self.floor, self.first_index = floor, max(found.index, floor)
        self._revoked_from = rlog.INDEX_MAX + 1

    @property
    def stop_index(self) -> int:
        return max(self.base + self.count, self.floor)

    @property
    def info(self) -> SegmentInfo:
        is_covered = self.state == "sealed" and self.base + self.count <= self.floor
        return SegmentInfo(
            self.name,
            "covered" if is_covered else self.state,
            self.first_index,
            self.stop_index - 1,
            self.size,
            created_ms(self.head.meta),
            base_name(self.name).removesuffix(".rlog"),
        )

    @property
    def has_spare(self) -> bool:
        """Whether bytes follow the last entry: those of entries that were removed."""
        stop = self.stop_of(self.base + self.count - 1) if self.count else 0
        return self.size > self.head.data_start + stop

    def stop_of(self, index: int) -> int:
        """Return where an entry ends, in bytes after the first one begins."""
        return (self._open or self._load()).ends.item(index - self.base)

    def revoke(self, index: int) -> None:
        """Refuse the entries from `index` on, which the owner is about to remove."""
        self._revoked_from = min(self._revoked_from, index)

    def read(self, index: int) -> bytes:
        """Return one payload: the data of an entry."""
        return self.entry(index)[ENTRY_HEADER_SIZE:]

    def entry(self, index: int) -> bytes:
        """Return a whole entry, header included."""
        slot, start = index - self.base, self.head.data_start
        loaded = self._open or self._load()
        file, ends, sound, flaw, witness = loaded
        if slot >= sound:
            raise CorruptError(self.name, flaw.offset, f"entry {index}: {flaw.why}")
        begin, end = start + (ends.item(slot - 1) if slot else 0), start + ends.item(slot)
        entry = file.read_at(begin, end - begin)
        if witness is not None or index >= self._revoked_from:
            self._confirm(loaded, index + 1)
        if (
            len(entry) < max(end - begin, ENTRY_HEADER_SIZE)
            or entry[TYPE_OFFSET] > CHECKPOINT
            or entry.startswith(_BLANK)
        ):
            raise CorruptError(self.name, begin, f"entry {index}: {NOT_AN_ENTRY}")
        return entry

    def headers(self, first: int, stop: int) -> EntryHeaders:
        """Return the headers of entries first..stop-1.

        The owner maps the file meanwhile: of large entries only pages with a header are read.
        """
        loaded = self._open or self._load()
        bounds = self._bounds(loaded, first, stop)
        if loaded.witness is not None:
            return decode_headers(self._region(loaded, stop, bounds), bounds[:-1] - bounds[0])
        headers = decode_headers(loaded.file.map(), bounds[:-1])  # copies
        self._confirm(loaded, stop)
        return headers

    def scan(
        self, start: int, stop: int, on_damage: OnDamage | None = None, *, verify: bool = True
    ) -> "Iterator[pa.RecordBatch]":
        if start >= stop:
            return None
        try:
            loaded = self._open or self._load()
        except CorruptError as error:
            if on_damage is None:
                raise
            return on_damage(Damage(self.name, error.offset, start, stop - 1, error.why))
        end = max(start, min(stop, self.base + loaded.sound))
        bounds = self._bounds(loaded, start, end)
        first = 0
        while first < end - start:
            room = int(np.searchsorted(bounds, bounds[first] + BATCH_SIZE_MAX, "right")) - 1
            last = min(max(room, first + 1), first + BATCH_ENTRIES_MAX, end - start)
            here = bounds[first : last + 1]
            region = self._region(loaded, start + last, here)
            yield from self._batches(region, here, start + first, on_damage, verify=verify)
            first = last
        if end < stop:
            self._report(on_damage, loaded.flaw.offset, end, stop - 1, loaded.flaw.why)
        return None

    def check(self) -> Damage | None:
        """Read every entry and return the first damage.

        It uses reads, not a map: a failing disk then raises an error instead of a signal.
        """
        found = examine(self.disk, self.name, self.size, self.head, self.base + self.count)
        return found.damage[0] if found.damage else None

    def is_unchanged(self) -> bool:
        """Return whether the log still has this file, with the entries that are known here."""
        try:
            file = self.disk.open(self.name)
        except FileNotFoundError:
            return False
        with closing(file):
            return self._is_same(file, (self._open or self._load()).witness)

    def unload(self) -> None:
        """Release what can be loaded again."""
        self._open = None

    def close(self) -> None:
        self._open = None

    def _load(self) -> Loaded:
        file = self.disk.open(self.name)
        table = file.read_at(rlog.TABLE_START, rlog.SLOT_SIZE * self.head.header.capacity)
        ends = rlog.decode_slots(table)[: self.count]
        sound, flaw = count_sound(ends, file.size() - self.head.data_start)
        loaded = Loaded(file, ends, sound, flaw, self.witness)
        if self.witness is not None and not self._is_same(file, self.witness):
            raise self._changed()
        if sound < self.count:
            self._confirm(loaded, self.base + self.count)
        self._open = loaded
        return loaded

    def _is_same(self, file: File, witness: Witness | None) -> bool:
        """Return whether this is the file that was found, not a later one of the same name."""
        is_same = rlog.decode_head(reader(file)) == self.head
        return is_same and (witness is None or self._holds(file, witness))

    def _holds(self, file: File, witness: Witness) -> bool:
        """Return whether all entries of the file are those that they were."""
        if not witness.is_in(file):
            return False
        # Another entry without a request id may have the same header.
        has_id = not witness.header.startswith(NO_REQUEST)
        return has_id or not was_lowered(self.disk, witness.mark)

    def _bounds(self, loaded: Loaded, first: int, stop: int) -> Offsets:
        """Return where entries first..stop-1 begin and end in the file."""
        ends = loaded.ends
        slot, bounds = first - self.base, np.zeros(stop + 1 - first, np.int64)
        bounds[1:] = ends[slot : stop - self.base]
        if slot:
            bounds[0] = ends[slot - 1]
        return bounds + self.head.data_start

    def _region(self, loaded: Loaded, stop: int, bounds: Offsets) -> memoryview:
        """Return a copy of the bytes between `bounds`, of entries before `stop`."""
        begin, end = int(bounds[0]), int(bounds[-1])
        region = memoryview(loaded.file.read_at(begin, end - begin))
        self._confirm(loaded, stop)
        return region

    def _confirm(self, loaded: Loaded, stop: int) -> None:
        """Refuse a copy of entries before `stop` if a rollback may have changed them meanwhile."""
        witness = loaded.witness
        if stop > self._revoked_from or (witness and not self._holds(loaded.file, witness)):
            raise self._changed()

    def _changed(self) -> ChangedError:
        return ChangedError(
            f"{self.name} was rolled back or replaced since the last refresh; "
            "refresh, and read again"
        )

    def _report(
        self, on_damage: OnDamage | None, offset: int, first: int, last: int, why: str
    ) -> None:
        if on_damage is None:
            raise CorruptError(self.name, offset, f"entry {first}: {why}")
        on_damage(Damage(self.name, offset, first, last, why))

    def _batches(
        self,
        region: memoryview,
        bounds: Offsets,
        index: int,
        on_damage: OnDamage | None,
        *,
        verify: bool,
    ) -> "Iterator[pa.RecordBatch]":
        relative = bounds - bounds[0]
        is_bad = bad_entries(region, relative) if verify else np.diff(bounds) < ENTRY_HEADER_SIZE
        first, count = 0, len(bounds) - 1
        for one in [*np.flatnonzero(is_bad).tolist(), count]:
            if first < one:
                yield _batch(region, bounds, first, one, index + first)
            if one < count:
                at = index + one
                self._report(on_damage, int(bounds[one]), at, at, NOT_AN_ENTRY)
            first = one + 1


@dataclass(frozen=True, slots=True)
class FileLogView(View[Segment]):
    """The index files of a log, its damage, and the head of its snapshot."""

    snapshot: snapshot_file.Head | Flaw | None = None
    mark: Mark | Flaw | None = None  # as it was before the files were read


def entry_columns(batch: "pa.RecordBatch", headers: EntryHeaders) -> "pa.RecordBatch":
    """Return the entries of a scanned batch: index, term, type, request_id and data."""
    import pyarrow as pa

    types = pa.DictionaryArray.from_arrays(pa.array(headers.types, pa.uint8()), [*TYPE_NAMES])
    ids = np.ascontiguousarray(headers.request_ids)
    width = pa.binary(ids.shape[1])
    return pa.RecordBatch.from_arrays(
        [
            batch.column("index"),
            pa.array(headers.terms),
            types.cast(pa.string()),
            pa.Array.from_buffers(width, len(ids), [None, pa.py_buffer(ids)]),
            batch.column("payload"),
        ],
        ["index", "term", "type", "request_id", "data"],
    )


def _batch(
    region: memoryview, bounds: Offsets, first: int, stop: int, index: int
) -> "pa.RecordBatch":
    """Return entries first..stop-1 of those between `bounds`; a payload begins after the header."""
    import pyarrow as pa

    here = bounds[first : stop + 1]
    piece = region[int(here[0] - bounds[0]) : int(here[-1] - bounds[0])]
    starts = here[:-1] - here[0] + ENTRY_HEADER_SIZE
    views = pa.py_buffer(binary_views(piece, starts, np.diff(here) - ENTRY_HEADER_SIZE))
    payload = pa.Array.from_buffers(
        pa.binary_view(), stop - first, [None, views, pa.py_buffer(piece)]
    )
    indexes = pa.array(np.arange(index, index + stop - first, dtype=np.int64))
    return pa.RecordBatch.from_arrays(
        [indexes, payload, pa.array(here[:-1])], ["index", "payload", "offset"]
    )
