"""raft-wal's meta store, `wal-meta.db`: the list of segments, and the keys of the stable store.

Every change is one bbolt transaction, durable when it returns: its pages are written and synced,
then its meta page is.  After a crash the store holds the state before the change or after it.
If any bit of it changes, the store raises CorruptError or returns what was written.

An owner holds the lock that bbolt takes on this file, so that a Go program and Holdfast exclude
each other.  A reader takes no lock: it shows one whole transaction, which it has synced.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Self

from holdfast.disk import Disk, File, Lock
from holdfast.errors import ChangedError, CorruptError, PoisonedError
from holdfast.formats import bolt
from holdfast.formats.bolt import Bucket, Image
from holdfast.formats.flaw import Flaw
from holdfast.formats.mark import Mark
from holdfast.formats.raft_meta import State, decode_state, encode_state, seal_holds, seal_of
from holdfast.handle import Closing
from holdfast.logs.mark import REMEMBERED, read_mark

META_STORE = "wal-meta.db"

_META, _STABLE, _STATE_KEY = b"wal-meta", b"stable", b"m"
_LOOKS_MAX = 100
_HEAD_SIZE = 2**16 + 2**12  # both meta pages, whatever the page size
_ADVICE = "`holdfast log repair` can rebuild it from the segments"


class MetaStore(Closing):
    """The contents of wal-meta.db.  One caller at a time.

    An owner creates the store in a directory without segments.  CorruptError if it is damaged, or
    missing while segments exist.
    """

    def __init__(
        self, disk: Disk, *, read_only: bool = False, lock: "RaftOwnership | None" = None
    ) -> None:
        self._disk = disk
        self._lock: RaftOwnership | None = None
        self._file: File | None = None
        self._image: Image | None = None
        self._metas = b""  # the meta pages that a reader has seen
        self._loaded: tuple[bytes, State | None] = b"", None  # what was decoded last
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
    def create_from(
        cls,
        disk: Disk,
        state: State | None,
        stable: Mapping[bytes, bytes],
        *,
        lock: "RaftOwnership | None" = None,
    ) -> Self:
        """Replace the store, durably, by one with these contents; the old file is kept."""
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
        """The number of the transaction that is shown; 0 if there is no store yet."""
        return self._image.txid if self._image else 0

    @property
    def stable(self) -> dict[bytes, bytes]:
        """All keys of the stable store."""
        items = self._bucket(_STABLE).items.items()
        return {key: value for key, value in items if isinstance(value, bytes)}

    def load(self) -> State | None:
        """Return the list of segments; None if this log has never had any."""
        data = self._bucket(_META).items.get(_STATE_KEY)
        if data is None:
            return None
        if isinstance(data, Bucket):
            raise CorruptError(f"{META_STORE}, key m", 0, f"a bucket, not JSON; {_ADVICE}")
        encoded, state = self._loaded
        if encoded != data:
            found = decode_state(data, state)
            if isinstance(found, Flaw):
                raise CorruptError(f"{META_STORE}, key m", found.offset, f"{found.why}; {_ADVICE}")
            state = found
            self._loaded = data, state
        return state

    def commit(self, state: State, stable: Mapping[bytes, bytes | None] | None = None) -> None:
        """Replace the list of segments, and set stable keys with it.  Durable when this returns."""
        encoded = encode_state(state)
        self._write({_META: {_STATE_KEY: encoded}, _STABLE: stable or {}})
        self._loaded = encoded, state

    def get(self, key: bytes) -> bytes | None:
        value = self._bucket(_STABLE).items.get(key)
        return value if isinstance(value, bytes) else None

    def set(self, key: bytes, value: bytes | None) -> None:
        """Set a key, or with None remove it.  Durable when this returns."""
        self._write({_STABLE: {key: value}})

    def get_uint64(self, key: bytes) -> int:
        """Return a number that set_uint64 has written; 0 if there is no such key."""
        value = self.get(key)
        if value and len(value) != 8:
            raise ValueError(f"{key!r} holds {len(value)} bytes; a uint64 has 8")
        return int.from_bytes(value or b"", "little")

    def set_uint64(self, key: bytes, value: int) -> None:
        self.set(key, uint64_of(value))

    def refresh(self) -> int:
        """Show the newest transaction; return its number.  An owner shows it already."""
        if self._lock is None:
            self._image = self._look()
        return self.txid

    def close(self) -> None:
        """Close and unlock the store.  What was read can still be read."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._lock is not None:
            self._lock.release()

    # Opening

    def _open(self, lock: "RaftOwnership") -> None:
        if META_STORE not in self._disk.list():
            _refuse_if_lost(self._disk, self._disk.list())
            self._disk.create(META_STORE, _new_file({}, {}))
        lock.hold_store()
        self._file = self._disk.open(META_STORE, writable=True)
        # What is shown must be on the disk.  A killed owner may have left it in the cache; an owner
        # whose sync failed may have left there what will never reach the disk.
        self._file.sync(forget_from=0)
        self._image = _sound(bolt.decode(self._file.read_at(0, self._file.size())))

    def _look(self) -> Image | None:
        file = self._opened()
        if file is None:
            return None
        try:
            for _ in range(_LOOKS_MAX):
                size = file.size()
                if self._image is not None and _meta_pages(file, self._image) == self._metas:
                    return self._image  # no transaction was committed since
                data = file.read_at(0, size)
                # Pages of a transaction are overwritten only after the meta page of the next one.
                # So this copy is whole if there is no newer meta page by now.
                newest = bolt.decode_newest(file.read_at(0, min(size, _HEAD_SIZE)))
                if newest != bolt.decode_newest(data[:_HEAD_SIZE]) or file.size() != size:
                    continue
                image = _sound(bolt.decode(data))
                file.sync()  # what a reader shows must not vanish in a power cut
                self._metas = bolt.meta_pages(data, image.page_size)
                return image
        finally:
            file.close()
        raise ChangedError(f"{META_STORE} changed during {_LOOKS_MAX} looks at it; try again")

    def _opened(self) -> File | None:
        """Open the store for reading.  None if there is none yet."""
        with contextlib.suppress(FileNotFoundError):
            return self._disk.open(META_STORE)
        names = self._disk.list()
        with contextlib.suppress(FileNotFoundError):  # it is created before any segment is
            return self._disk.open(META_STORE)
        _refuse_if_lost(self._disk, names)
        return None

    # Reading and writing

    def _bucket(self, name: bytes) -> Bucket:
        return Bucket({}) if self._image is None else self._image.buckets[name]

    def _write(self, changes: Mapping[bytes, Mapping[bytes, bytes | None]]) -> None:
        """Set keys of buckets, or with None remove them, in one transaction."""
        if self._lock is None:
            raise ValueError(f"{META_STORE} is open read-only")
        if self._file is None or self._image is None:
            raise PoisonedError(f"{META_STORE} is closed; reopen it")
        buckets = dict(self._image.buckets)
        for name, values in changes.items():
            buckets[name] = _changed(self._bucket(name), values)
        change = bolt.commit(self._image, _sealed(buckets, self._image.txid + 1))
        if change.size > self._image.size:
            self._file.resize(change.size)
        for offset, page in change.pages:
            self._file.write_at(offset, page)
        self._file.sync()
        self._file.write_at(*change.meta, sync=True)
        self._file.write_at(*change.twin)
        self._image = change.image


