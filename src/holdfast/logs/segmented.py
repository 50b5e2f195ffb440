"""What the guests of all logs have in common: a row of files, looked at, shown and read.

A guest looks until what it sees agrees with itself, syncs what it is about to show, and then shows
all of it at once.  What is in a file, and what is wrong with it, each log says for itself.
"""

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from holdfast.disk import Disk
from holdfast.errors import ChangedError, CorruptError, HoldfastError, OutOfRangeError
from holdfast.logs.log import Damage, OnDamage, clip
from holdfast.runtime import Closing

if TYPE_CHECKING:
    import pyarrow as pa

_LOOKS_MAX = 100
_LOADED_MAX = 16  # segments that are kept at hand for single reads


class Segment(Protocol):
    """One file of a log, open for reading."""

    name: str

    @property
    def first_index(self) -> int: ...

    @property
    def stop_index(self) -> int: ...

    def read(self, index: int, /) -> bytes: ...

    def scan(
        self, start: int, stop: int, on_damage: OnDamage | None = None, *, verify: bool = True
    ) -> "Iterator[pa.RecordBatch]": ...

    def unload(self) -> None:
        """Let go of what can be had again."""
        ...

    def close(self) -> None: ...


class Look(Protocol):
    """What one look at the directory found."""

    damage: list[Damage]

    @property
    def unsynced(self) -> str | None:
        """The file that holds entries which its writer may not have synced yet."""
        ...


class LookAgainError(Exception):
    """The owner changed the log during this look, so that it proves nothing."""


Piece = TypeVar("Piece", bound=Segment)
Result = TypeVar("Result", bound=Look)


