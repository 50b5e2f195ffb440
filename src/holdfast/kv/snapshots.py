"""Snapshots: states of a store that stay readable, until a time or until they are dropped.

A snapshot is an entry in the current manifest that names a manifest.  A manifest is active if it is
the current one, or if a snapshot that has not expired names it.  What an active manifest needs is
never deleted: its SSTs in `levels`, and the WAL from `wal_id_last_compacted` on.

A lease is a snapshot that a process renews while it reads.

A lease moves to the newest state with one manifest update.  The snapshot of the previous state
stays for one more update, because new views may read that state until the new one is shown; and as
long as views read it.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from holdfast.errors import CorruptError, UnavailableError
from holdfast.formats.manifest import Draft, Manifest
from holdfast.kv.manifests import ManifestStore
from holdfast.runtime import Runtime

_EXPIRY_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`manifest_id` is the state to read; `expires_s` is Unix time, 0 for never."""

    id: UUID
    manifest_id: int
    expires_s: int


class Snapshots:
    """The snapshots of one store."""

    def __init__(self, store: ManifestStore, runtime: Runtime) -> None:
        self._store, self._runtime = store, runtime

    def list(self) -> list[Snapshot]:
        """Return all snapshots of the current manifest, expired ones too."""
        current = self._store.latest()
        return listed(current[1]) if current else []

    def create(
        self,
        ttl_ms: float | None,
        *,
        manifest_id: int | None = None,
        edit: Callable[[Draft[Manifest], Manifest], None] = lambda draft, manifest: None,
    ) -> Snapshot:
        """Keep the current state, or that of an active manifest; without limit if it is None."""
        id, expires_s = self._runtime.new_id(), expiry(self._runtime.now_ms(), ttl_ms)

        def change(current_id: int, manifest: Manifest) -> Manifest | None:
            if find(manifest, id) is not None:
                return None
            draft = manifest.edit()
            if manifest_id is None:
                edit(draft, manifest)
            elif manifest_id not in active_ids(current_id, manifest, self._runtime.now_ms()):
                raise ValueError(
                    f"manifest {manifest_id} is not active, so it cannot have a snapshot"
                )
            draft.add_snapshot(id.bytes, manifest_id or current_id + 1, expires_s)
            return draft.freeze()

        found = find(self._store.update(change)[1], id)
        if found is None:
            raise UnavailableError(f"snapshot {id} expired before it could be used; try again")
        return found

    def extend(self, id: UUID, ttl_ms: float | None) -> Snapshot:
        """Set the expiry to `ttl_ms` from now; KeyError if the snapshot no longer exists."""
        expires_s = expiry(self._runtime.now_ms(), ttl_ms)

        def change(current_id: int, manifest: Manifest) -> Manifest | None:
            found = find(manifest, id)
            if found is None:
                raise KeyError(f"no snapshot {id}")
            if found.expires_s == expires_s:
                return None
            draft = manifest.edit()
            set_expiry(draft, {id}, expires_s)
            return draft.freeze()

        extended = find(self._store.update(change)[1], id)
        if extended is None:
            raise KeyError(f"no snapshot {id}")
        return extended

    def drop(self, *ids: UUID) -> None:
        """Drop these snapshots; a missing one is ignored."""

        def change(current_id: int, manifest: Manifest) -> Manifest | None:
            draft = manifest.edit()
            dropped = [draft.drop_snapshot(id.bytes) for id in ids]
            return draft.freeze() if any(dropped) else None

        self._store.update(change)


def listed(manifest: Manifest) -> list[Snapshot]:
    """Return the snapshots in a manifest."""
    return [
        Snapshot(UUID(bytes=entry.id), entry.manifest_id, entry.snapshot_expire_time_s)
        for entry in manifest.snapshots
    ]


def find(manifest: Manifest, id: UUID) -> Snapshot | None:
    return next((found for found in listed(manifest) if found.id == id), None)


def active_ids(
    current_id: int, manifest: Manifest, now_ms: int, *, clock_skew_ms: int = 0
) -> set[int]:
    """Return the ids of active manifests; other clocks may be behind by `clock_skew_ms`."""
    since_s = (now_ms - clock_skew_ms) / 1000
    kept = (found for found in listed(manifest) if not 0 < found.expires_s < since_s)
    return {current_id, *(found.manifest_id for found in kept)}


def expiry(now_ms: int, ttl_ms: float | None) -> int:
    """Return the Unix second at which a snapshot expires that is made now."""
    if ttl_ms is None:
        return 0
    if ttl_ms <= 0:
        raise ValueError(
            f"invalid ttl_ms {ttl_ms}; expected a positive number, or None for no expiry"
        )
    return min(int((now_ms + ttl_ms) / 1000) + 1, _EXPIRY_MAX)


def set_expiry(draft: Draft[Manifest], ids: set[UUID], expires_s: int) -> None:
    """Set the expiry of these snapshots, as far as they exist."""
    for entry in draft.message.snapshots:
        if UUID(bytes=entry.id) in ids:
            entry.snapshot_expire_time_s = expires_s


Edit = Callable[[Draft[Manifest], Manifest], None]