def _changed(bucket: Bucket, values: Mapping[bytes, bytes | None]) -> Bucket:
    items = dict(bucket.items)
    for key, value in values.items():
        if type(items.get(key)) is Bucket:
            raise ValueError(f"{key!r} is a bucket in this store")  # bbolt refuses it too
        if value is None:
            items.pop(key, None)
        else:
            items[key] = bytes(value)
    return Bucket(items, bucket.sequence)


class RaftOwnership:
    """Both locks: bbolt's, on wal-meta.db itself, and the one that every Holdfast log has.

    If there is a store, bbolt's lock comes first, so that a refused owner has changed nothing.
    Another file of that name would admit a Go program, so its inode is checked too.
    """

    def __init__(self, disk: Disk, acquire: Callable[[], Lock] | None = None) -> None:
        self._disk = disk
        self._store: Lock | None = None
        self._directory: Lock | None = None
        with contextlib.suppress(FileNotFoundError):  # a new log, or one that lost its store
            self.hold_store()
        try:
            self._directory = (acquire or disk.lock)()
        except BaseException:
            self.release()
            raise

    def hold_store(self, *, anew: bool = False) -> None:
        """Lock wal-meta.db unless it is locked; `anew` if another file has that name now."""
        if anew and self._store is not None:
            self._store.release()
            self._store = None
        if self._store is None:
            self._store = self._disk.lock(META_STORE)

    def note(self, number: int) -> None:
        if self._directory is not None:
            self._directory.note(number)

    def check(self) -> None:
        """Raise NotOwnerError if wal-meta.db or its directory was replaced or removed.

        Another owner needs the lock of wal-meta.db first, so checking that one is enough.
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


def uint64_of(value: int) -> bytes:
    """Return a number as the stable store keeps it."""
    if not 0 <= value < 2**64:
        raise ValueError(f"{value} is not a uint64: expected 0 to {2**64 - 1}")
    return value.to_bytes(8, "little")


def _refuse_if_lost(disk: Disk, names: Iterable[str]) -> None:
    """Raise CorruptError if there was a store: it is created before all other files."""
    if any(name.endswith(".wal") for name in names):
        # The original would create a new log here, and then delete the segments of the old one.
        raise CorruptError(META_STORE, 0, f"missing, but there are segments; {_ADVICE}")
    mark = read_mark(disk)
    if isinstance(mark, Mark) and mark.files:
        why = f"missing, but the log held entries {mark.first_index}..{mark.last_index}"
        raise CorruptError(META_STORE, 0, f"{why}; restore a copy, or accept the loss by a repair")
    if isinstance(mark, Flaw) or REMEMBERED in names:
        raise CorruptError(META_STORE, 0, f"missing, but there was a log; {_ADVICE}")


def _meta_pages(file: File, image: Image) -> bytes:
    return bolt.meta_pages(file.read_at(0, 2 * image.page_size), image.page_size)


def _sound(image: Image | Flaw) -> Image:
    if isinstance(image, Flaw):
        raise CorruptError(META_STORE, image.offset, f"{image.why}; {_ADVICE}")
    for name in (_META, _STABLE):
        if name not in image.buckets:
            raise CorruptError(META_STORE, 0, f"no bucket {name.decode()!r}; {_ADVICE}")
    meta, stable = image.buckets[_META], image.buckets[_STABLE]
    if not seal_holds(meta.sequence, image.txid, meta.items, stable.items):
        why = "its contents do not match their checksum"
        raise CorruptError(META_STORE, 0, f"{why}; {_ADVICE}")
    return image


def _sealed(buckets: Mapping[bytes, Bucket], txid: int) -> Mapping[bytes, Bucket]:
    """Return the buckets with their checksum.  See holdfast.formats.raft_meta."""
    meta, stable = buckets[_META], buckets[_STABLE]
    return {**buckets, _META: Bucket(meta.items, seal_of(txid, meta.items, stable.items))}


def _new_file(meta: Mapping[bytes, bytes], stable: Mapping[bytes, bytes]) -> bytes:
    return bolt.encode(_sealed({_META: Bucket(meta), _STABLE: Bucket(stable)}, txid=1), txid=1)


def _unused_name(disk: Disk) -> str:
    names = (f"{META_STORE}{f'-{n}' if n > 1 else ''}.cut" for n in count(1))
    taken = disk.list()
    return next(name for name in names if name not in taken)
