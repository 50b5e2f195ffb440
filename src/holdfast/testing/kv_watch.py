"""A bucket that reports what a kv store must never do to it.

1. An object with an id never changes its bytes.  With two-phase writes an id never gets a second
   content, even after it was deleted.
2. After a successful create, the object has, or had, the bytes of its creator.
3. Manifest ids are contiguous.  Epochs, boundaries and the last compacted id never decrease, and a
   new snapshot names its own manifest, or an active one.
4. Nothing is deleted that the current manifest needs, or one that its snapshots name, or that a
   live job may yet commit; found by the simplest possible code.
5. No process relies on a snapshot that has expired by its own clock.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import blake2b

from holdfast.bucket import MemoryBucket, RetryingBucket
from holdfast.bucket.bucket import Buffer
from holdfast.formats.manifest import Manifest, decode_manifest
from holdfast.kv.cas.records import Record
from holdfast.kv.cas.two_phase import TwoPhaseBucket
from holdfast.kv.names import MANIFESTS, id_of
from holdfast.kv.snapshots import Lease

Report = Callable[[str, str], None]
_RISING = (
    "writer_epoch",
    "compactor_epoch",
    "wal_id_last_compacted",
    "wal_id_last_seen",
    "wal_gc_boundary",
    "manifest_gc_boundary",
    "next_sst_base",
    "last_seq",
)


class WatchedBucket(MemoryBucket):
    """See above.  `report(kind, what)` is called at once, in the thread that breaks a rule."""

    def __init__(
        self, *, clock: Callable[[], int], report: Report, events: Counter[str], unique_ids: bool
    ) -> None:
        """With `unique_ids`, as in two-phase writes, no id ever gets a second content."""
        super().__init__(clock=clock)
        self._report, self._events, self._unique_ids = report, events, unique_ids
        self._contents: dict[str, set[bytes]] = {}
        self._manifests: dict[int, Manifest] = {}
        self.manifest_id = 0

    @property
    def manifest(self) -> Manifest | None:
        """Return the current manifest."""
        return self._manifests.get(self.manifest_id)

    def active(self) -> dict[int, Manifest]:
        """Return the current manifest, and all that its snapshots name, expired or not."""
        current = self._manifests[self.manifest_id]
        named = {entry.manifest_id for entry in current.snapshots}
        return {id: self._manifests[id] for id in sorted({self.manifest_id, *named})}

    def needs(self, name: str) -> bool:
        """Return whether a process may still read this object."""
        number, current = id_of(name), self.manifest
        if number is None or current is None:
            return False
        active = self.active()
        match name.partition("/")[0]:
            case "manifest":
                return number in active
            case "wal":
                return number >= min(one.wal_id_last_compacted for one in active.values())
        bases = [job.base for job in current.jobs if not job.done] + [current.next_sst_base]
        return number >= min(bases) or any(number in one.sst_ids for one in active.values())

    def check_lease(self, lease: Lease, now_ms: int) -> None:
        """Compare what a lease says with its snapshots; `now_ms` is the time of its process."""
        entries = self.manifest.snapshots if self.manifest else ()
        expiry_ms = {entry.id: 1000 * entry.snapshot_expire_time_s for entry in entries}
        for manifest_id, id in lease._held.items():
            if lease.keeps(manifest_id):
                self._events["lease held"] += 1
                if 0 < expiry_ms.get(id.bytes, 0) <= now_ms:
                    self._report("broken", f"a lease counts on snapshot {id}, which has expired")

    def told_created(self, name: str, data: Buffer) -> None:
        """Record that a create was reported as a success."""
        if _digest(data) not in self._contents.get(name, ()):
            self._report(
                "lost", f"a create of {name} was reported as a success, but did not happen"
            )

    def delete(self, *names: str) -> None:
        for name in names:
            if name in self._objects and self.needs(name):
                self._report("lost", f"{name} was deleted, and is needed")
        super().delete(*names)

    def _put(self, name: str, data: bytes) -> None:
        number = id_of(name)
        if number is not None:
            self._check(name, number, data)
        super()._put(name, data)

    def _check(self, name: str, number: int, data: bytes) -> None:
        found, contents = self._objects.get(name), self._contents.setdefault(name, set())
        digest = _digest(data)
        if (found and found[0] != data) or (
            self._unique_ids and contents and digest not in contents
        ):
            self._report("lost", f"{name} was created before, with another content")
        if contents and not found:
            self._events[f"{name.partition('/')[0]} slot taken again"] += 1
        if name.startswith(MANIFESTS) and digest not in contents:
            self._check_manifest(number, decode_manifest(data, where=name))
        contents.add(digest)

    def _check_manifest(self, number: int, manifest: Manifest) -> None:
        before = self.manifest
        if before is not None and number <= self.manifest_id:
            if number >= before.manifest_gc_boundary:
                self._report("lost", f"manifest {number} was written twice")
            return
        if number != self.manifest_id + 1:
            self._report("lost", f"manifest {number} follows {self.manifest_id}")
        if before is not None:
            self._compare(number, before, manifest)
        self._manifests[number], self.manifest_id = manifest, number

    def _compare(self, number: int, before: Manifest, manifest: Manifest) -> None:
        for name in _RISING:
            if getattr(manifest, name) < getattr(before, name):
                self._report("lost", f"{name} went back in manifest {number}")
        known = {entry.id for entry in before.snapshots}
        allowed = {number, *self.active()}
        for entry in manifest.snapshots:
            if entry.id not in known and entry.manifest_id not in allowed:
                self._report("lost", f"a snapshot of manifest {entry.manifest_id}, not active")


class _Watched:
    """The bucket of one process: its creates are compared with the truth."""

    truth: WatchedBucket
    events: Counter[str]

    def put_if_absent(
        self, name: str, data: Buffer, *, metadata: Mapping[str, str] | None = None
    ) -> None:
        try:
            super().put_if_absent(name, data, metadata=metadata)  # type: ignore[misc]
        except FileExistsError:
            self.events[f"{name.partition('/')[0]} conflict"] += 1
            raise
        self.truth.told_created(name, data)


class WatchedRetrying(_Watched, RetryingBucket):
    """On a store that enforces create-if-absent."""


class WatchedTwoPhase(_Watched, TwoPhaseBucket):
    """On a store that enforces nothing."""

    def _help(self, record: Record) -> None:
        if not record.committed:
            self.events["winner helped"] += 1
        super()._help(record)


def _digest(data: Buffer) -> bytes:
    return blake2b(data, digest_size=16).digest()
