"""One index file, open for reading.

An owner maps its full files into memory.  A guest maps nothing: a rollback by the owner changes
full files too, in place.  So a guest reads copies, and looks afterwards whether the slots are still
those that it knows and the last entry still has its request id.  A rollback clears slots before
anything else is written, and whatever is written then has other request ids: so a copy that passes
is what the owner wrote for these indexes.

There are no checksums.  What can be seen is: slots that do not follow on each other, entries that
end behind the file, are shorter than their header, or of a type that there is not.  Such entries
are never served.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from holdfast.disk import Disk, File
from holdfast.errors import ChangedError, CorruptError
from holdfast.formats import rlog
from holdfast.formats.rlog_entry import (
    CHECKPOINT,
    ENTRY_HEADER_SIZE,
    TYPE_OFFSET,
    EntryHeaders,
    Offsets,
    decode_headers,
)
from holdfast.logs.file_log.batches import batch_of, count_sound, runs_of
from holdfast.logs.file_log.directory import Found, reader
from holdfast.logs.file_log.tail import TailState, bad_entries
from holdfast.logs.log import Damage, OnDamage

if TYPE_CHECKING:
    import pyarrow as pa

_NOT_AN_ENTRY = "not an entry"
_BLANK = bytes(ENTRY_HEADER_SIZE)


class Part(ABC):
    """Entries first_index..stop_index-1 of a log, in the file where they are."""

    def __init__(
        self, disk: Disk, found: Found, head: rlog.Head, count: int, *, is_shared: bool = False
    ) -> None:
        self.disk, self.name, self.size, self.head = disk, found.name, found.size, head
        self.first_index, self.count = found.index, count
        self.is_shared = is_shared  # with an owner in another process, who may change the file

    @property
    def stop_index(self) -> int:
        return self.first_index + self.count

    def read(self, index: int) -> bytes:
        """A whole entry, header included."""
        slot = index - self.first_index
        begin, end = self._bounds_of(slot)
        entry = self._read(begin, end)
        if self.is_shared:
            self._confirm(slot, slot + 1, begin, entry[:ENTRY_HEADER_SIZE])
        if (
            len(entry) < max(end - begin, ENTRY_HEADER_SIZE)
            or entry[TYPE_OFFSET] > CHECKPOINT
            or entry.startswith(_BLANK)
        ):
            raise CorruptError(self.name, begin, f"entry {index}: {_NOT_AN_ENTRY}")
        return entry

    def headers(self, first: int, stop: int) -> EntryHeaders:
        """The headers of entries first..stop-1."""
        bounds = self._bounds(first - self.first_index, stop - self.first_index)
        region = self._confirmed(first - self.first_index, bounds)
        return decode_headers(region, bounds[:-1] - bounds[0])

    def scan(
        self, start: int, stop: int, on_damage: OnDamage | None = None, *, verify: bool = True
    ) -> "Iterator[pa.RecordBatch]":
        try:
            sound = self.first_index + self.sound
        except CorruptError as error:
            if on_damage is None:
                raise
            return on_damage(Damage(self.name, error.offset, start, stop - 1, error.why))
        end = max(start, min(stop, sound))
        bounds = self._bounds(start - self.first_index, end - self.first_index)
        for first, last in runs_of(bounds):
            here = bounds[first : last + 1]
            region = self._confirmed(start + first - self.first_index, here)
            yield from self._batches(region, here, start + first, on_damage, verify=verify)
        if end < stop:
            offset, why = self._unsound()
            if on_damage is None:
                raise CorruptError(self.name, offset, f"entry {end}: {why}")
            on_damage(Damage(self.name, offset, end, stop - 1, why))

    def check(self) -> Damage | None:
        """Every entry looked at, with reads: a dying disk answers with an error, not a signal."""
        file = self.disk.open(self.name)
        try:
            data = file.read_at(0, self.size)
        finally:
            file.close()
        slots = rlog.decode_slots(data[rlog.TABLE_START : self.head.header.table_stop])
        count, ends = self.count, slots[: self.count]
        sound, why = count_sound(ends, len(data) - self.head.data_start)
        if sound < count:
            offset = rlog.TABLE_START + rlog.SLOT_SIZE * sound
            return self._damage(offset, sound, count - 1, why)
        bounds = np.concatenate([[0], ends]).astype(np.int64) + self.head.data_start
        bad = np.flatnonzero(bad_entries(memoryview(data), bounds))
        if len(bad):
            first = int(bad[0])
            return self._damage(int(bounds[first]), first, first, _NOT_AN_ENTRY)
        falls = np.flatnonzero(np.diff(decode_headers(memoryview(data), bounds[:-1]).terms) < 0)
        if len(falls):
            first = int(falls[0]) + 1
            return self._damage(int(bounds[first]), first, first, "its term is before the last one")
        return None

    @property
    @abstractmethod
    def sound(self) -> int:
        """How many entries, from the first on, can be relied on."""

    @abstractmethod
    def unload(self) -> None:
        """Let go of what can be had again."""

    def close(self) -> None:
        self.unload()

    def _bounds_of(self, slot: int) -> tuple[int, int]:
        if slot >= self.sound:
            offset, why = self._unsound()
            raise CorruptError(self.name, offset, f"entry {self.first_index + slot}: {why}")
        bounds = self._bounds(slot, slot + 1)
        return int(bounds[0]), int(bounds[1])

    @abstractmethod
    def _bounds(self, first: int, stop: int) -> Offsets:
        """Where entries first..stop-1 of this file begin and end, counted from its start."""

    def is_unchanged(self) -> bool:
        """Does the file still show the entries that are known here?"""
        try:
            file = self.disk.open(self.name)
        except FileNotFoundError:
            return False
        try:
            return self._is_same(file) and self._has_slots(file, 0, self.count)
        finally:
            file.close()

    def _is_same(self, file: File) -> bool:
        """Is this the file that was found, and not a later one of the same name?"""
        return rlog.decode_head(reader(file)) == self.head

    def _has_slots(self, file: File, first: int, stop: int) -> bool:
        known = self._ends(first, stop).tobytes()
        return file.read_at(rlog.TABLE_START + rlog.SLOT_SIZE * first, len(known)) == known

    def _confirmed(self, slot: int, bounds: Offsets) -> memoryview:
        """The bytes of the entries between these bounds, of which the first is that of `slot`."""
        region = self._region(int(bounds[0]), int(bounds[-1]))
        if self.is_shared and len(bounds) > 1:
            last = int(bounds[-2])
            header = bytes(region[last - int(bounds[0]) :][:ENTRY_HEADER_SIZE])
            self._confirm(slot, slot + len(bounds) - 1, last, header)
        return region

    def _confirm(self, first: int, stop: int, last: int, header: bytes) -> None:
        """Refuse a copy of entries first..stop-1 that a rollback may have changed meanwhile.

        The last of them begins at byte `last`, where the copy has `header`.
        """
        file = self._source()
        same = self._has_slots(file, max(first - 1, 0), stop)
        if not same or file.read_at(last, len(header)) != header:
            raise self._changed()

    def _changed(self) -> ChangedError:
        return ChangedError(
            f"{self.name} was rolled back or replaced since the last refresh; "
            "refresh, and read again"
        )

    @abstractmethod
    def _source(self) -> File:
        """The file that entries are read from."""

    @abstractmethod
    def _ends(self, first: int, stop: int) -> rlog.Slots:
        """Slots first..stop-1 as they are known."""

    def _read(self, begin: int, end: int) -> bytes:
        return bytes(self._region(begin, end))

    @abstractmethod
    def _region(self, begin: int, end: int) -> memoryview: ...

    @abstractmethod
    def _unsound(self) -> tuple[int, str]:
        """Where and why entries cannot be relied on from some on."""

    def _damage(self, offset: int, first: int, last: int, why: str) -> Damage:
        index = self.first_index
        return Damage(self.name, offset, index + first, index + last, why)

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
        bad = np.flatnonzero(is_bad).tolist()
        first, count = 0, len(bounds) - 1
        for one in [*bad, count]:
            if first < one:
                yield batch_of(region, bounds, first, one, index + first)
            if one < count:
                damage = Damage(
                    self.name, int(bounds[one]), index + one, index + one, _NOT_AN_ENTRY
                )
                if on_damage is None:
                    raise CorruptError(self.name, damage.offset, f"entry {index + one}: no entry")
                on_damage(damage)
            first = one + 1


class _Open(NamedTuple):
    """A full file that is being read: mapped, or to be read if it is shared with an owner."""

    file: File
    data: memoryview | None
    ends: rlog.Slots
    bounds: Offsets
    sound: int
    why: str


class Full(Part):
    """A file that has a successor.  It may be cut by a rollback, and then is not this any more."""

    _open: _Open | None = None

    @property
    def sound(self) -> int:
        return (self._open or self._load()).sound

    def unload(self) -> None:
        self._open = None

    def _load(self) -> _Open:
        file = self.disk.open(self.name)
        table = file.read_at(rlog.TABLE_START, rlog.SLOT_SIZE * self.head.header.capacity)
        data = None if self.is_shared else file.map()
        ends = rlog.decode_slots(table)[: self.count]
        sound, why = count_sound(ends, file.size() - self.head.data_start)
        bounds = np.empty(len(ends) + 1, np.int64)
        bounds[0], bounds[1:] = 0, ends
        found = _Open(file, data, ends, bounds + self.head.data_start, sound, why)
        if self.is_shared:
            self._refuse_other(found)
        self._open = found
        return found

    def _refuse_other(self, found: _Open) -> None:
        """Refuse a file that was rolled back since it was found, or made again."""
        last = found.ends[-1:]
        is_cut = bool(last.size) and not last[0]  # it was full when it was found
        if is_cut or not self._is_same(found.file):
            raise self._changed()
        if found.sound < self.count:
            ends = rlog.encode_slots(found.ends)
            if found.file.read_at(rlog.TABLE_START, len(ends)) != ends:
                raise self._changed()

    def _source(self) -> File:
        return (self._open or self._load()).file

    def _ends(self, first: int, stop: int) -> rlog.Slots:
        return (self._open or self._load()).ends[first:stop]

    def _bounds_of(self, slot: int) -> tuple[int, int]:
        loaded = self._open or self._load()
        if slot >= loaded.sound:
            return super()._bounds_of(slot)
        return loaded.bounds.item(slot), loaded.bounds.item(slot + 1)

    def _bounds(self, first: int, stop: int) -> Offsets:
        return (self._open or self._load()).bounds[first : stop + 1]

    def _region(self, begin: int, end: int) -> memoryview:
        loaded = self._open or self._load()
        if loaded.data is not None:
            return loaded.data[begin:end]
        return memoryview(loaded.file.read_at(begin, end - begin))

    def _unsound(self) -> tuple[int, str]:
        loaded = self._open or self._load()
        return rlog.TABLE_START + rlog.SLOT_SIZE * loaded.sound, loaded.why


class Last(Part):
    """The file that takes entries.  `count` grows last, so readers see only what is durable."""

    def __init__(
        self,
        disk: Disk,
        found: Found,
        head: rlog.Head,
        state: TailState,
        file: File,
        *,
        is_shared: bool = False,
    ) -> None:
        super().__init__(disk, found, head, state.count, is_shared=is_shared)
        self.slots, self.file, self._state = state.slots, file, state
        self.known_header = self.final_header(file) if is_shared else b""

    @property
    def sound(self) -> int:
        flaw = self._state.flaw
        return self._state.sound if flaw else self.count

    @property
    def stop(self) -> int:
        """Where the last entry ends, counted as ends are."""
        return int(self.slots[self.count - 1]) if self.count else 0

    def follow(self, file: File, state: TailState, size: int) -> None:
        """Show what another process has appended, and this one has synced."""
        self.file, self.size = file, size  # the old one closes when its last reader lets go
        self.slots, self._state = state.slots, state
        self.count = state.count
        self.known_header = self.final_header(file)

    def final_header(self, file: File) -> bytes:
        """The header of the last entry that is known here, as it stands in a file."""
        begin = int(self.slots[self.count - 2]) if self.count > 1 else 0
        return file.read_at(self.head.data_start + begin, ENTRY_HEADER_SIZE)

    def push(self, ends: rlog.Slots) -> None:
        """Show entries that are durable and follow on what is here."""
        self.slots[self.count : self.count + len(ends)] = ends
        self.size = max(self.size, self.head.data_start + int(ends[-1]))
        self.count += len(ends)

    def headers(self, first: int, stop: int) -> EntryHeaders:
        """From a map, if the owner asks: of large entries only pages with a header are touched."""
        if self.is_shared:
            return super().headers(first, stop)
        bounds = self._bounds(first - self.first_index, stop - self.first_index)
        return decode_headers(self.file.map(), bounds[:-1])

    def _source(self) -> File:
        return self.file

    def _ends(self, first: int, stop: int) -> rlog.Slots:
        return self.slots[first:stop]

    def unload(self) -> None:
        """There is nothing to let go of: it is read with plain reads."""

    def close(self) -> None:
        self.file.close()

    def _bounds_of(self, slot: int) -> tuple[int, int]:
        if slot >= self.sound:
            return super()._bounds_of(slot)
        start = self.head.data_start
        begin = self.slots.item(slot - 1) if slot else 0
        return start + begin, start + self.slots.item(slot)

    def _bounds(self, first: int, stop: int) -> Offsets:
        bounds = np.zeros(stop + 1 - first, np.int64)
        bounds[1:] = self.slots[first:stop]
        if first:
            bounds[0] = self.slots[first - 1]
        return bounds + self.head.data_start

    def _read(self, begin: int, end: int) -> bytes:
        return self.file.read_at(begin, end - begin)

    def _region(self, begin: int, end: int) -> memoryview:
        return memoryview(self.file.read_at(begin, end - begin))

    def _unsound(self) -> tuple[int, str]:
        flaw = self._state.flaw
        assert flaw is not None, "all that counts is sound"
        return flaw.offset, flaw.why
