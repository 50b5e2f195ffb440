"""The write-ahead log of a store: SSTs with contiguous ids, written by one writer at a time.

1. An id is created once.  Who loses it reads what won: a newer epoch means that we are fenced.
2. Of a writer's ids, n is not begun before n - max_parallel_writes is acknowledged.  So a row of
   as many fences as that stops every older writer, whatever it has in flight.
3. An SST counts as written when it was created and the epoch was ours afterwards.  Of a slot
   that garbage collection may have emptied meanwhile, the creation alone proves nothing.
"""

from dataclasses import dataclass, field

from holdfast.bucket.bucket import Bucket
from holdfast.errors import CorruptError, FencedError, LockedError, NotOwnerError
from holdfast.formats.sst import EMPTY, Kind, Rows, decode_info, encode_sst
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.names import wal_name
from holdfast.runtime import Runtime, process_id

FENCE_LOSSES_MAX = 10_000


class Window:
    """Which ids may be begun: those less than `parallel` above the last of an unbroken row."""

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
        """The next id, begun by this call."""
        if not self.has_room:
            raise ValueError(f"{self._parallel} writes are in flight already")
        self.next_id += 1
        return self.next_id - 1

    def done(self, wal_id: int) -> None:
        """`wal_id` is written; `last_done` moves on as far as the row is unbroken."""
        self._done.add(wal_id)
        while self.last_done + 1 in self._done:
            self.last_done += 1
            self._done.remove(self.last_done)


class Tenure:
    """What a writer knows of its epoch being the current one, and since when."""

    def __init__(
        self, store: ManifestStore, runtime: Runtime, epoch: int, gc_min_age_ms: int, known_ms: int
    ) -> None:
        """`known_ms`: the monotonic time before the manifest was read that had our epoch."""
        self.epoch = epoch
        self._store, self._runtime = store, runtime
        self._gc_min_age_ms, self._known_ms = gc_min_age_ms, known_ms

    def confirm(self) -> None:
        """FencedError unless what was created just now went to a slot that was never another's.

        Whoever fences us does so after the last time we knew better, and what they write is kept
        for `gc_min_age`, by the store's clock.  Half of that, by ours, is time enough.
        """
        if self._runtime.monotonic_ms() - self._known_ms >= self._gc_min_age_ms / 2:
            self.check()

    def check(self) -> None:
        """Look whether the epoch is still ours; FencedError if it is not."""
        before_ms = self._runtime.monotonic_ms()
        current = self._store.latest()
        found = current[1].writer_epoch if current else None
        self.compare(found, before_ms)

    def compare(self, found: int | None, before_ms: int) -> None:
        """The same, of a manifest that was read after `before_ms`."""
        if found is None:
            raise FencedError("the store is gone: it has no manifest any more")
        if found != self.epoch:
            raise FencedError(f"writer {self.epoch} was fenced: writer {found} has taken over")
        self._known_ms = max(self._known_ms, before_ms)


@dataclass(frozen=True, slots=True)
class WalWriter:
    """Writes SSTs under one epoch.  Any number of threads may, each with an id of its own."""

    bucket: Bucket
    runtime: Runtime
    tenure: Tenure
    process: int = field(default_factory=process_id)

    def write(self, wal_id: int, rows: Rows) -> int:
        """Make these rows durable as SST `wal_id`, and know that every reader will see them.

        Return the object's size.  FencedError if another writer has taken over.  After any other
        error, whether the rows will be seen is unknown.
        """
        if process_id() != self.process:
            raise NotOwnerError("this is a fork of the process that opened the store")
        epoch, name = self.tenure.epoch, wal_name(wal_id)
        data = encode(rows, epoch, self.runtime)
        try:
            create(self.bucket, name, data, epoch)
        except FileExistsError:
            self._lost(name, data)
        self.tenure.confirm()
        return len(data)

    def _lost(self, name: str, data: bytes) -> None:
        """Return if what won is our own after all; else raise what that means."""
        epoch, winner = self.tenure.epoch, winner_of(self.bucket, name, data)
        if winner is None:  # gone again, so it was old, and so are we
            self.tenure.check()
        elif winner > epoch:
            raise FencedError(f"writer {epoch} was fenced by writer {winner} at {name}")
        if winner != epoch:
            raise CorruptError(name, 0, f"taken by writer {winner}, who is fenced by {epoch}")


class Fencing:
    """Takes the WAL over, one create at a time: `count` fences in a row stop all older writers."""

    def __init__(
        self, bucket: Bucket, runtime: Runtime, epoch: int, start: int, count: int
    ) -> None:
        self._bucket, self._runtime, self.epoch = bucket, runtime, epoch
        self.next_id, self._count, self._row, self._losses = start, count, 0, 0

    @property
    def done(self) -> bool:
        return self._row == self._count

    def run(self) -> int:
        """Fence; the id of the last fence.  Everything above it is ours."""
        while not self.done:
            self.step()
        return self.next_id - 1

    def step(self) -> bool:
        """Try the next id; whether it became a fence.  FencedError if a newer writer has it."""
        name = wal_name(self.next_id)
        data = encode(EMPTY, self.epoch, self._runtime)
        try:
            create(self._bucket, name, data, self.epoch)
        except FileExistsError:
            self._lost(name, data)
        else:
            self._row += 1
        self.next_id += 1
        return self._row > 0

    def _lost(self, name: str, data: bytes) -> None:
        winner = winner_of(self._bucket, name, data)
        if winner == self.epoch:
            self._row += 1
            return
        if winner is not None and winner > self.epoch:
            raise FencedError(f"writer {self.epoch} was fenced by writer {winner} at {name}")
        self._row, self._losses = 0, self._losses + 1
        if self._losses >= FENCE_LOSSES_MAX:
            raise LockedError(
                f"a busy writer was faster {self._losses} times in a row; stop it, then open again"
            )


def encode(rows: Rows, epoch: int, runtime: Runtime) -> bytes:
    """A WAL SST, with an id of its own: no two creations have the same bytes."""
    unique_id = runtime.new_id().bytes
    return encode_sst(rows, writer_epoch=epoch, unique_id=unique_id, kind=Kind.WAL)


def create(bucket: Bucket, name: str, data: bytes, epoch: int) -> None:
    bucket.put_if_absent(name, data, metadata={"writer_epoch": str(epoch)})


def winner_of(bucket: Bucket, name: str, data: bytes) -> int | None:
    """The epoch of the SST that is there instead of `data`; None if it is gone again.

    It is our own epoch only if it is our own write, the reply to which was lost.
    """
    try:
        found = bucket.get(name)
    except FileNotFoundError:
        return None
    epoch = decode_info(found, len(found), where=name).writer_epoch
    if found != data and epoch == decode_info(data, len(data)).writer_epoch:
        raise CorruptError(name, 0, f"two writers have epoch {epoch}")
    return epoch
