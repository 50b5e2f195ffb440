"""raft-wal's meta store, `wal-meta.db`: which segments there are, and a few keys that must last.

Every change is one bbolt transaction, durable when it returns: its pages are written and synced,
then its meta page is.  Cut off anywhere, the store holds what it held before or the change.
Whatever bit of it rots, what is shown is what was written, or the store is called corrupt.

An owner holds the lock that bbolt takes on this very file, so that a Go program and we keep each
other out.  A guest takes no lock: what it shows is one whole transaction, and synced.
"""

import contextlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import count
from typing import Self

from holdfast import runtime
from holdfast.disk import Disk, File, Lock
from holdfast.errors import ChangedError, CorruptError, PoisonedError
from holdfast.formats import bolt
from holdfast.formats.bolt import Bucket, Image
from holdfast.formats.flaw import Flaw
from holdfast.formats.raft_meta import State, decode_state, encode_state, seal_holds, seal_of

META_STORE = "wal-meta.db"

_META, _STABLE, _STATE_KEY = b"wal-meta", b"stable", b"m"
_LOOKS_MAX = 100
_HEAD_SIZE = 2**16 + 2**12  # the second meta page is behind the first, whatever the page size
_ADVICE = "`holdfast log repair` can make it anew from the segments"


class MetaStore(runtime.Closing):
    """What wal-meta.db holds.  One caller at a time.

    An owner makes the store where there is none and no segments either.  CorruptError if it is
    damaged, or gone while segments are there.
    """

    def __init__(
        self, disk: Disk, *, read_only: bool = False, lock: "RaftOwnership | None" = None
    ) -> None:
        self._disk = disk
        self._lock: RaftOwnership | None = None
        self._file: File | None = None
        self._image: Image | None = None
        if read_only:
            self.refresh()
            return
        self._lock = lock or RaftOwnership(disk)
        try:
            self._open(self._lock)
        except BaseException:
            self.close()
            raise

    @classmethod
    def owned(cls, disk: Disk) -> "tuple[Self, RaftOwnership]":
        """The store of a log that is locked from now on, until the store is closed."""
        lock = RaftOwnership(disk)
        return cls(disk, lock=lock), lock

    @classmethod
    def create_from(
        cls,
        disk: Disk,
        state: State | None,
        stable: Mapping[bytes, bytes],
        *,
        lock: "RaftOwnership | None" = None,
    ) -> Self:
        """Make the store anew, durably, with these contents; what was there is kept aside."""
        lock = lock or RaftOwnership(disk)
        try:
            if META_STORE in disk.list():
                disk.rename(META_STORE, _unused_name(disk))
            meta = {} if state is None else {_STATE_KEY: encode_state(state)}
            disk.create(META_STORE, _new_file(meta, stable))
            lock.hold_store(anew=True)
        except BaseException:
            lock.release()
            raise
        return cls(disk, lock=lock)

    @property
    def txid(self) -> int:
        """The transaction that is shown; 0 if there is no store yet."""
        return self._image.txid if self._image else 0

    @property
    def stable(self) -> dict[bytes, bytes]:
        """All keys of the stable store."""
        items = self._bucket(_STABLE).items.items()
        return {key: value for key, value in items if isinstance(value, bytes)}

    def load(self) -> State | None:
        """The segments; None if this log has never had any."""
        data = self._bucket(_META).items.get(_STATE_KEY)
        if data is None:
            return None
        state = decode_state(data) if isinstance(data, bytes) else Flaw(0, "a bucket, not JSON")
        if isinstance(state, Flaw):
            raise CorruptError(f"{META_STORE}, key m", state.offset, f"{state.why}; {_ADVICE}")
        return state

    def commit(self, state: State) -> None:
        """Replace the segments.  Durable when this returns."""
        self._put(_META, _STATE_KEY, encode_state(state))

    def get(self, key: bytes) -> bytes | None:
        value = self._bucket(_STABLE).items.get(key)
        return value if isinstance(value, bytes) else None

    def set(self, key: bytes, value: bytes | None) -> None:
        """Set a key, or with None remove it.  Durable when this returns."""
        self._put(_STABLE, key, value)

    def get_uint64(self, key: bytes) -> int:
        """A number that set_uint64 has written; 0 if there is none."""
        value = self.get(key)
        if value and len(value) != 8:
            raise ValueError(f"{key!r} holds {len(value)} bytes, which are no uint64")
        return int.from_bytes(value or b"", "little")

    def set_uint64(self, key: bytes, value: int) -> None:
        if not 0 <= value < 2**64:
            raise ValueError(f"{value} is no uint64")
        self.set(key, value.to_bytes(8, "little"))

    def refresh(self) -> int:
        """Look for a newer transaction; return its txid.  An owner has nothing to look for."""
        if self._lock is None:
            self._image = self._look()
        return self.txid

    def close(self) -> None:
        """Let the store go.  What was read can still be read."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._lock is not None:
            self._lock.release()

    # Opening

    def _open(self, lock: "RaftOwnership") -> None:
        if META_STORE not in self._disk.list():
            _refuse_if_segments(self._disk.list())
            self._disk.create(META_STORE, _new_file({}, {}))
        lock.hold_store()
        self._file = self._disk.open(META_STORE, writable=True)
        # What is shown from now on must be on the disk.  A killed owner may have left it in the
        # cache; one whose sync failed may have left there what will never reach the disk.
        self._file.sync(forget_from=0)
        self._image = _sound(_decoded(self._file.read_at(0, self._file.size())))

    def _look(self) -> Image | None:
        names = self._disk.list()
        try:
            file = self._disk.open(META_STORE)
        except FileNotFoundError:  # it is made before any segment is
            _refuse_if_segments(names)
            return None
        try:
            for _ in range(_LOOKS_MAX):
                size = file.size()
                data = file.read_at(0, size)
                # Pages of a transaction are written over only after its successor's meta page is.
                # So this copy is whole if no newer meta page has come until now.
                newest = bolt.decode_newest(file.read_at(0, min(size, _HEAD_SIZE)))
                if newest != bolt.decode_newest(data[:_HEAD_SIZE]) or file.size() != size:
                    continue
                image = _decoded(data)
                if image != self._image:
                    file.sync()  # what a guest shows must not vanish in a power cut
                return _sound(image)
        finally:
            file.close()
        raise ChangedError(f"{META_STORE} has changed during {_LOOKS_MAX} looks; try again")

    # Reading and writing

    def _bucket(self, name: bytes) -> Bucket:
        if self._image is None:
            return Bucket({})
        if name not in self._image.buckets:
            raise CorruptError(META_STORE, 0, f"no bucket {name.decode()!r}; {_ADVICE}")
        return self._image.buckets[name]

    def _put(self, name: bytes, key: bytes, value: bytes | None) -> None:
        if self._lock is None:
            raise ValueError(f"{META_STORE} is open read-only")
        if self._file is None or self._image is None:
            raise PoisonedError(f"{META_STORE} is closed; reopen it")
        bucket = self._bucket(name)
        items = dict(bucket.items)
        if type(items.get(key)) is Bucket:
            raise ValueError(f"{key!r} is a bucket in this store")  # bbolt refuses it too
        if value is None:
            items.pop(key, None)
        else:
            items[key] = bytes(value)
        buckets = {**self._image.buckets, name: Bucket(items, bucket.sequence)}
        change = bolt.commit(self._image, _sealed(buckets, self._image.txid + 1))
        if change.size > self._image.size:
            self._file.resize(change.size)
        for offset, page in change.pages:
            self._file.write_at(offset, page)
        self._file.sync()
        self._file.write_at(*change.meta, sync=True)
        self._file.write_at(*change.twin)
        self._image = change.image


class RaftOwnership:
    """Both locks: bbolt's, which is on wal-meta.db itself, and that of all our logs.

    bbolt's comes first where there is a store, so that one who is refused has changed nothing.
    Another file under that name would admit a Go program: so its inode is checked, too.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._store: Lock | None = None
        self._directory: Lock | None = None
        with contextlib.suppress(FileNotFoundError):  # a new log, or one that lost its store
            self.hold_store()
        try:
            self._directory = disk.lock()
        except BaseException:
            self.release()
            raise

    def hold_store(self, *, anew: bool = False) -> None:
        """Lock wal-meta.db unless it is; `anew` because another file has that name now."""
        if anew and self._store is not None:
            self._store.release()
            self._store = None
        if self._store is None:
            self._store = self._disk.lock(META_STORE)

    def check(self) -> None:
        """Raise NotOwnerError if wal-meta.db is not ours any more, with or without its directory.

        Whoever wants the directory must have wal-meta.db first: to check that is enough.
        """
        lock = self._store or self._directory
        assert lock is not None
        lock.check()

    def refuse_fork(self) -> None:
        """Raise NotOwnerError in a fork of the owner's process."""
        if self._directory is not None:
            self._directory.refuse_fork()

    @property
    def is_ours(self) -> bool:
        lock = self._store or self._directory
        return lock is not None and lock.is_ours

    def release(self) -> None:
        for lock in (self._store, self._directory):
            if lock is not None:
                lock.release()


