"""A log open for reading: a view of it, replaced when it is refreshed.

A reader looks at the directory until the result is consistent.  It syncs what it is about to show,
and then shows all of it at once.  The `Source` of the format, which is passed in, finds entries and
damage.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from holdfast.disk import Disk
from holdfast.errors import ChangedError, CorruptError, NotFoundError
from holdfast.handle import Closing, Handle, status_html
from holdfast.logs.log import Damage, OnDamage, SegmentInfo, clip
from holdfast.logs.metrics import Counters
from holdfast.logs.view import Piece, View
from holdfast.metrics import Metric

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.logs.status import LogStatus
    from holdfast.logs.verify import VerifyReport

_LOOKS_MAX = 100
_LOADED_MAX = 16  # segments that are kept loaded for single reads


class Look(Protocol):
    """What one look at the directory found."""

    damage: list[Damage]

    @property
    def unsynced(self) -> str | None:
        """Return the file with entries that its writer may not have synced yet."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """Return the segment files that were found."""
        ...

    def all_damage(self) -> list[Damage]:
        """Return the damage, and a torn end."""
        ...


class LookAgainError(Exception):
    """The owner changed the log during this look, so that it proves nothing."""


Found = TypeVar("Found", bound=Look)


class Source(Protocol[Piece, Found]):
    """How a format looks at its directory.  Nothing here changes it."""

    disk: Disk

    def look(self) -> Found:
        """Look once.  FileNotFoundError or LookAgainError if the owner changed it meanwhile."""
        ...

    def show(self, found: Found, /) -> View[Piece]:
        """Open what was found.  FileNotFoundError or LookAgainError if it has changed since."""
        ...

    def follow(self, view: View[Piece], /) -> bool:
        """Show what was appended to the last segment; False if more than that has changed.

        What is shown must be synced first, so that a power cut cannot remove it.
        """
        ...

    def is_current(self, segment: Piece, /) -> bool:
        """Return whether the log still has this segment, as it is shown here."""
        ...

    def close(self) -> None: ...


class Scan:
    """The batches of a scan: an iterator, and an Arrow stream for polars, duckdb and others.

    After the log is closed it raises ClosedError; batches returned before stay valid.
    """

    def __init__(self, handle: Handle, batches: "Iterator[pa.RecordBatch]") -> None:
        self._handle, self._batches = handle, batches

    def __iter__(self) -> "Iterator[pa.RecordBatch]":
        return self

    def __next__(self) -> "pa.RecordBatch":
        self._handle.check_read()
        return next(self._batches)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return arrow_stream(self, ["index", "payload", "offset"], requested_schema)


def arrow_stream(
    batches: "Iterator[pa.RecordBatch]", columns: list[str], requested_schema: Any
) -> Any:
    """Return these columns of scanned batches as an Arrow C stream, read as it is consumed."""
    import pyarrow as pa

    types = {"index": pa.int64(), "payload": pa.binary_view(), "offset": pa.int64()}
    schema = pa.schema([(name, types[name]) for name in columns])
    stream = pa.RecordBatchReader.from_batches(schema, (b.select(columns) for b in batches))
    return stream.__arrow_c_stream__(requested_schema)


class Reader(Closing, Generic[Piece, Found]):
    """A log open for reading.  It takes no lock and changes nothing.

    A damaged log opens: `damage` says what is wrong, and sound entries can be read.  `damage`
    stays readable after close; every other call raises ClosedError then.
    """

    def __init__(self, source: Source[Piece, Found], *, view: View[Piece] | None = None) -> None:
        """With `view`, the reader belongs to an owner, which publishes its changes."""
        self.source, self.disk = source, source.disk
        self.handle = Handle(f"the log {source.disk}")
        self.counters = Counters()
        self._is_shared = view is None
        self._recent: Piece | None = None  # the next read is often near the last one
        self._loaded: dict[Piece, None] = {}
        self._view = settled_view(source) if view is None else view

    @property
    def view(self) -> View[Piece]:
        self.handle.check_read()
        return self._view

    @property
    def damage(self) -> tuple[Damage, ...]:
        """Return the damage that opening found.  Other entries can be read."""
        return self._view.damage

    @property
    def first_index(self) -> int:
        return self.view.first_index

    @property
    def last_index(self) -> int:
        """Return the index of the last entry; first_index - 1 in an empty log."""
        return self.view.last_index

    def read(self, index: int) -> bytes:
        """Return one payload, its checksum verified.

        OutOfRangeError if there is no such entry.  ChangedError if the owner has removed it since
        the last refresh.
        """
        counters, segment = self.counters, self._recent  # few calls: this is the hot path
        counters.log_entries_read += 1
        if segment is None or not segment.first_index <= index < segment.stop_index:
            segment = self._segment_of(index)
        try:
            payload = segment.read(index)
        except (FileNotFoundError, CorruptError) as error:
            self.refuse_changed(segment, error)
            raise
        counters.log_entry_bytes_read += len(payload)
        return payload

    def fingerprint(self, index: int) -> bytes:
        """Return what differs between an entry and another that replaces it after a rollback.

        No two segments have one id.
        """
        payload = self.read(index)
        return self._segment_of(index).info.id.encode() + payload

    def scan(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        on_damage: OnDamage | None = None,
    ) -> Scan:
        """Return entries start..stop-1 as Arrow batches of `index`, `payload` and `offset`.

        Sealed segments are not copied, but for those of a FileLog, which a rollback changes.  Every
        checksum is verified.  At a damaged entry raises
        CorruptError; with `on_damage`, reports the damage and continues after it.  ChangedError at
        an entry that the owner has removed since the last refresh.
        """
        view = self.view
        if view.first_index > view.last_index + 1 and view.damage:  # a header is not valid
            damage = view.damage[0]
            raise CorruptError(damage.file, damage.offset, damage.why)
        start, stop = clip(start, stop, view.first_index, view.last_index)
        return Scan(self.handle, self._scan(view, start, stop, on_damage))

    def refresh(self) -> int:
        """Show what the owner has appended, rotated or removed; return last_index."""
        view = self.view
        if self._is_shared and not self._follows(view):
            self.publish(settled_view(self.source))
        return self._view.last_index

    def segments(self) -> list[SegmentInfo]:
        """Return the segments, oldest first."""
        return self.view.infos()

    def check(self, name: str) -> Damage | None:
        """Read one segment from end to end and verify every checksum."""
        view, torn = self.view, None
        segment = next((one for one in view.segments if one.name == name), None)
        if segment is None or segment.info.state == "active":
            look = settled_look(self.source)  # other files decide what its end means
            known = next((one for one in look.all_damage() if one.file == name), None)
            if known is not None and not known.torn:
                return known
            torn = known
            if segment is None and name not in look.names:
                raise NotFoundError(f"the log has no segment {name}")
        elif (known := view.broken.get(name)) and known.file == name:
            return known
        with found_before(name):
            damage = segment.check() if segment is not None else None
        if damage is not None and segment is not None and self._is_shared:
            self.refuse_changed(segment, CorruptError(damage.file, damage.offset, damage.why))
        return damage or torn

    def status(self) -> "LogStatus":
        """Return a summary of the log.  Its sealed segments are not read."""
        from holdfast.logs.status import status_of  # it knows the formats, which import this

        self.handle.check_read()
        return status_of(self, self.disk)

    def verify(
        self, on_progress: Callable[[int, int], None] = lambda done, total: None
    ) -> "VerifyReport":
        """Verify every checksum of the log; `on_progress` gets bytes done and bytes in all."""
        from holdfast.logs.verify import verify_log

        self.handle.check_read()
        return verify_log(self.disk, on_progress)

    def metrics(self) -> list[Metric]:
        """Return what was counted since this was opened."""
        self.handle.check_read()
        return self.counters.metrics()

    def close(self) -> None:
        """Close the files.  Batches that were returned before stay valid."""
        if self.handle.close():
            view, self._view = self._view, View(damage=self._view.damage)
            self._recent = None
            self._loaded.clear()
            for segment in view.segments:
                segment.close()
            self.source.close()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return arrow_stream(self.scan(), ["index", "payload"], requested_schema)

    def __repr__(self) -> str:
        return self.describe(type(self).__name__)

    def _repr_html_(self) -> str:
        return escape(repr(self)) if self.handle.is_closed else status_html(self.status())

    def describe(self, kind: str) -> str:
        """Return the repr of a handle of this kind on this log."""
        if self.handle.is_closed:
            return f"<{kind} {self.disk}: closed>"
        first, last = self._view.first_index, self._view.last_index
        span = f"{first}..{last}" if first <= last else "empty"
        state = ", damaged" if self._view.damage else ""
        return f"<{kind} {self.disk}: {span}, segments: {len(self._view.segments)}{state}>"

    # For owners, and for readers of one format

    def publish(self, view: View[Piece]) -> None:
        """Show this view from now on."""
        self._view, self._recent = view, None
        # A removed segment must not keep its bytes on the disk.
        self._loaded = {one: None for one in list(self._loaded) if view.has(one)}

    def publish_segments(self, segments: tuple[Piece, ...]) -> None:
        """Show these segments from now on."""
        self.publish(self._view.with_segments(segments))

    def segment_of(self, index: int) -> Piece:
        """Return the segment that holds an entry, and keep it loaded."""
        return self._segment_of(index)

    def refuse_changed(self, segment: Piece, error: Exception) -> None:
        """Raise ChangedError if a segment cannot be read because the owner has removed it.

        For the owner a missing file is damage, unless another thread of it has removed the file.
        """
        if not self._is_shared and any(one.name == segment.name for one in self.view.segments):
            if isinstance(error, FileNotFoundError):
                raise CorruptError(segment.name, 0, "the file is missing") from error
        elif not self._is_shared or not self.source.is_current(segment):
            why = f"{segment.name} was removed or replaced since the last refresh"
            raise ChangedError(f"{why}; refresh, and read again") from error

    def _follows(self, view: View[Piece]) -> bool:
        try:
            return self.source.follow(view)
        except FileNotFoundError:  # the owner has removed it since the directory was listed
            return False

    def _segment_of(self, index: int) -> Piece:
        segment = self.view.find(index)
        if segment not in self._loaded:
            while len(self._loaded) >= _LOADED_MAX:
                oldest = next(iter(self._loaded))
                del self._loaded[oldest]
                oldest.unload()
            self._loaded[segment] = None
        self._recent = segment
        return segment

    def _scan(
        self, view: View[Piece], start: int, stop: int, on_damage: OnDamage | None
    ) -> "Iterator[pa.RecordBatch]":
        for segment in view.segments:
            end = min(stop, segment.stop_index)
            if start >= end:
                continue
            while start < end and (damage := view.doubt(segment, start)):
                resume = segment.first_index if start < segment.first_index else end
                if on_damage is None:
                    raise CorruptError(damage.file, damage.offset, f"entry {start}: {damage.why}")
                on_damage(Damage(damage.file, damage.offset, start, resume - 1, damage.why))
                start = resume
            if start < end:
                try:
                    yield from segment.scan(start, end, on_damage)
                except (FileNotFoundError, CorruptError) as error:
                    self.refuse_changed(segment, error)
                    raise
            start = end
            if segment not in self._loaded:
                segment.unload()


def settled_view(source: Source[Piece, Found]) -> View[Piece]:
    """Look until what is seen is consistent; return it, durable and open."""
    for _ in range(_LOOKS_MAX):
        found = settled_look(source)
        try:
            if found.unsynced is not None:
                _sync(source.disk, found.unsynced)
            return source.show(found)
        except (FileNotFoundError, LookAgainError):  # the owner has changed it since that look
            continue
    raise _unsettled(source.disk)


def settled_look(source: Source[Piece, Found]) -> Found:
    """Look until two looks agree.

    Names, sizes and bytes are not read at one instant: beside a live owner they may seem to
    contradict each other.  Damage looks the same a second time.
    """
    seen: list[Damage] | None = None
    for _ in range(_LOOKS_MAX):
        try:
            found = source.look()
        except (FileNotFoundError, LookAgainError):
            continue
        if not found.damage or found.damage == seen:
            return found
        seen = found.damage
    raise _unsettled(source.disk)


@contextmanager
def found_before(name: str) -> Iterator[None]:
    """Raise ChangedError if a segment that was found before no longer exists."""
    try:
        yield
    except FileNotFoundError as error:
        raise ChangedError(f"{name} was removed by its owner meanwhile; run again") from error


def _sync(disk: Disk, name: str) -> None:
    file = disk.open(name)
    try:
        file.sync()  # a power cut must not remove what a reader has shown
    finally:
        file.close()


def _unsettled(disk: Disk) -> ChangedError:
    return ChangedError(f"{disk} changed during {_LOOKS_MAX} looks at it; try again")
