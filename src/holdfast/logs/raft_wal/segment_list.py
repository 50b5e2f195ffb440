"""Which segments a log has: its meta store and its files, changed by the owner.

Every change is made in this order, so that recovery can finish it after a crash: a segment is
sealed and synced; the meta store says so and names the next; the file of the next is created; files
that the meta store no longer names are removed.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from holdfast.disk import Disk, File
from holdfast.errors import DiskFullError, UnsupportedError
from holdfast.formats import raft_wal as fmt
from holdfast.formats.raft_meta import SegmentMeta, State
from holdfast.logs.log import check_first_index
from holdfast.logs.mark import Recalled
from holdfast.logs.raft_wal.changes import Metas, Segments, gone, reopened
from holdfast.logs.raft_wal.directory import name_of
from holdfast.logs.raft_wal.meta_store import MetaStore
from holdfast.logs.raft_wal.recovery import Survey, allocate, recover, survey, sync_active
from holdfast.logs.raft_wal.view import Active, Sealed, created_ms, open_segments
from holdfast.runtime import Runtime, to_rfc3339

_LOG = logging.getLogger("holdfast")
SIZE_MIN = 2**20  # of the first segment of a log


@dataclass(frozen=True, slots=True)
class Settings:
    """The codec and the sizes of new segments.  See RaftWal."""

    codec: int | None
    segment_size_max: int
    segment_fill_ms: int | None
    segment_age_max_ms: int | None
    first_index: int

    def __post_init__(self) -> None:
        size, codec = self.segment_size_max, self.codec
        if not fmt.HEADER_SIZE < size <= fmt.SEGMENT_SIZE_MAX:
            raise ValueError(
                f"segment_size_max is {size}; a segment takes more than {fmt.HEADER_SIZE} and at "
                f"most {fmt.SEGMENT_SIZE_MAX} bytes"
            )
        check_first_index(self.first_index)
        if codec is not None and codec != fmt.RAFT_CODEC and codec < fmt.CUSTOM_CODEC_MIN:
            raise ValueError(
                f"codec {codec} is reserved; use {fmt.RAFT_CODEC} for Raft entries, or a number "
                f"from {fmt.CUSTOM_CODEC_MIN} on"
            )


class SegmentList:
    """The segments of a log, for its owner.  One thread at a time changes them."""

    active: Active
    file: File  # of the active segment, for writing

    def __init__(self, disk: Disk, meta: MetaStore, settings: Settings, runtime: Runtime) -> None:
        self._disk, self._meta, self._settings, self._runtime = disk, meta, settings, runtime
        self.all: Segments = ()
        self._state = State(0)
        # Called with the segments after each change, before files are removed.
        self.show: Callable[[Segments], None] = lambda segments: None

    @property
    def metas(self) -> Metas:
        """What the meta store says of each segment."""
        return self._state.segments

    @property
    def is_old(self) -> bool:
        """Whether the active segment holds entries and has reached `segment_age_max_ms`."""
        age_max_ms, active = self._settings.segment_age_max_ms, self.active
        if age_max_ms is None or not active.count:
            return False
        return self._runtime.now_ms() - created_ms(active.meta) >= age_max_ms

    def recover(self, recalled: Recalled) -> Survey:
        """Survey the directory, and recover it unless it is damaged.

        If what recovery must keep does not fit on the disk, nothing is cut.
        """
        state = self._meta.load()
        sync_active(self._disk, state)
        found = survey(self._disk, state, self._meta.txid, recalled)
        self._state = found.state
        try:
            if not found.damage:
                self._check_codecs(found)
                recover(self._disk, found)
            self._publish(open_segments(self._disk, found))
            if not found.damage:
                self._open_active(found)
        except DiskFullError as full:
            if not found.state.segments:
                raise
            found.full = full
            self._publish(open_segments(self._disk, found))
        return found

    def _open_active(self, found: Survey) -> None:
        meta = found.active
        if meta is None:
            first = max(self._settings.first_index, found.mark.first_index)
            base = self.all[-1].stop_index if self.all else first
            self.install(self._state.segments, base)
            return
        if name_of(meta) in found.sizes:
            self.file = self._disk.open(name_of(meta), writable=True)
        else:
            self._create(meta)
            self._publish((*self.all[:-1], self._open(meta, None)))
            found.recovered.append(f"{name_of(meta)}: created, because the meta store names it")
        if self._settings.codec not in (None, meta.codec):
            self.install((), meta.base_index)
        elif self.active.index_start:
            self.rotate()
            found.recovered.append(f"{name_of(meta)}: its seal is finished")

    def _check_codecs(self, found: Survey) -> None:
        codecs = {segment.codec for segment in found.state.segments}
        wanted = self._settings.codec
        if len(codecs) > 1 or (codecs and wanted not in (None, *codecs) and found.was_written):
            used = ", ".join(map(str, sorted(codecs)))
            raise UnsupportedError(f"{self._disk} is written with codec {used}, not {wanted}")

    def close(self) -> None:
        if hasattr(self, "file"):
            self.file.close()

    # Changes

    def seal(self) -> None:
        """Write the index of the active segment, durably."""
        active = self.active
        encoded = active.encode([], [], None)
        self.file.write_at(active.stop, encoded.data, sync=True)
        active.push(encoded)

    def rotate(self) -> None:
        """Record that the active segment is sealed, and create the next."""
        active = self.active
        last = active.stop_index - 1
        sealed = self._sealed(active.meta, last, active.index_start)
        self.install((*self._state.segments[:-1], sealed), last + 1)

    def truncate_head(self, first: int) -> None:
        """Remove all entries before `first`: whole segments, and the head of the first that stays.

        The log goes on after its last entry if none stays.
        """
        last = self.active.stop_index - 1
        kept = [s for s in self._state.segments if (s.max_index if s.sealed else last) >= first]
        if kept:
            self.install((replace(kept[0], min_index=first), *kept[1:]), None)
        else:
            self.install((), last + 1)

    def truncate_tail(self, last: int) -> None:
        """Remove all entries after `last`: the segment that holds it is sealed."""
        kept = [s for s in self._state.segments if s.base_index <= last and s.min_index <= last]
        if kept:
            if not kept[-1].sealed:
                self.seal()
            index_start = kept[-1].index_start or self.active.index_start
            kept[-1] = self._sealed(kept[-1], last, index_start)
        self.install(tuple(kept), last + 1)

    def _sealed(self, meta: SegmentMeta, last: int, index_start: int) -> SegmentMeta:
        now = to_rfc3339(self._runtime.now_ms())
        return replace(meta, max_index=last, index_start=index_start, seal_time=now)

    def install(self, segments: tuple[SegmentMeta, ...], base: int | None) -> None:
        """Replace the segments durably; with `base`, add an active one that starts at it."""
        old, next_id = self._state.segments, self._state.next_segment_id
        if base is not None:
            new = self._new_segment(base)
            segments, next_id = (*segments, new), next_id + 1
        self._meta.commit(State(next_id, segments))
        self._state = State(next_id, segments)
        if base is not None:
            self._create(new)
        self._publish(reopened(old, segments, self.all, self._open))
        if removed := gone(old, segments):
            self._remove([name_of(meta) for meta in removed])

    def _publish(self, segments: Segments) -> None:
        self.all = segments
        if segments and isinstance(segments[-1], Active):
            self.active = segments[-1]
        self.show(segments)

    def _open(self, meta: SegmentMeta, was: Sealed | Active | None) -> Sealed | Active:
        """Open a segment that is new, or `was` the same one before its entry in the list changed.

        In the place of a segment that is dropped comes another one.
        """
        is_known = was is not None and was.meta.id == meta.id
        if meta.sealed:
            assert was is not None and is_known, "only the owner seals a segment"
            size = was.size if isinstance(was, Sealed) else was.file.size()
            return Sealed(self._disk, meta, size)
        if isinstance(was, Active) and is_known and was.has_file:
            return was.starting_at(meta)
        return Active(self._disk.open(name_of(meta)), meta, fmt.NOTHING)

    def _create(self, meta: SegmentMeta) -> None:
        self._disk.create(name_of(meta), b"")
        self.close()
        self.file = allocate(self._disk, name_of(meta), meta.size_limit)

    def _remove(self, names: list[str]) -> None:
        try:
            self._disk.remove(*names)
        except OSError as error:  # the meta store does not name them; the next owner removes them
            _LOG.warning("%r: cannot remove %s yet: %s", self._disk, names, error)

    def _new_segment(self, base_index: int) -> SegmentMeta:
        last = self.all[-1].meta.codec if self.all else fmt.OPAQUE_CODEC
        return SegmentMeta(
            self._state.next_segment_id,
            base_index,
            base_index,
            codec=self._settings.codec or last,
            create_time=to_rfc3339(self._runtime.now_ms()),
            size_limit=self._new_size(),
        )

    def _new_size(self) -> int:
        """Double up to three times, until the segment takes at least half of `segment_fill_ms` to
        fill at the pace of the last one; halve if it takes more than twice as long."""
        target_ms, size_max = self._settings.segment_fill_ms, self._settings.segment_size_max
        if target_ms is None:
            return size_max
        size_min = min(SIZE_MIN, size_max)
        if not self.all:
            return size_min
        last, size = self.all[-1], self.all[-1].meta.size_limit
        age_ms = self._runtime.now_ms() - created_ms(last.meta)
        # Not every segment was full: it may have been sealed by hand, for its age or by truncation.
        fill_ms = age_ms * size // last.size if last.size else target_ms
        if fill_ms > 2 * target_ms:
            size //= 2
        for _ in range(3):
            if 2 * fill_ms < target_ms:
                size, fill_ms = 2 * size, 2 * fill_ms
        return max(size_min, min(size, size_max))
