"""The owner of a FileLog's directory: its lock, its recovery, and which file comes next."""

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from holdfast import runtime
from holdfast.disk import Disk
from holdfast.errors import CorruptError
from holdfast.formats import rlog
from holdfast.formats.flaw import Flaw
from holdfast.logs.commits import CLOSED, Commits
from holdfast.logs.file_log.directory import SNAPSHOT, Found, index_name
from holdfast.logs.file_log.guest import FileLogGuest
from holdfast.logs.file_log.history import Stamps, sweep
from holdfast.logs.file_log.part import Full, Last, Part
from holdfast.logs.file_log.recovery import Survey, recover, survey
from holdfast.logs.file_log.requests import TTL_MS, RequestCache, RequestIds
from holdfast.logs.file_log.state import StateFile
from holdfast.logs.file_log.tail import TailState
from holdfast.logs.file_log.writer import SyncMode, Writer

_LOG = logging.getLogger("holdfast")
_CAPACITY_MAX = 2**20  # the indexes of one directory, behind which the original finds no file


class Owner(FileLogGuest):
    """A guest that has the lock, and so may change which files there are."""

    _is_shared = False

    def __init__(
        self,
        disk: Disk,
        *,
        capacity: int = rlog.CAPACITY_DEFAULT,
        segment_size_max: int = rlog.DATA_SIZE_MAX,
        first_index: int = 1,
        sync_mode: SyncMode = "ordered",
        request_ttl_ms: int | None = TTL_MS,
        requests_max: int | None = None,
        now_ms: Callable[[], int] = runtime.now_ms,
        new_id: Callable[[], UUID] = runtime.new_id,
        hostname: str | None = None,
        process_id: int | None = None,
    ) -> None:
        if not 0 < capacity <= _CAPACITY_MAX or capacity & (capacity - 1):
            raise ValueError(f"capacity is a power of two up to {_CAPACITY_MAX}, not {capacity}")
        if not segment_size_max > 0 or not 0 < first_index <= rlog.INDEX_MAX:
            raise ValueError("a file takes at least a byte, and indexes begin at 1")
        if sync_mode not in ("ordered", "original"):
            raise ValueError(f"sync_mode is 'ordered' or 'original', not {sync_mode!r}")
        self._capacity, self._first_index, self._sync_mode = capacity, first_index, sync_mode
        self._segment_size_max = min(segment_size_max, rlog.DATA_SIZE_MAX)
        self._stamps = Stamps(now_ms, hostname, process_id)
        self._ids = RequestIds(
            now_ms, self._stamps.hostname, self._stamps.process_id, new_id().int & 0xFFFFFF
        )
        self._requests = RequestCache(request_ttl_ms, requests_max, now_ms)
        self._writer: Writer | None = None
        self._state: StateFile | None = None
        self._term = 0
        self.mended: tuple[str, ...] = ()  # what recovery did
        self._lock = disk.lock()
        try:
            self._commits = Commits(self._commit, lambda: self.damage, self._lock)
            super().__init__(disk)
        except BaseException:
            self._lock.release()
            raise

    def refresh(self) -> int:
        """An owner has nothing to catch up with."""
        return self.last_index

    @property
    def state(self) -> StateFile:
        """The state file of the server whose log this is, made if it is not there."""
        self._commits.refuse_if_unwritable()
        if self._state is None:
            self._state = StateFile(self._disk, stamps=self._stamps, lock=self._lock)
        return self._state

    # Opening and closing

    def _survey(self) -> None:
        result = recover(self._disk, self._stamps, self._capacity, self._first_index)
        self.mended = tuple(result.mended)
        for line in self.mended:
            _LOG.warning("recovered %r: %s", self._disk, line)
        for damage in result.damage:
            _LOG.error("damage in %r: %s", self._disk, damage)
        self._own(result)
        if not result.damage:
            # As the original has it: whatever was asked for, and however small the first file is.
            self._capacity = rlog.nominal_capacity(self._segments[0].head.header.capacity)
            sweep(self._disk, SNAPSHOT)

    def _look_again(self) -> None:
        """Files have changed by our own hand: show what there is now."""
        self._own(survey(self._disk))
        if self.damage:
            raise CorruptError(self.damage[0].file, self.damage[0].offset, self.damage[0].why)
        self._requests.forget()

    def _own(self, result: Survey) -> None:
        self._show(result)
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if result.damage or not result.files or result.tail is None:
            return
        last = result.files[-1]
        assert isinstance(last.head, rlog.Head), "not damaged"
        self._writer = Writer(self._disk, last.name, last.head, result.tail, self._sync_mode)
        self._term = self.last_term

    def _finish(self) -> None:
        """Leave the last file without a record of ours."""
        if self._writer is not None:
            self._writer.finish()

    def _close(self) -> None:
        is_sound, self._commits.refusal = self._commits.may_finish, CLOSED
        try:
            if self._state is not None:
                self._state.close()
            if is_sound:
                self._finish()
        except OSError as error:  # all is durable, and the next owner removes what we left
            _LOG.warning("%r: not left as the original would: %s", self._disk, error)
        finally:
            if self._writer is not None:
                self._writer.close()
            super().close()
            self._lock.release()

    # The last file

    @abstractmethod
    def _commit(self, batches: Sequence[Any]) -> None:
        """Write what has gathered."""

    @property
    def _tail(self) -> Last:
        tail = self._segments[-1]
        assert isinstance(tail, Last)
        return tail

    def _begin_file(self, index: int) -> tuple[Found, rlog.Head]:
        """Make the file that entry `index` will be the first of, durably, and write there next."""
        assert self._writer is not None
        self._writer.finish()
        name = index_name(index)
        header = rlog.Header(index, rlog.capacity_for(index, self._capacity))
        data = rlog.encode_file(header, self._stamps.meta())
        self._disk.create(name, data)
        head = rlog.decode_head(lambda offset, size: data[offset : offset + size])
        assert not isinstance(head, Flaw)
        self._writer.close()
        state = _empty(header, len(data))
        self._writer = Writer(self._disk, name, head, state, self._sync_mode)
        return Found(name, index, len(data), head), head

    def _full(self, writer: Writer) -> Full:
        """The file that was written to until now."""
        first = writer.head.header.first_index
        found = Found(writer.name, first, writer.size, writer.head)
        return Full(self._disk, found, writer.head, writer.count)

    def _last(self, found: Found, head: rlog.Head, count: int) -> Last:
        assert self._writer is not None
        state = _empty(head.header, found.size)
        state.slots[:count], state.count = self._writer.slots[:count], count
        return Last(self._disk, found, head, state, self._disk.open(found.name))

    def _rotate_by_hand(self) -> str:
        assert self._writer is not None
        if self._writer.count:
            old = self._writer
            found, head = self._begin_file(self.last_index + 1)
            self._publish((*self._segments[:-1], self._full(old), self._last(found, head, 0)))
        return self._tail.name

    # Requests

    def _known_requests(self) -> RequestCache:
        if not self._requests.is_loaded:
            parts: list[Part] = [part for part in reversed(self._segments) if part.count]
            self._requests.load(
                (part.first_index, part.headers(part.first_index, part.stop_index).request_ids)
                for part in parts
            )
        return self._requests


def _empty(header: rlog.Header, size: int) -> TailState:
    return TailState(rlog.decode_slots(bytes(rlog.SLOT_SIZE * header.capacity)).copy(), 0, size)
