"""The manifests of a store: found, read, and changed by compare-and-swap.  The page: docs/kv.md

1. The manifest with the highest id is the current one.  Ids are contiguous, none is written twice.
2. A change is made on a manifest that was read, and written to the next id.  A process that loses
   that id starts again from the manifest that has it.
3. A manifest that is old enough may be deleted, and creating an object says nothing about names
   that were deleted.  So after each write the process lists the manifests again.  Only the newest
   one is a change: clocks may have stopped while the process was frozen, and decide nothing.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import TypeAlias

from holdfast.bucket.bucket import Bucket, ObjectInfo
from holdfast.errors import CorruptError, NotFoundError, UnavailableError
from holdfast.formats.manifest import Manifest, decode_manifest, encode_manifest
from holdfast.kv.names import MANIFESTS, id_of, ids, manifest_name, required_id
from holdfast.runtime import Runtime

Change: TypeAlias = Callable[[int, Manifest], Manifest | None]

GC_MIN_AGE_MS = 300_000
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
        """Return the current manifest and its id; None without a store."""
        for _ in range(_TRIES_MAX):
            info = self._latest_info()
            if info is None:
                return None
            known, manifest_id = self._known, required_id(info.name)
            if known is not None and known[0] == info:
                return manifest_id, known[1]
            try:
                manifest = self.get(manifest_id)
            except (
                FileNotFoundError
            ):  # it was current when we listed the manifests; look for the next
                continue
            self._known = info, manifest
            return manifest_id, manifest
        raise UnavailableError("manifests are deleted faster than they can be read")

    def get(self, manifest_id: int) -> Manifest:
        """Return a manifest; FileNotFoundError if it was never written, or deleted since."""
        name = manifest_name(manifest_id)
        return decode_manifest(self._bucket.get(name), where=name)

    def ids(self) -> list[int]:
        """Return the ids of all existing manifests, in order."""
        return list(ids(self._bucket.list(MANIFESTS)))

    def current(self) -> tuple[int, Manifest]:
        """Return the current manifest and its id; NotFoundError without a store."""
        found = self.latest()
        if found is None:
            raise NotFoundError(
                f"no kv store in {self._bucket}: it has no manifest; create one with create_kv"
            )
        return found

    @property
    def stamped_ms(self) -> int:
        """Return when the manifest that was current last was written, by the store's clock."""
        return 0 if self._known is None else self._known[0].modified_ms

    def create(self, manifest: Manifest) -> bool:
        """Create the first manifest and return True; return False if there is a store already."""
        if self.latest() is not None:
            return False
        try:
            self._bucket.put_if_absent(manifest_name(1), self._signed(manifest)[0])
        except FileExistsError:
            return False
        current = self.latest()
        if current is None:
            raise CorruptError(
                manifest_name(1), 0, "the manifest was written, but listings do not show it"
            )
        # If the first manifest may have been collected, ours is not the first one.
        return current[1].manifest_gc_boundary <= 1

    def update(self, change: Change) -> tuple[int, Manifest]:
        """Read, change and write; retry after a conflict.  Return the manifest with the change.

        `change(id, manifest)` returns the manifest that follows manifest `id`, with the id `id +
        1`, or None if there is nothing to do.  It is called until its result is written or None, so
        it must recognise its own change.
        """
        for attempt in range(_TRIES_MAX):
            current = manifest_id, manifest = self.current()
            changed = change(manifest_id, manifest)
            if changed is None:
                return current
            name = manifest_name(manifest_id + 1)
            data, written = self._signed(changed)
            try:
                self._bucket.put_if_absent(name, data)
            except FileExistsError:
                self._back_off(attempt)
                continue
            if self._is_current(name, written):
                return manifest_id + 1, written
            # Another manifest is newer.  It was made of ours; or our id had been used by others
            # and deleted.  The next round finds our change in it, or makes it again.
        raise UnavailableError(
            f"the manifest changed {_TRIES_MAX} times during this update; try again"
        )

    def _is_current(self, name: str, manifest: Manifest) -> bool:
        """Return whether the manifest that was just created is the newest one; if so, know it."""
        info = self._latest_info()
        if info is None or info.name != name:
            return False
        self._known = info, manifest
        return True

    def _latest_info(self) -> ObjectInfo | None:
        known = self._known
        after = manifest_name(required_id(known[0].name) - 1) if known else ""
        found = self._bucket.list(MANIFESTS, after=after)
        if not found and known:
            found = self._bucket.list(MANIFESTS)
        return max((info for info in found if id_of(info.name)), key=_name, default=None)

    def _signed(self, manifest: Manifest) -> tuple[bytes, Manifest]:
        """Return its bytes with a unique id, and the manifest with that id.

        No two writes are equal, even of one state.
        """
        unique_id = self._runtime.new_id().bytes
        return encode_manifest(manifest, unique_id), manifest.signed(unique_id)

    def _back_off(self, attempt: int) -> None:
        most = min(_BACK_OFF_MS * 2**attempt, _BACK_OFF_MAX_MS)
        self._runtime.sleep_ms(self._runtime.jitter(most))


def create_store(bucket: Bucket, runtime: Runtime, gc_min_age_ms: int = GC_MIN_AGE_MS) -> bool:
    """Create an empty store and return True; return False if the bucket has one."""
    first = Manifest.create(created_ms=runtime.now_ms(), gc_min_age_ms=gc_min_age_ms)
    return ManifestStore(bucket, runtime).create(first)