class SegmentedGuest(Closing, Generic[Piece, Result]):
    """A log of many files, open for reading.

    A damaged log opens all the same: `damage` says what is wrong, and sound entries can be read.
    """

    _files_are: ClassVar[str] = "segments"
    _is_shared: ClassVar[bool] = True  # with an owner in another process

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._segments: tuple[Piece, ...] = ()
        self._recent: Piece | None = None  # the next read is often near the last one
        self._loaded: dict[Piece, None] = {}
        self._broken: dict[str, Damage] = {}  # files of which nothing can be relied on
        self.damage: tuple[Damage, ...] = ()
        self._survey()

    @property
    def first_index(self) -> int:
        segments = self._segments
        return segments[0].first_index if segments else 1

    @property
    def last_index(self) -> int:
        segments = self._segments
        return segments[-1].stop_index - 1 if segments else 0

    def read(self, index: int) -> bytes:
        """One payload, its checksum verified.  OutOfRangeError if there is no such entry.

        ChangedError if the owner has removed the entry since the last refresh.
        """
        segment = self._recent
        if segment is None or not segment.first_index <= index < segment.stop_index:
            segment = self._segment_of(index)
        try:
            return segment.read(index)
        except (FileNotFoundError, CorruptError) as error:
            self._refuse_changed(segment, error)
            raise

    def scan(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        on_damage: OnDamage | None = None,
    ) -> "Iterator[pa.RecordBatch]":
        """Entries start..stop-1 as Arrow batches of `index`, `payload` and `offset`.

        Without a copy on files that are full; every checksum, where there are any, is verified.
        Yields what is sound before a damaged entry, then raises CorruptError; with `on_damage`,
        reports the damage and continues after it.  Raises ChangedError at an entry that the owner
        has removed since the last refresh.
        """
        start, stop = clip(start, stop, self.first_index, self.last_index)
        return self._scan(self._segments, start, stop, on_damage)

    def close(self) -> None:
        for segment in self._segments:
            segment.close()
        self._publish(())

    def __repr__(self) -> str:
        state = ", damaged" if self.damage else ""
        span = f"{self.first_index}..{self.last_index}"
        return f"<{type(self).__name__} {span} in {len(self._segments)} {self._files_are}{state}>"

    # Looking

    @abstractmethod
    def _look(self) -> Result:
        """Look once, and change nothing.

        Raises FileNotFoundError or LookAgainError if the owner changed the log meanwhile.
        """

    @abstractmethod
    def _show(self, result: Result) -> None:
        """Open what was found, and publish it."""

    def _survey(self) -> None:
        for _ in range(_LOOKS_MAX):
            result = self._look_twice()
            try:
                if result.unsynced is not None:
                    self._sync(result.unsynced)
                return self._show(result)
            except FileNotFoundError:  # the owner has removed it since that look
                continue
        raise self._unsettled()

    def _sync(self, name: str) -> None:
        file = self._disk.open(name)
        try:
            file.sync()  # what a guest shows must not vanish in a power cut
        finally:
            file.close()

    def _look_twice(self) -> Result:
        """Look until two looks agree.

        Names, sizes and bytes are not read at one instant: beside a live owner they may seem to
        contradict each other.  What is damaged looks the same a second time.
        """
        seen: list[Damage] | None = None
        for _ in range(_LOOKS_MAX):
            try:
                result = self._look()
            except (FileNotFoundError, LookAgainError):
                continue
            if not result.damage or result.damage == seen:
                return result
            seen = result.damage
        raise self._unsettled()

    def _unsettled(self) -> HoldfastError:
        return ChangedError(f"{self._disk} changed during {_LOOKS_MAX} looks at it; try again")

    def _publish(self, segments: tuple[Piece, ...]) -> None:
        """From now on readers see these, and no others."""
        self._segments, self._recent = segments, None
        if self._loaded:
            shown = set(segments)  # what is gone must not keep its bytes on the disk
            self._loaded = {one: None for one in list(self._loaded) if one in shown}

    # Reading

    def _refuse_changed(self, segment: Piece, error: Exception) -> None:
        """Raise ChangedError if a segment cannot be read because the owner has removed it.

        To the owner itself a file that is missing is damage.
        """
        if not self._is_shared:
            if isinstance(error, FileNotFoundError):
                raise CorruptError(segment.name, 0, "the file is missing") from error
            return
        if not self._is_current(segment):
            raise ChangedError(
                f"{segment.name} was removed or replaced since the last refresh; "
                "refresh, and read again"
            ) from error

    def _is_current(self, segment: Piece) -> bool:
        """Does the log still have this segment, as it is shown here?"""
        return segment.name in self._disk.list()

    def _doubt(self, segment: Piece, index: int) -> Damage | None:
        """Why entry `index`, which no segment but this can hold, cannot be had."""
        return self._broken.get(segment.name)

    def _refusal(self, damage: Damage, index: int) -> CorruptError:
        return CorruptError(damage.file, damage.offset, f"entry {index}: {damage.why}")

    def _scan(
        self, segments: tuple[Piece, ...], start: int, stop: int, on_damage: OnDamage | None
    ) -> "Iterator[pa.RecordBatch]":
        for segment in segments:
            end = min(stop, segment.stop_index)
            if start >= end:
                continue
            while start < end and (damage := self._doubt(segment, start)):
                is_missing = start < segment.first_index
                if on_damage is None and is_missing:
                    raise self._refusal(damage, start)
                if on_damage is None:  # it is about the whole file
                    raise CorruptError(damage.file, damage.offset, damage.why)
                resume = segment.first_index if is_missing else end
                on_damage(Damage(damage.file, damage.offset, start, resume - 1, damage.why))
                start = resume
            if start < end:
                try:
                    yield from segment.scan(start, end, on_damage)
                except (FileNotFoundError, CorruptError) as error:
                    self._refuse_changed(segment, error)
                    raise
            start = end
            if segment not in self._loaded:
                segment.unload()

    def _segment_of(self, index: int) -> Piece:
        segments = self._segments
        if not self.first_index <= index <= self.last_index:
            had = f"{self.first_index}..{self.last_index}"
            raise OutOfRangeError(f"entry {index} of a log that holds {had}")
        segment = segments[bisect_right(segments, index, key=lambda s: s.first_index) - 1]
        if damage := self._doubt(segment, index):
            raise self._refusal(damage, index)
        if segment not in self._loaded:
            while len(self._loaded) >= _LOADED_MAX:
                oldest = next(iter(self._loaded))
                del self._loaded[oldest]
                oldest.unload()
            self._loaded[segment] = None
        self._recent = segment
        return segment
