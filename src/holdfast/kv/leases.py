"""How a process keeps what it reads from being deleted: a snapshot that it renews.

A lease moves on to the newest state with one manifest update.  The snapshot of the state before
stays for one more update, because views may begin to read it until the new one is shown; and for
as long as views read it.
"""

from collections import Counter, deque
from collections.abc import Callable
from uuid import UUID

from holdfast.errors import CorruptError, UnavailableError
from holdfast.formats.manifest import Draft, Manifest
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.snapshots import expiry, find, set_expiry
from holdfast.runtime import Runtime

Edit = Callable[[Draft[Manifest], Manifest], None]


class Lease:
    """The snapshots of one reader or writer.  Its owner sees to it that one thread moves it."""

    def __init__(self, store: ManifestStore, runtime: Runtime, ttl_ms: int) -> None:
        self._store, self._runtime, self._ttl_ms = store, runtime, ttl_ms
        self._held: dict[int, UUID] = {}  # by the manifest that is kept; the last one is shown
        self._pins: Counter[int] = Counter()
        self._unpinned: deque[int] = deque()  # views end in any thread, at any moment
        self._lock = runtime.lock()
        self._renewed_ms = runtime.monotonic_ms()

    @property
    def is_due(self) -> bool:
        """Whether it is time to renew, or something can be given back."""
        waited_ms = self._runtime.monotonic_ms() - self._renewed_ms
        return bool(self._held) and (waited_ms >= self._ttl_ms / 3 or bool(self._idle()))

    @property
    def has_lapsed(self) -> bool:
        """Whether what it kept may be gone, as far as our clock can tell."""
        return self._runtime.monotonic_ms() - self._renewed_ms >= self._ttl_ms

    def keeps(self, manifest_id: int) -> bool:
        """Whether nothing of this state can have been deleted."""
        return manifest_id in self._held and not self.has_lapsed

    def proves_loss(self, manifest_id: int) -> bool:
        """Whether what is missing of this state is a loss: our snapshot is there, undropped."""
        id = self._held.get(manifest_id)
        if id is None or self.has_lapsed:
            return False
        current = self._store.latest()
        return current is not None and find(current[1], id) is not None

    def move(self, edit: Edit) -> tuple[int, Manifest]:
        """Hold the newest state, with what `edit` changes of it in the same update."""
        id, before_ms = self._runtime.new_id(), self._runtime.monotonic_ms()
        idle = self._idle()

        def change(manifest_id: int, manifest: Manifest) -> Manifest | None:
            if find(manifest, id) is not None:
                return None
            draft = manifest.edit()
            edit(draft, manifest)
            self._tidy(draft, idle)
            draft.add_snapshot(id.bytes, manifest_id + 1, self._expiry())
            return draft.freeze()

        current_id, manifest = self._store.update(change)
        found = find(manifest, id)
        if found is None:
            raise ValueError("the update ended without our snapshot")
        self._forget(idle)
        self._held[found.manifest_id] = id
        self._renewed_ms = before_ms
        if found.manifest_id == current_id:
            return current_id, manifest
        try:
            return found.manifest_id, self._store.get(found.manifest_id)
        except FileNotFoundError as error:
            if self.proves_loss(found.manifest_id):
                raise CorruptError(str(error), 0, "a snapshot keeps it, but it is gone") from error
            raise UnavailableError("our snapshot expired before its state was read") from error

    def hold(self, manifest_id: int, id: UUID) -> None:
        """Take over a snapshot that was made elsewhere."""
        self._held[manifest_id] = id

    def renew(self) -> None:
        """Keep what is held for another while; FileNotFoundError if it is too late."""
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
        """It no longer does.  Takes no lock, as it may be called in the midst of anything."""
        self._unpinned.append(manifest_id)

    def _idle(self) -> set[UUID]:
        """The snapshots that no view reads, nor any will; and those that may have failed us."""
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
        return expiry(self._runtime.now_ms(), self._ttl_ms / 1000)
