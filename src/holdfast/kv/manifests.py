"""The manifests of a store: found, read, and changed by compare-and-swap.  The page: docs/kv.md

1. The manifest with the highest id is the current one.  Ids are contiguous, none is written twice.
2. A change is made on a manifest that was read, and written to the next id.  Whoever loses that
   slot begins again from what won.
3. A manifest that is old enough may be deleted, and creating an object says nothing about names
   that were deleted.  So who was slow looks again whether the change is there.
"""

from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from typing import TypeAlias

from holdfast.bucket.bucket import Bucket, ObjectInfo
from holdfast.errors import CorruptError, UnavailableError
from holdfast.formats.manifest import Manifest, decode_manifest, encode_manifest
from holdfast.kv.names import MANIFESTS, id_of, ids, manifest_name, required_id
from holdfast.runtime import Runtime

Change: TypeAlias = Callable[[int, Manifest], Manifest | None]

_name = attrgetter("name")
_TRIES_MAX = 1000
_BACK_OFF_MS = 2.0
_BACK_OFF_MAX_MS = 500.0


class ManifestStore:
    """The manifests in one bucket.  Any number of threads may use it."""

    def __init__(self, bucket: Bucket, runtime: Runtime) -> None:
        self._bucket, self._runtime = bucket, runtime
        self._known: tuple[ObjectInfo, Manifest] | None = None  # the last one that was current

    def latest(self) -> tuple[int, Manifest] | None:
        """The current manifest and its id; None if there is no store here."""
        for _ in range(_TRIES_MAX):
            info = self._latest_info()
            if info is None:
                return None
            known, manifest_id = self._known, required_id(info.name)
            if known is not None and known[0] == info:
                return manifest_id, known[1]
            try:
                manifest = self.get(manifest_id)
            except FileNotFoundError:  # it was the current one when we listed; look for the next
                continue
            self._known = info, manifest
            return manifest_id, manifest
        raise UnavailableError("manifests vanish faster than they can be read")

    def get(self, manifest_id: int) -> Manifest:
        """One manifest; FileNotFoundError if it was never written, or deleted since."""
        name = manifest_name(manifest_id)
        return decode_manifest(self._bucket.get(name), where=name)

    def ids(self) -> list[int]:
        """The ids of all manifests that are still there, in order."""
        return list(ids(self._bucket.list(MANIFESTS)))

    def create(self, manifest: Manifest) -> tuple[int, Manifest]:
        """Make `manifest` the first one, unless a store is there; return the current one."""
        with suppress(FileExistsError):
            self._bucket.put_if_absent(manifest_name(1), self._signed(manifest))
        current = self.latest()
        if current is None:
            raise CorruptError(manifest_name(1), 0, "written, but no listing shows it")
        return current

    def update(self, change: Change) -> tuple[int, Manifest]:
        """Read, change, write; again if somebody else was faster.  Return what has the change.

        `change(id, manifest)` answers the state that shall follow manifest `id`, with the id
        `id + 1`, or None if there is nothing to do.  It is called until its answer was written
        or is None, so it must know its own work when it sees it.
        """
        for attempt in range(_TRIES_MAX):
            began_ms = self._runtime.monotonic_ms()
            current = self.latest()
            if current is None:
                raise FileNotFoundError("no store here: it has no manifest")
            manifest_id, manifest = current
            changed = change(manifest_id, manifest)
            if changed is None:
                return current
            try:
                self._bucket.put_if_absent(manifest_name(manifest_id + 1), self._signed(changed))
            except FileExistsError:
                self._back_off(attempt)
                continue
            if self._runtime.monotonic_ms() - began_ms < manifest.gc_min_age_ms / 2:
                return manifest_id + 1, changed
            # Slow: the slot may have been won by others, deleted, and won again by us.  The next
            # round finds our change in the current manifest, or makes it again.
        raise UnavailableError(f"the manifest changed {_TRIES_MAX} times while we tried to")

    def _latest_info(self) -> ObjectInfo | None:
        known = self._known
        after = manifest_name(required_id(known[0].name) - 1) if known else ""
        found = self._bucket.list(MANIFESTS, after=after)
        if not found and known:
            found = self._bucket.list(MANIFESTS)
        return max((info for info in found if id_of(info.name)), key=_name, default=None)

    def _signed(self, manifest: Manifest) -> bytes:
        """Its bytes, with an id of their own: no two writes are the same, even of one state."""
        return encode_manifest(manifest, self._runtime.new_id().bytes)

    def _back_off(self, attempt: int) -> None:
        most = min(_BACK_OFF_MS * 2**attempt, _BACK_OFF_MAX_MS)
        self._runtime.sleep_ms(self._runtime.jitter(most))
