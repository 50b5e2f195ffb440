"""A log open for writing: a reader of it, the lock, and the commits of many threads.

A log may be changed by its owner, one thread at a time, until a change has failed.  Then it is
unknown what is durable, and the log refuses changes until it is reopened and recovered.
"""

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from holdfast.disk import Lock
from holdfast.errors import CorruptError, DiskFullError, NotOwnerError
from holdfast.group_commit import GroupCommit, Submitted
from holdfast.handle import Closing
from holdfast.logs.log import Damage, OnDamage, Payloads, SegmentInfo
from holdfast.logs.reader import Reader, Scan
from holdfast.logs.replicas import Replicas
from holdfast.logs.retention import Retention, Trim, choose
from holdfast.metrics import Histogram, Metric
from holdfast.runtime import Runtime

if TYPE_CHECKING:
    from holdfast.logs.status import LogStatus
    from holdfast.logs.verify import VerifyReport

_LOG = logging.getLogger("holdfast")


class Batch(Protocol):
    """Payloads of one append, encoded by the thread that waits for them."""

    entries: int
    size: int  # bytes of the payloads
    last: int  # the index of its last entry, once it is written
    error: Exception | None  # why it was refused; other batches of its group are not


Item = TypeVar("Item", bound=Batch)
Result = TypeVar("Result")


def _outcome(batch: Batch) -> int:
    if batch.error is not None:
        raise batch.error
    return batch.last


