"""The owner of a raft-wal directory: its locks, its meta store and its files, kept in step.

In this order, so that a crash leaves what holdfast.logs.raft_wal.recovery can mend: a segment is
sealed and synced; the meta store says so and names the next; the next is made; what the meta store
has let go of is removed.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from holdfast import runtime
from holdfast.disk import Disk
from holdfast.errors import UnsupportedError
from holdfast.formats import raft_wal as fmt
from holdfast.formats.raft_meta import SegmentMeta, State
from holdfast.logs.commits import CLOSED, Commits
from holdfast.logs.raft_wal.directory import name_of
from holdfast.logs.raft_wal.guest import RaftWalGuest
from holdfast.logs.raft_wal.meta_store import MetaStore
from holdfast.logs.raft_wal.recovery import (
    look_behind_the_cache,
    remove_orphans,
    settle,
    survey,
)
from holdfast.logs.raft_wal.segment import Sealed, Tail
from holdfast.logs.raft_wal.truncation import next_size, sealed_at

_LOG = logging.getLogger("holdfast")
_SIZE_MIN = 2**20  # where tuning begins

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the segments of a log are to be like.  See RaftWal."""

    codec: int | None
    segment_size_max: int
    segment_fill_ms: int | None
    first_index: int

    def __post_init__(self) -> None:
        size, codec = self.segment_size_max, self.codec
        if not fmt.HEADER_SIZE < size <= fmt.SEGMENT_SIZE_MAX or self.first_index < 1:
            raise ValueError(
                f"a segment takes {fmt.HEADER_SIZE} to {fmt.SEGMENT_SIZE_MAX} bytes, "
                "and indexes begin at 1"
            )
        if codec is not None and codec != fmt.RAFT_CODEC and codec < fmt.CUSTOM_CODEC_MIN:
            raise ValueError(f"codec {codec} is reserved; yours begin at {fmt.CUSTOM_CODEC_MIN}")


