"""Snapshots: states of a store that stay readable, until a time or until they are dropped.

A snapshot is an entry in the current manifest that names a manifest.  A manifest is active if it is
the current one or if a snapshot that has not expired names it, and what an active manifest needs
is never deleted: its SSTs in `levels`, and the WAL from `wal_id_last_compacted` on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

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
        """All that are in the current manifest, expired ones too."""
        current = self._store.latest()
        return listed(current[1]) if current else []

    def create(
        self,
        ttl_s: float | None,
        *,
        manifest_id: int | None = None,
        edit: Callable[[Draft[Manifest], Manifest], None] = lambda draft, manifest: None,
    ) -> Snapshot:
        """Keep the current state, or that of an active manifest; for ever if `ttl_s` is None."""
        id, expires_s = self._runtime.new_id(), expiry(self._runtime.now_ms(), ttl_s)

        def change(current_id: int, manifest: Manifest) -> Manifest | None:
            if find(manifest, id) is not None:
                return None
            draft = manifest.edit()
            if manifest_id is None:
                edit(draft, manifest)
            elif manifest_id not in active_ids(current_id, manifest, self._runtime.now_ms()):
                raise ValueError(f"manifest {manifest_id} is not active, so it cannot be kept")
            draft.add_snapshot(id.bytes, manifest_id or current_id + 1, expires_s)
            return draft.freeze()

        found = find(self._store.update(change)[1], id)
        if found is None:
            raise ValueError(f"snapshot {id} expired before it could be used")
        return found

    def extend(self, id: UUID, ttl_s: float | None) -> Snapshot:
        """Let it expire so long from now; KeyError if it is not there any more."""
        expires_s = expiry(self._runtime.now_ms(), ttl_s)

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
        """Let go of these; what is not there is fine."""

        def change(current_id: int, manifest: Manifest) -> Manifest | None:
            draft = manifest.edit()
            dropped = [draft.drop_snapshot(id.bytes) for id in ids]
            return draft.freeze() if any(dropped) else None

        self._store.update(change)


def listed(manifest: Manifest) -> list[Snapshot]:
    """The snapshots in a manifest."""
    return [
        Snapshot(UUID(bytes=entry.id), entry.manifest_id, entry.snapshot_expire_time_s)
        for entry in manifest.snapshots
    ]


def find(manifest: Manifest, id: UUID) -> Snapshot | None:
    return next((found for found in listed(manifest) if found.id == id), None)


def active_ids(
    current_id: int, manifest: Manifest, now_ms: int, *, clock_skew_ms: int = 0
) -> set[int]:
    """The ids of all active manifests; other clocks may be behind ours by `clock_skew_ms`."""
    since_s = (now_ms - clock_skew_ms) / 1000
    kept = (found for found in listed(manifest) if not 0 < found.expires_s < since_s)
    return {current_id, *(found.manifest_id for found in kept)}


def expiry(now_ms: int, ttl_s: float | None) -> int:
    """The Unix second at which a snapshot expires that is made now."""
    if ttl_s is None:
        return 0
    if ttl_s <= 0:
        raise ValueError(f"a snapshot for {ttl_s} seconds; None is for ever")
    return min(int(now_ms / 1000 + ttl_s) + 1, _EXPIRY_MAX)


def set_expiry(draft: Draft[Manifest], ids: set[UUID], expires_s: int) -> None:
    """Let these expire then, those that are there."""
    for entry in draft.message.snapshots:
        if UUID(bytes=entry.id) in ids:
            entry.snapshot_expire_time_s = expires_s