def _refuse_if_segments(names: Iterable[str]) -> None:
    if any(name.endswith(".wal") for name in names):
        # The original would begin a new log here, and then delete the segments of the old one.
        raise CorruptError(META_STORE, 0, f"missing, though there are segments; {_ADVICE}")


@lru_cache(2)
def _decoded(data: bytes) -> Image | Flaw:
    """Who looks again and again finds the same, mostly."""
    return bolt.decode(data)


def _sound(image: Image | Flaw) -> Image:
    if isinstance(image, Flaw):
        raise CorruptError(META_STORE, image.offset, f"{image.why}; {_ADVICE}")
    meta, stable = (image.buckets.get(name, Bucket({})) for name in (_META, _STABLE))
    if not seal_holds(meta.sequence, image.txid, meta.items, stable.items):
        why = "what it holds is not what was written, or not all of it"
        raise CorruptError(META_STORE, 0, f"{why}; {_ADVICE}")
    return image


def _sealed(buckets: Mapping[bytes, Bucket], txid: int) -> Mapping[bytes, Bucket]:
    """With what vouches for them, see holdfast.formats.raft_meta; if there is a place for it."""
    if _META not in buckets:
        return buckets
    meta, stable = buckets[_META], buckets.get(_STABLE, Bucket({}))
    return {**buckets, _META: Bucket(meta.items, seal_of(txid, meta.items, stable.items))}


def _new_file(meta: Mapping[bytes, bytes], stable: Mapping[bytes, bytes]) -> bytes:
    return bolt.encode(_sealed({_META: Bucket(meta), _STABLE: Bucket(stable)}, txid=1), txid=1)


def _unused_name(disk: Disk) -> str:
    names = (f"{META_STORE}{f'-{n}' if n > 1 else ''}.cut" for n in count(1))
    taken = disk.list()
    return next(name for name in names if name not in taken)
