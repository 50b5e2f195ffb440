"""The write-ahead log of a store: SSTs with contiguous ids, written by one writer at a time.

1. An id is created once.  A writer that finds it taken reads the SST: a newer epoch means that it
   is fenced.
2. A writer does not start id n before id n - parallel_writes_max is acknowledged.  So that many
   consecutive fences stop every older writer, with all its writes in flight.
3. An SST counts as written when it was created and the epoch was ours afterwards.  Garbage
   collection keeps fences: while they exist, an older writer is refused, however long it was
   frozen, and whatever its clocks show.  See docs/decisions/0016-fences-are-kept.md.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

from holdfast.bucket.bucket import Bucket
from holdfast.errors import CorruptError, FencedError, LockedError, NotOwnerError
from holdfast.formats.sst import EMPTY, Kind, Rows, decode_info, encode_sst
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.names import wal_name
from holdfast.runtime import Runtime, process_id

FENCE_LOSSES_MAX = 10_000
_FENCES_AT_ONCE = 64
FENCE_SIZE = 128  # bytes; an SST with a row has at least 210.  A listing shows nothing else


class Window:
    """The ids that may be started: at most `parallel` above the last contiguous one."""

    def __init__(self, next_id: int, parallel: int) -> None:
        if parallel < 1:
            raise ValueError(f"{parallel} parallel writes; at least one is needed")
        self.next_id, self.last_done = next_id, next_id - 1
        self._parallel = parallel
        self._done: set[int] = set()

    @property
    def has_room(self) -> bool:
        return self.next_id - self._parallel <= self.last_done

    def take(self) -> int:
        """Take the next id."""
        if not self.has_room:
            raise ValueError(f"{self._parallel} writes are in flight already")
        self.next_id += 1
        return self.next_id - 1

    def done(self, wal_id: int) -> None:
        """Record that `wal_id` is written; `last_done` is the last contiguous id."""
        self._done.add(wal_id)
        while self.last_done + 1 in self._done:
            self.last_done += 1
            self._done.remove(self.last_done)


class Tenure:
    """Until when a writer knows that its epoch is the current one."""

    def __init__(
        self, store: ManifestStore, runtime: Runtime, epoch: int, gc_min_age_ms: int, known_ms: int
    ) -> None:
        """`known_ms` is the monotonic time before the manifest with our epoch was read."""
        self.epoch = epoch
        self._store, self._runtime = store, runtime
        self._gc_min_age_ms, self._known_ms = gc_min_age_ms, known_ms
        self._lead_ms = runtime.now_ms() - runtime.monotonic_ms()

    def confirm(self) -> None:
        """Raise FencedError unless no other writer can have used the id of the created object.

        A newer writer fences us after the last time that we knew our epoch to be current.  Its
        fences refuse our writes while they exist.  This is the second guard, for fences that were
        deleted: its SSTs are kept for `gc_min_age`, by the store's clock.  Within half of that
        time, by our clock, they cannot have been deleted.  If our clocks disagree about the time
        that has passed, the process was frozen, and neither counts.
        """
        now_ms = self._runtime.monotonic_ms()
        jump_ms = abs(self._runtime.now_ms() - now_ms - self._lead_ms)
        if now_ms - self._known_ms >= self._gc_min_age_ms / 2 or jump_ms >= self._gc_min_age_ms / 4:
            self.check()

    def check(self) -> None:
        """Check that the epoch is still ours; FencedError if it is not."""
        before_ms = self._runtime.monotonic_ms()
        current = self._store.latest()
        found = current[1].writer_epoch if current else None
        self.compare(found, before_ms)

    def compare(self, found: int | None, before_ms: int) -> None:
        """Check a manifest that was read after `before_ms`."""
        if found is None:
            raise FencedError("the store was deleted: it has no manifest")
        if found != self.epoch:
            raise FencedError(f"writer {self.epoch} was fenced: writer {found} has taken over")
        if before_ms >= self._known_ms:
            self._known_ms = before_ms
            self._lead_ms = self._runtime.now_ms() - self._runtime.monotonic_ms()


@dataclass(frozen=True, slots=True)
class WalWriter:
    """Writes SSTs under one epoch.  Any number of threads may use it, each with its own id."""

    bucket: Bucket
    runtime: Runtime
    tenure: Tenure
    process: int = field(default_factory=process_id)

    def write(self, wal_id: int, rows: Rows) -> int:
        """Make these rows durable as SST `wal_id`.  When it returns, every reader will see them.

        Return the object's size.  FencedError if another writer has taken over.  After any other
        error, whether the rows will be seen is unknown.
        """
        if process_id() != self.process:
            raise NotOwnerError(
                "this is a fork of the process that opened the store; open it again here"
            )
        epoch, name = self.tenure.epoch, wal_name(wal_id)
        data = encode(rows, epoch, self.runtime)
        try:
            create(self.bucket, name, data, epoch)
        except FileExistsError:
            self._lost(name, data)
        self.tenure.confirm()
        return len(data)

    def _lost(self, name: str, data: bytes) -> None:
        """Return if the SST that has the id is ours after all; else raise FencedError or
        CorruptError.
        """
        epoch, winner = self.tenure.epoch, winner_of(self.bucket, name, data)
        if winner is None:  # deleted again, so it was old, and so is this writer
            self.tenure.check()
        elif winner > epoch:
            raise FencedError(f"writer {epoch} was fenced by writer {winner} at {name}")
        if winner != epoch:
            raise CorruptError(name, 0, f"taken by writer {winner}, which is fenced by {epoch}")


class Fencing:
    """Takes the WAL over: `count` contiguous fences stop older writers.

    A round creates all that are missing at once.  A death in between leaves a gap, and no fence
    lies more than `count` above it: the next writer fences it.
    """

    def __init__(
        self, bucket: Bucket, runtime: Runtime, epoch: int, start: int, count: int
    ) -> None:
        self._bucket, self._runtime, self.epoch = bucket, runtime, epoch
        self.next_id, self._count, self._row, self._losses = start, count, 0, 0

    @property
    def done(self) -> bool:
        return self._row >= self._count

    def run(self) -> int:
        """Write the fences; return the id of the last one.  Higher ids are for this writer."""
        with closing(self._runtime.workers(min(self._count, _FENCES_AT_ONCE))) as workers:
            while not self.done:
                missing = range(self.next_id, self.next_id + self._count - self._row)
                self._settle(workers.map(self._create, missing))
        return self.next_id - 1

    def step(self) -> bool:
        """Try the next id; return whether it is a fence.  FencedError: a newer writer has it."""
        self._settle([self._create(self.next_id)])
        return self._row > 0

    def _create(self, wal_id: int) -> bool:
        """Return whether this id is a fence now; False: an older writer has it."""
        name, data = wal_name(wal_id), encode(EMPTY, self.epoch, self._runtime)
        try:
            create(self._bucket, name, data, self.epoch)
        except FileExistsError:
            winner = winner_of(self._bucket, name, data)
            if winner is not None and winner > self.epoch:
                raise FencedError(
                    f"writer {self.epoch} was fenced by writer {winner} at {name}"
                ) from None
            return winner == self.epoch
        return True

    def _settle(self, fences: Sequence[bool]) -> None:
        """Count the fences at the end of the row, after those of the next ids were tried."""
        for is_fence in fences:
            self._row = self._row + 1 if is_fence else 0
            self._losses += not is_fence
        self.next_id += len(fences)
        if self._losses >= FENCE_LOSSES_MAX:
            raise LockedError(
                f"a busy writer was faster {self._losses} times; stop it, then open the store again"
            )


def encode(rows: Rows, epoch: int, runtime: Runtime) -> bytes:
    """Encode an SST of the WAL with a unique id: no two have the same bytes."""
    unique_id = runtime.new_id().bytes
    return encode_sst(rows, writer_epoch=epoch, unique_id=unique_id, kind=Kind.WAL)


def create(bucket: Bucket, name: str, data: bytes, epoch: int) -> None:
    bucket.put_if_absent(name, data, metadata={"writer_epoch": str(epoch)})


def winner_of(bucket: Bucket, name: str, data: bytes) -> int | None:
    """Return the epoch of the SST that has the name instead of `data`; None if it was deleted.

    It is our own epoch only if the SST is our own write, whose reply was lost.
    """
    try:
        found = bucket.get(name)
    except FileNotFoundError:
        return None
    epoch = decode_info(found, len(found), where=name).writer_epoch
    if found != data and epoch == decode_info(data, len(data)).writer_epoch:
        raise CorruptError(name, 0, f"two writers have epoch {epoch}")
    return epoch