class Writer(Closing, Generic[Item]):
    """The owner of a log: what the owners of all formats have in common.

    A format defines how a batch is encoded and written, how a segment is rotated and removed, and
    what closing writes.  One thread at a time calls these methods, and the constructor calls none.
    """

    def __init__(
        self,
        reader: Reader[Any, Any],
        lock: Lock,
        runtime: Runtime,
        recovered: Sequence[str],
        full: DiskFullError | None = None,
    ) -> None:
        """`full` says why recovery could not be finished: then the log is read-only."""
        self.reader, self.disk, self.runtime = reader, reader.disk, runtime
        self.recovered = tuple(recovered)  # what recovery did, one line each
        self.read = reader.read  # without a call in between: this is the hot path
        self._handle, self._lock = reader.handle, lock
        self._commits: GroupCommit[Item] = GroupCommit(self._commit, runtime)
        self._latency, self._monotonic = Histogram(), runtime.monotonic
        if full is not None:
            self._refuse_full(full)
        for line in self.recovered:
            _LOG.warning("recovered %r: %s", self.disk, line)
        for damage in reader.damage:
            _LOG.error("damage in %r: %s", self.disk, damage)
            why = f"{damage.why}; the log is read-only until it is repaired"
            self._handle.refuse(CorruptError(damage.file, damage.offset, why))

    # What a format defines

    @abstractmethod
    def _encode(self, payloads: Payloads) -> Item:
        """Encode a batch, in the thread that appends it.  ValueError if it is not valid."""

    @abstractmethod
    def _write(self, batches: Sequence[Item]) -> None:
        """Make batches durable, then visible, and set `last` or `error` of each."""

    @abstractmethod
    def _rotate(self) -> str:
        """Seal the active segment, if it holds anything; return the active segment's name."""

    def _remove(self, trim: Trim) -> None:
        """Remove the segments of a plan, oldest first, so that a crash leaves no gap."""
        for segment in trim.removed:
            self.reader.publish_segments(self.reader.view.segments[1:])
            self.disk.remove(segment.name)

    def _plan(self, limits: Retention) -> Trim:
        return choose(
            self.reader.segments(), limits, self._replicas().list(), self.runtime.now_ms()
        )

    def _replicas(self) -> Replicas:
        return Replicas(self.disk, last_index=lambda: self.last_index)

    def _finish(self) -> None:
        """Write what closing writes.  Called only if the log is sound and this process owns it."""

    def _release(self) -> None:
        """Close files."""

    # What a log can do

    def append(self, payloads: Payloads) -> int:
        """Append a batch and return its last index.  It is durable when this returns.

        Payloads are bytes, an Arrow array, or anything with `__arrow_c_stream__` that has one
        binary column or one named `payload`.  Many threads may append; one sync serves all that
        wait.  The page of the format describes what a crash inside append may leave.
        """
        batch = self._encode(payloads)
        self._commits.commit(batch)
        if batch.error is not None:
            raise batch.error
        return batch.last

    def submit(self, payloads: Payloads) -> Submitted:
        """Append a batch without waiting for it.

        Batches become durable in the order of their submission.  `result(timeout)` and `await`
        return the last index.  `close` waits for all of them.
        """
        self._handle.check_write()
        return self._commits.submit(self._encode(payloads), _outcome)

    def rotate(self) -> str:
        """Seal the active segment, if it holds anything, and begin a new one; return its name."""
        return self._exclusively(lambda: self._guard(self._rotate))

    def plan_trim(self, limits: Retention) -> Trim:
        """Return what `trim` would remove.  Nothing is changed."""
        return self._exclusively(lambda: self._plan(limits))

    def trim(self, limits: Retention) -> Trim:
        """Durably remove the oldest segments that `limits` names and no replica still needs."""

        def step() -> Trim:
            plan = self._plan(limits)
            if plan.removed:
                self._guard(lambda: self._with_room(lambda: self._remove(plan)))
            return plan

        return self._exclusively(step)

    def close(self) -> None:
        """Wait for what was submitted, then unlock the directory.  Closing twice is fine."""
        self._commits.close()
        self._commits.exclusively(self._close)

    @property
    def first_index(self) -> int:
        return self.reader.first_index

    @property
    def last_index(self) -> int:
        """Return the index of the last entry; first_index - 1 in an empty log."""
        return self.reader.last_index

    @property
    def damage(self) -> tuple[Damage, ...]:
        """Return the damage that opening found.  Other entries can be read; nothing can be
        appended.
        """
        return self.reader.damage

    def scan(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        on_damage: OnDamage | None = None,
    ) -> Scan:
        """Return entries start..stop-1 as Arrow batches.  See Reader.scan."""
        return self.reader.scan(start, stop, on_damage=on_damage)

    def fingerprint(self, index: int) -> bytes:
        """Return what differs between an entry and another that replaces it after a rollback."""
        return self.reader.fingerprint(index)

    def refresh(self) -> int:
        """Return last_index: an owner sees everything already."""
        return self.reader.last_index

    def segments(self) -> list[SegmentInfo]:
        """Return the segments, oldest first."""
        return self.reader.segments()

    def check(self, name: str) -> Damage | None:
        """Read one segment from end to end and verify every checksum."""
        return self.reader.check(name)

    def status(self) -> "LogStatus":
        """Return a summary of the log.  Its sealed segments are not read."""
        return self.reader.status()

    def verify(
        self, on_progress: Callable[[int, int], None] = lambda done, total: None
    ) -> "VerifyReport":
        """Verify every checksum of the log; `on_progress` gets bytes done and bytes in all."""
        return self.reader.verify(on_progress)

    def metrics(self) -> list[Metric]:
        """Return what was counted since this was opened, and how long commits took."""
        about = "seconds that a commit took, from its first write until it was durable"
        return [
            *self.reader.metrics(),
            Metric("first_index", "gauge", self.first_index, "index of the first entry"),
            Metric("last_index", "gauge", self.last_index, "index of the last entry"),
            Metric("segments", "gauge", len(self.reader.view.segments), "files of the log"),
            self._latency.metric("commit_seconds", about),
        ]

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.reader.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return self.reader.describe(type(self).__name__)

    def _repr_html_(self) -> str:
        return self.reader._repr_html_()

    # Changes, one thread at a time

    def _commit(self, batches: Sequence[Item]) -> None:
        if self._handle.refusal is not None:
            self._handle.check_write()
        started = self._monotonic()
        try:
            self._lock.check()
            self._write(batches)
        except NotOwnerError:
            raise
        except BaseException as error:  # later batches must not be appended without these
            self._handle.poison("an earlier append", error)
            raise
        self._latency.observe(self._monotonic() - started)
        counters = self.reader.counters
        for batch in batches:
            if batch.error is None:
                counters.log_appends += 1
                counters.log_entries_written += batch.entries
                counters.log_entry_bytes_written += batch.size

    def _exclusively(self, step: Callable[[], Result]) -> Result:
        """Run `step` while no commit runs, if the log may be changed."""

        def checked() -> Result:
            self._check_write()
            return step()

        return self._commits.exclusively(checked)

    def _change(
        self, step: Callable[[], Result], keeps: Callable[[], tuple[int, int]] | None = None
    ) -> Result:
        """Run a change while no commit runs.  ValueError means that it has changed nothing.

        `keeps` returns the first and last index that it keeps.  HoldfastError, and nothing is
        changed, if a registered replica needs others.
        """

        def checked() -> Result:
            if keeps is not None:
                held = self.first_index, self.last_index
                self._replicas().refuse_removal(held, keeps())
            return self._guard(lambda: self._with_room(step))

        return self._exclusively(checked)

    def _with_room(self, step: Callable[[], Result]) -> Result:
        """Run a change that may be a way out of a full disk."""
        is_full = self.disk.give_up_reserve()
        result = step()
        if is_full:
            self.disk.keep_reserve()
        return result

    def _guard(self, step: Callable[[], Result]) -> Result:
        """Run a change; if it fails, refuse all others."""
        try:
            return step()
        except ValueError:
            raise  # refused before anything was done
        except BaseException as error:
            self._handle.poison("an earlier change", error)
            raise

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """Run the last steps of an open, then keep the reserve again: they may need it.

        If what they write does not fit, the log is read-only.
        """
        try:
            yield
        except DiskFullError as error:
            self._refuse_full(error)
        self.disk.keep_reserve()

    def _refuse_full(self, error: DiskFullError) -> None:
        _LOG.error("%r is read-only: %s", self.disk, error)
        self._handle.refuse(error)

    def _check_write(self) -> None:
        """Raise unless a write is safe now.  Call it before each."""
        self._handle.check_write()
        self._lock.check()

    def _close(self) -> None:
        # All of it again if it is closed already: Ctrl-C may have left the lock to a second close.
        try:
            if self._handle.refusal is None and self._lock.is_ours:
                self._finish()
        finally:
            try:
                self.reader.close()
                self._release()
            finally:
                self._lock.release()