class Owner(RaftWalGuest, Generic[Item]):
    """A guest that has the locks, and so may change which segments there are.

    `commit` writes what has gathered; it is called by one thread at a time.
    """

    _is_shared = False

    def __init__(
        self,
        disk: Disk,
        settings: Settings,
        commit: Callable[[Sequence[Item]], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._settings, self._now_ms, self._commit_all = settings, now_ms, commit
        self.mended: tuple[str, ...] = ()  # what recovery did
        try:
            super().__init__(disk)
        except BaseException:
            if hasattr(self, "_meta"):
                self._meta.close()
            raise

    def refresh(self) -> int:
        """An owner has nothing to catch up with."""
        return self.last_index

    # Opening and closing

    def _open_meta(self) -> MetaStore:
        meta, lock = MetaStore.owned(self._disk)
        self._commits = Commits(self._commit_all, lambda: self.damage, lock)
        return meta

    def _survey(self) -> None:
        state = self._meta.load()
        look_behind_the_cache(self._disk, state)
        result = survey(self._disk, state)
        if result.damage:
            for damage in result.damage:
                _LOG.error("damage in %r: %s", self._disk, damage)
            self._state = result.state
            return self._show(result)
        self._refuse_codecs(result.state)
        settle(self._disk, result)
        remove_orphans(self._disk, result)
        self._state = result.state
        self._show(result)
        tail = result.tail
        if tail is not None and name_of(tail) in result.sizes:
            self._file = self._disk.open(name_of(tail), writable=True)
        elif tail is not None:
            self._make_tail(tail)
            self._publish((*self._segments[:-1], self._new_tail(tail)))
            result.mended.append(f"{name_of(tail)}: made, as the meta store has it")
        if tail is None:
            base = self.last_index + 1 if self._segments else self._settings.first_index
            self._install(self._state.segments, self._new_segment(base))
        elif self._tail.index_start:
            self._rotate()
            result.mended.append(f"{name_of(tail)}: its seal is finished")
        self.mended = tuple(result.mended)
        for line in self.mended:
            _LOG.warning("recovered %r: %s", self._disk, line)
        return None

    def _close(self) -> None:
        self._commits.refusal = CLOSED
        if hasattr(self, "_file"):
            self._file.close()
        super().close()

    def _refuse_codecs(self, state: State) -> None:
        codecs = {segment.codec for segment in state.segments}
        wanted = codecs if self._settings.codec is None else {self._settings.codec}
        if codecs - wanted or len(codecs) > 1:
            found = ", ".join(map(str, sorted(codecs)))
            raise UnsupportedError(f"{self._disk} is written with codec {found}, not {wanted}")

    # The tail

    @property
    def _tail(self) -> Tail:
        tail = self._segments[-1]
        assert isinstance(tail, Tail)
        return tail

    def _rotate(self) -> None:
        """The tail has its index: tell the meta store, and begin the next."""
        tail = self._tail
        last = tail.stop_index - 1
        sealed = sealed_at(tail.meta, last, tail.index_start, self._now())
        self._install((*self._state.segments[:-1], sealed), self._new_segment(last + 1))
        self._counters.segment_rotations += 1

    # The meta store and the files

    def _install(self, segments: tuple[SegmentMeta, ...], new: SegmentMeta | None) -> None:
        """Let these segments, and a new tail, be the log: durably, then visibly; then remove."""
        old, next_id = self._state, self._state.next_segment_id
        if new is not None:
            segments, next_id = (*segments, new), next_id + 1
        self._meta.commit(State(next_id, segments))
        self._state = State(next_id, segments)
        if new is not None:
            self._make_tail(new)
        had = {segment.meta: segment for segment in self._segments}
        shown = [had.get(meta) or self._shown(meta) for meta in segments]
        gone = {meta.id: meta for meta in old.segments}
        for meta in segments:
            gone.pop(meta.id, None)
        self._publish(tuple(shown))
        if gone:
            self._remove([name_of(meta) for meta in gone.values()])

    def _shown(self, meta: SegmentMeta) -> Sealed | Tail:
        if meta.sealed:
            return Sealed(self._disk, meta, self._disk.list()[name_of(meta)])
        tail = self._segments[-1] if self._segments else None
        if isinstance(tail, Tail) and tail.meta.id == meta.id:
            return tail.beginning_at(meta)
        return self._new_tail(meta)

    def _new_tail(self, meta: SegmentMeta) -> Tail:
        return Tail(self._disk.open(name_of(meta)), meta, fmt.NOTHING)

    def _make_tail(self, meta: SegmentMeta) -> None:
        self._disk.create(name_of(meta), b"")
        if hasattr(self, "_file"):
            self._file.close()
        self._file = self._disk.open(name_of(meta), writable=True)
        self._file.resize(meta.size_limit)  # real blocks: a full disk is found now
        self._file.sync()  # so that no append has to carry the new size

    def _remove(self, names: Sequence[str]) -> None:
        try:
            self._disk.remove(*names)
        except OSError as error:  # the log is what the meta store says; the next owner removes it
            _LOG.warning("%r: %s stays for now: %s", self._disk, names, error)

    def _new_segment(self, base_index: int, codec: int | None = None) -> SegmentMeta:
        codec = codec or self._settings.codec or self.codec
        return SegmentMeta(
            self._state.next_segment_id,
            base_index,
            base_index,
            codec=codec,
            create_time=self._now(),
            size_limit=self._new_size(),
        )

    def _new_size(self) -> int:
        target_ms, size_max = self._settings.segment_fill_ms, self._settings.segment_size_max
        if target_ms is None:
            return size_max
        sizes = min(_SIZE_MIN, size_max), size_max
        if not self._state.segments:
            return sizes[0]
        last = self._state.segments[-1]
        age_ms = self._now_ms() - runtime.from_rfc3339(last.create_time)
        return next_size(last.size_limit, age_ms, target_ms, sizes)

    def _now(self) -> str:
        return runtime.to_rfc3339(self._now_ms())
