"""A FileLog read without owning it: no lock, no change, beside a live owner too."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from holdfast.disk import Disk
from holdfast.errors import CorruptError, HoldfastError, OutOfRangeError
from holdfast.formats import snapshot_file
from holdfast.formats.flaw import Flaw
from holdfast.formats.rlog_entry import ENTRY_HEADER_SIZE, FileEntry, decode_entry
from holdfast.formats.token_file import Meta
from holdfast.logs.file_log.columns import entry_columns
from holdfast.logs.file_log.directory import (
    SNAPSHOT,
    STATE,
    base_name,
    read_snapshot_head,
    reader,
)
from holdfast.logs.file_log.facts import facts_of, whole_damage
from holdfast.logs.file_log.history import created_ms
from holdfast.logs.file_log.intent import INTENT
from holdfast.logs.file_log.part import Full, Last, Part
from holdfast.logs.file_log.recovery import Survey, survey
from holdfast.logs.file_log.state import read_state
from holdfast.logs.file_log.tail import judge_tail
from holdfast.logs.log import Damage, OnDamage, SegmentInfo, clip

if TYPE_CHECKING:
    import pyarrow as pa

_LOOKS_MAX = 20
_LOADED_MAX = 16  # full files that are kept at hand for single reads
_NOTHING = snapshot_file.Head(0, 0, 0, 0, Meta())


class FileLogGuest:
    """A FileLog as a reader sees it: a server's, while it runs, or one of our own.

    A payload is the data of an entry; `get_entry` has the rest of it.  A damaged log opens all the
    same: `damage` says what is wrong, and sound entries can be read.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._parts: tuple[Part, ...] = ()
        self._first = 1
        self._snapshot: snapshot_file.Head | Flaw | None = None
        self._recent: Part | None = None  # the next read is often near the last one
        self._loaded: dict[str, Part] = {}
        self._broken: dict[str, Damage] = {}
        self.damage: tuple[Damage, ...] = ()
        self._survey()

    @property
    def first_index(self) -> int:
        return self._first

    @property
    def last_index(self) -> int:
        parts = self._parts
        return max(parts[-1].stop_index if parts else 0, self._first) - 1

    @property
    def snapshot(self) -> snapshot_file.Head:
        """What the snapshot is of; index 0 if there is none, or none that can be read."""
        found = self._snapshot
        return found if isinstance(found, snapshot_file.Head) else _NOTHING

    @property
    def last_term(self) -> int:
        """The term of the last entry, or of the snapshot before it; 0 in a new log."""
        return self.term_at(self.last_index)

    def read(self, index: int) -> bytes:
        """One payload.  OutOfRangeError if there is no such entry."""
        return self._entry(index)[ENTRY_HEADER_SIZE:]

    def get_entry(self, index: int) -> FileEntry:
        """One entry with its request id, type and term."""
        entry = decode_entry(self._entry(index))
        if isinstance(entry, Flaw):
            raise CorruptError(f"entry {index}", entry.offset, entry.why)
        return entry

    def term_at(self, index: int) -> int:
        """The term of one entry, or of the one that the snapshot was made at."""
        if index == self.snapshot.index:
            return self.snapshot.term
        return self.get_entry(index).term if index else 0

    def read_snapshot(self, offset: int = 0, size: int | None = None) -> bytes:
        """The data of the snapshot, or a part of it."""
        head = self.snapshot
        stop = head.data_size if size is None else min(head.data_size, offset + size)
        if offset < 0 or (size is not None and size < 0):
            raise ValueError(f"{size} bytes from {offset} on")
        if stop <= offset:
            return b""
        file = self._disk.open(SNAPSHOT)
        try:
            if snapshot_file.decode_head(reader(file), head.data_start + head.data_size) != head:
                raise HoldfastError(
                    "the snapshot was replaced meanwhile: refresh, and read it again"
                )
            return file.read_at(head.data_start + offset, stop - offset)
        finally:
            file.close()

    def read_state(self) -> dict[str, Any]:
        """The properties in the state file of the server; empty if there is none."""
        return read_state(self._disk, STATE)

    def scan(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        on_damage: OnDamage | None = None,
    ) -> "Iterator[pa.RecordBatch]":
        """Entries start..stop-1 as Arrow batches of `index`, `payload` and `offset`.

        Without a copy on full files.  Yields what is sound before a damaged entry, then raises
        CorruptError; with `on_damage`, tells it and goes on behind.
        """
        start, stop = clip(start, stop, self.first_index, self.last_index)
        return self._scan(self._parts, start, stop, on_damage)

    def refresh(self) -> int:
        """See what the owner has appended, rolled back or snapshotted; return last_index."""
        if not self._follow():
            self._survey()
        return self.last_index

    def segments(self) -> list[SegmentInfo]:
        """All index files.  Those that the snapshot covers hold nothing any more: `covered`."""
        first = self._first
        return [
            SegmentInfo(
                part.name,
                self._state_of(part),
                max(part.first_index, first),
                max(part.stop_index, first) - 1,
                part.size,
                created_ms(part.head.meta),
                base_name(part.name).removesuffix(".rlog"),
            )
            for part in self._parts
        ]

    def check(self, name: str) -> Damage | None:
        """Read one index file from end to end and look at every entry."""
        part = next((part for part in self._parts if part.name == name), None)
        if part is not None and isinstance(part, Full):
            return self._broken.get(name) or part.check()
        result = self._look_twice()
        known = next((damage for damage in result.all_damage() if damage.file == name), None)
        if part is None and known is None:
            raise FileNotFoundError(f"the log has no index file {name}")
        return known or (part.check() if part else None)

    def decode_columns(self, batch: "pa.RecordBatch") -> "pa.RecordBatch | None":
        """The entries of a scanned batch, taken apart: term, type, request_id and data."""
        if not batch.num_rows:
            return None
        first = batch.column("index")[0].as_py()
        headers = self._part_of(first).headers(first, first + batch.num_rows)
        return entry_columns(batch, headers)

    def facts(self) -> dict[str, str]:
        """What only a FileLog has: its capacity, its snapshot and the state of its server."""
        return facts_of(self._disk, self.snapshot, self._parts)

    def check_whole(self) -> list[Damage]:
        """What no index file alone can tell: terms across files, and the state file."""
        return whole_damage(self._disk, self._parts)

    def close(self) -> None:
        for part in self._parts:
            part.close()
        self._publish(())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", damaged" if self.damage else ""
        span = f"{self.first_index}..{self.last_index}"
        return f"<{type(self).__name__} {span} in {len(self._parts)} files{state}>"

    # Looking

    def _survey(self) -> None:
        for look in range(_LOOKS_MAX):
            try:
                result = self._look_twice()
                if result.tail is not None and result.tail.count:
                    self._sync(result.files[-1].name)
                return self._show(result)
            except FileNotFoundError:  # rolled back since that look
                if look == _LOOKS_MAX - 1:
                    raise

    def _sync(self, name: str) -> None:
        file = self._disk.open(name)
        try:
            file.sync()  # what a guest shows must not vanish in a power cut
        finally:
            file.close()

    def _look_twice(self) -> Survey:
        """Files are not read at one instant: beside a live owner they may seem to contradict each
        other.  What is damaged looks the same a second time."""
        seen: list[Damage] | None = None
        for look in range(_LOOKS_MAX):
            try:
                result = survey(self._disk)
            except FileNotFoundError:  # rolled back between the look at names and at bytes
                if look == _LOOKS_MAX - 1:
                    raise
                continue
            if not result.damage or result.damage == seen:
                break
            seen = result.damage
        return result

    def _show(self, result: Survey) -> None:
        parts: list[Part] = []
        for number, found in enumerate(result.files):
            if isinstance(found.head, Flaw):
                continue
            if found is result.files[-1]:
                assert result.tail is not None, "judged, as its head is sound"
                file = self._disk.open(found.name)
                parts.append(Last(self._disk, found, found.head, result.tail, file))
            else:
                stop = min(result.files[number + 1].index, found.head.header.stop_index)
                parts.append(Full(self._disk, found, found.head, stop - found.index))
        self._snapshot = result.snapshot
        self._first = result.first_index
        self._publish(tuple(parts))
        self.damage = tuple(result.damage)
        last = result.files[-1].name if result.files else ""
        self._broken = {d.file: d for d in result.damage if d.first_index and d.file != last}

    def _follow(self) -> bool:
        """See what is new at the end of the last file; False if more than that may have changed."""
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, Last) or self.damage or not 0 < last.count < len(last.slots):
            return False
        names = self._disk.list()
        if INTENT in names or read_snapshot_head(self._disk, names) != self._snapshot:
            return False
        directory, _, name = last.name.rpartition("/")
        sizes = {n: s for n, s in self._disk.list(directory).items() if n.endswith(".rlog")}
        if next(reversed(sizes), None) != name:
            return False
        file = self._disk.open(last.name)  # anew: it may have been removed and made again
        state = judge_tail(file, last.head, sizes[name])
        is_same = np.array_equal(state.slots[: last.count], last.slots[: last.count])
        if state.flaw or state.count < last.count or not is_same:
            file.close()
            return False
        if state.count > last.count:
            file.sync()  # what a guest shows must not vanish in a power cut
        last.follow(file, state, sizes[name])
        return True

    def _publish(self, parts: tuple[Part, ...]) -> None:
        """From now on readers see these, and no others."""
        self._parts, self._recent, self._loaded = parts, None, {}

    def _state_of(self, part: Part) -> str:
        if part.name in {damage.file for damage in self.damage}:
            return "damaged"
        if isinstance(part, Last):
            return "active"
        return "covered" if part.stop_index <= self._first else "sealed"

    # Reading

    def _entry(self, index: int) -> bytes:
        part = self._recent
        if part is None or not max(self._first, part.first_index) <= index < part.stop_index:
            part = self._part_of(index)
        return part.read(index)

    def _scan(
        self, parts: Sequence[Part], start: int, stop: int, on_damage: OnDamage | None
    ) -> "Iterator[pa.RecordBatch]":
        for part in parts:
            end = min(stop, part.stop_index)
            if start >= end:
                continue
            if start < part.first_index:
                start = self._tell_missing(start, part.first_index, on_damage)
            if damage := self._broken.get(part.name):
                if on_damage is None:
                    raise CorruptError(damage.file, damage.offset, damage.why)
                on_damage(Damage(damage.file, damage.offset, start, end - 1, damage.why))
            else:
                yield from part.scan(start, end, on_damage)
            start = end
            if part.name not in self._loaded:
                part.unload()

    def _tell_missing(self, start: int, stop: int, on_damage: OnDamage | None) -> int:
        about = next((d for d in self.damage if d.first_index <= start <= d.last_index), None)
        where = about or Damage(SNAPSHOT, 0, start, stop - 1, "missing")
        if on_damage is None:
            raise CorruptError(where.file, where.offset, f"entry {start}: {where.why}")
        on_damage(Damage(where.file, where.offset, start, stop - 1, where.why))
        return stop

    def _part_of(self, index: int) -> Part:
        parts = self._parts
        if not self.first_index <= index <= self.last_index:
            had = f"{self.first_index}..{self.last_index}"
            raise OutOfRangeError(f"entry {index} of a log that holds {had}")
        part = parts[bisect_right(parts, index, key=lambda p: p.first_index) - 1]
        if damage := self._broken.get(part.name):
            raise CorruptError(damage.file, damage.offset, f"entry {index}: {damage.why}")
        if not part.first_index <= index < part.stop_index:
            self._tell_missing(index, index + 1, None)
        if part.name not in self._loaded:
            while len(self._loaded) >= _LOADED_MAX:
                self._loaded.pop(next(iter(self._loaded))).unload()
            self._loaded[part.name] = part
        self._recent = part
        return part
