"""How a process keeps what it reads from being deleted: a snapshot that it renews.

A lease moves on to the newest state with one manifest update, which drops the snapshot of the old
one; unless views still read that, which then keeps its own until they are done.
"""

from collections import Counter
from collections.abc import Callable
from uuid import UUID

from holdfast.formats.manifest import Draft, Manifest
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.snapshots import expiry, find, set_expiry
from holdfast.runtime import Runtime

Edit = Callable[[Draft[Manifest], Manifest], None]


class Lease:
    """The snapshots of one reader or writer.  Its owner sees to it that one thread moves it."""

    def __init__(self, store: ManifestStore, runtime: Runtime, ttl_ms: int) -> None:
        self._store, self._runtime, self._ttl_ms = store, runtime, ttl_ms
        self._held: dict[int, UUID] = {}  # by the manifest that is kept
        self._pins: Counter[int] = Counter()
        self._lock = runtime.lock()
        self._renewed_ms = runtime.monotonic_ms()

    @property
    def is_due(self) -> bool:
        """Whether it is time to renew."""
        return self._runtime.monotonic_ms() - self._renewed_ms >= self._ttl_ms / 3

    @property
    def has_lapsed(self) -> bool:
        """Whether what it kept may be gone, as far as our clock can tell."""
        return self._runtime.monotonic_ms() - self._renewed_ms >= self._ttl_ms

    def keeps(self, manifest_id: int) -> bool:
        """Whether nothing of this state can have been deleted."""
        return manifest_id in self._held and not self.has_lapsed

    def move(self, edit: Edit) -> tuple[int, Manifest]:
        """Hold the newest state, with what `edit` changes of it in the same update."""
        id, before_ms = self._runtime.new_id(), self._runtime.monotonic_ms()
        idle, busy = self._idle_and_busy()

        def change(manifest_id: int, manifest: Manifest) -> Manifest | None:
            if find(manifest, id) is not None:
                return None
            draft = manifest.edit()
            edit(draft, manifest)
            self._renew(draft, idle, busy)
            draft.add_snapshot(id.bytes, manifest_id + 1, self._expiry())
            return draft.freeze()

        current_id, manifest = self._store.update(change)
        found = find(manifest, id)
        if found is None:
            raise ValueError("the update ended without our snapshot")
        self._held = {held: by for held, by in self._held.items() if by in busy}
        self._held[found.manifest_id] = id
        self._renewed_ms = before_ms
        kept = manifest if found.manifest_id == current_id else self._store.get(found.manifest_id)
        return found.manifest_id, kept

    def hold(self, manifest_id: int, id: UUID) -> None:
        """Take over a snapshot that was made elsewhere."""
        self._held[manifest_id] = id

    def renew(self) -> None:
        """Keep what is held for another while; FileNotFoundError if it was dropped."""
        before_ms = self._runtime.monotonic_ms()
        expires_s = self._expiry()
        ids = set(self._held.values())

        def change(manifest_id: int, manifest: Manifest) -> Manifest | None:
            found = [find(manifest, id) for id in ids]
            if not all(found):
                raise FileNotFoundError("our snapshot expired and was dropped")
            if all(entry and entry.expires_s >= expires_s for entry in found):
                return None
            draft = manifest.edit()
            set_expiry(draft, ids, expires_s)
            return draft.freeze()

        self._store.update(change)
        self._renewed_ms = before_ms

    def release(self, edit: Edit = lambda draft, manifest: None) -> None:
        """Let go of everything, if anything is held, with what `edit` changes."""
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
        """A view reads this state."""
        with self._lock:
            self._pins[manifest_id] += 1

    def unpin(self, manifest_id: int) -> None:
        """It no longer does."""
        with self._lock:
            self._pins[manifest_id] -= 1
            if not self._pins[manifest_id]:
                del self._pins[manifest_id]

    def _idle_and_busy(self) -> tuple[set[UUID], set[UUID]]:
        with self._lock:
            busy = {by for held, by in self._held.items() if self._pins[held] > 0}
        return set(self._held.values()) - busy, busy

    def _renew(self, draft: Draft[Manifest], idle: set[UUID], busy: set[UUID]) -> None:
        for id in idle:
            draft.drop_snapshot(id.bytes)
        set_expiry(draft, busy, self._expiry())

    def _expiry(self) -> int:
        return expiry(self._runtime.now_ms(), self._ttl_ms / 1000)