class Lease:
    """The snapshots of one reader or writer.  Its owner makes sure that one thread at a time moves
    it.
    """

    def __init__(
        self,
        store: ManifestStore,
        runtime: Runtime,
        ttl_ms: int,
        on_move: Callable[[Draft[Manifest], UUID], None] = lambda draft, id: None,
    ) -> None:
        """`on_move` is called with the draft that gets a new snapshot, and its id."""
        self._store, self._runtime, self._ttl_ms = store, runtime, ttl_ms
        self._on_move = on_move
        self._held: dict[int, UUID] = {}  # by the manifest that is kept; the last one is shown
        self._pins: Counter[int] = Counter()
        self._unpinned: deque[int] = deque()  # views end in any thread, at any moment
        self._lock = runtime.lock()
        self._renewed_ms = runtime.monotonic_ms()

    @property
    def is_due(self) -> bool:
        """Return whether to renew the lease, or whether a snapshot can be dropped."""
        waited_ms = self._runtime.monotonic_ms() - self._renewed_ms
        return bool(self._held) and (waited_ms >= self._ttl_ms / 3 or bool(self._idle()))

    @property
    def has_lapsed(self) -> bool:
        """Return whether the snapshot may have expired, by our clock."""
        return self._runtime.monotonic_ms() - self._renewed_ms >= self._ttl_ms

    def keeps(self, manifest_id: int) -> bool:
        """Return whether nothing of this state can have been deleted: our snapshot still exists.

        The current manifest decides.  Our clock may have stopped while this process was frozen.
        """
        id = self._held.get(manifest_id)
        if id is None or self.has_lapsed:
            return False
        current = self._store.latest()
        return current is not None and find(current[1], id) is not None

    def move(self, edit: Edit) -> tuple[int, Manifest]:
        """Hold the newest state; `edit` may change it in the same update."""
        id, before_ms = self._runtime.new_id(), self._runtime.monotonic_ms()
        idle = self._idle()

        def change(manifest_id: int, manifest: Manifest) -> Manifest | None:
            if find(manifest, id) is not None:
                return None
            draft = manifest.edit()
            edit(draft, manifest)
            self._tidy(draft, idle)
            draft.add_snapshot(id.bytes, manifest_id + 1, self._expiry())
            self._on_move(draft, id)
            return draft.freeze()

        current_id, manifest = self._store.update(change)
        found = find(manifest, id)
        if found is None:
            raise UnavailableError("our snapshot expired before it could be used; try again")
        self._forget(idle)
        self._held[found.manifest_id] = id
        self._renewed_ms = before_ms
        if found.manifest_id == current_id:
            return current_id, manifest
        try:
            return found.manifest_id, self._store.get(found.manifest_id)
        except FileNotFoundError as error:
            if self.keeps(found.manifest_id):
                raise CorruptError(
                    str(error), 0, "missing, but a live snapshot needs it"
                ) from error
            raise UnavailableError("our snapshot expired before its state was read") from error

    def hold(self, manifest_id: int, id: UUID) -> None:
        """Take over a snapshot that another process created."""
        self._held[manifest_id] = id

    def renew(self) -> None:
        """Extend the snapshots that are held; FileNotFoundError if they have expired."""
        if self.has_lapsed:
            raise FileNotFoundError("our snapshot expired")
        before_ms = self._runtime.monotonic_ms()
        expires_s, idle = self._expiry(), self._idle()
        ids = set(self._held.values()) - idle

        def change(manifest_id: int, manifest: Manifest) -> Manifest | None:
            found = [find(manifest, id) for id in ids]
            if not all(found):
                raise FileNotFoundError("our snapshot was dropped")
            kept_longer = all(entry and entry.expires_s >= expires_s for entry in found)
            if kept_longer and not any(find(manifest, id) for id in idle):
                return None
            draft = manifest.edit()
            self._tidy(draft, idle)
            return draft.freeze()

        self._store.update(change)
        self._forget(idle)
        self._renewed_ms = before_ms

    def release(self, edit: Edit = lambda draft, manifest: None) -> None:
        """Drop all snapshots that are held; `edit` may change more in the same update."""
        ids, self._held = set(self._held.values()), {}
        if not ids:
            return

        def change(manifest_id: int, manifest: Manifest) -> Manifest | None:
            draft = manifest.edit()
            if not any([draft.drop_snapshot(id.bytes) for id in ids]):
                return None
            edit(draft, manifest)
            return draft.freeze()

        self._store.update(change)

    def pin(self, manifest_id: int) -> None:
        """Record that a view reads this state."""
        with self._lock:
            self._pins[manifest_id] += 1

    def unpin(self, manifest_id: int) -> None:
        """Record that a view no longer reads it.  Takes no lock: it may be called at any time."""
        self._unpinned.append(manifest_id)

    def _idle(self) -> set[UUID]:
        """Return the snapshots that no view reads or will read, and those that may have expired."""
        if self.has_lapsed:
            return set(self._held.values())
        with self._lock:
            while self._unpinned:
                self._pins[self._unpinned.popleft()] -= 1
            self._pins += Counter()  # without the zeros
            past = list(self._held.items())[:-1]
            return {id for manifest_id, id in past if not self._pins[manifest_id]}

    def _tidy(self, draft: Draft[Manifest], idle: set[UUID]) -> None:
        for id in idle:
            draft.drop_snapshot(id.bytes)
        set_expiry(draft, set(self._held.values()) - idle, self._expiry())

    def _forget(self, idle: set[UUID]) -> None:
        self._held = {held: id for held, id in self._held.items() if id not in idle}

    def _expiry(self) -> int:
        return expiry(self._runtime.now_ms(), self._ttl_ms)
