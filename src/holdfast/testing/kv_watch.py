"""A bucket that knows what a kv store must never do to it, and says so when it happens.

1. An object with an id never changes its bytes.  With two-phase writes an id has one content for
   ever, even when it was deleted in between.
2. Who is told that a create succeeded has its own bytes there, or had them there.
3. Manifests come one by one.  Epochs, boundaries and what is compacted never go back, and a new
   snapshot names the manifest it is in, or one that was active.
4. Nothing is deleted that the current manifest needs, or one that its snapshots name, or that a
   live job may yet commit; found as naively as can be.
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
    """See above.  `report(kind, what)` is called at once, by whoever does it."""

    def __init__(
        self, *, clock: Callable[[], int], report: Report, events: Counter[str], for_ever: bool
    ) -> None:
        """`for_ever`: with two-phase writes, no id ever gets a second content."""
        super().__init__(clock=clock)
        self._report, self._events, self._for_ever = report, events, for_ever
        self._contents: dict[str, set[bytes]] = {}
        self._manifests: dict[int, Manifest] = {}
        self.manifest_id = 0

    @property
    def manifest(self) -> Manifest | None:
        """The current one."""
        return self._manifests.get(self.manifest_id)

    def active(self) -> dict[int, Manifest]:
        """The current manifest, and all that its snapshots name, expired or not."""
        current = self._manifests[self.manifest_id]
        named = {entry.manifest_id for entry in current.snapshots}
        return {id: self._manifests[id] for id in sorted({self.manifest_id, *named})}

    def needs(self, name: str) -> bool:
        """Whether somebody may still read this object."""
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

    def told_created(self, name: str, data: Buffer) -> None:
        """Somebody believes to have created this."""
        if _digest(data) not in self._contents.get(name, ()):
            self._report("lost", f"a create of {name} was told to have succeeded, and has not")

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
        if (found and found[0] != data) or (self._for_ever and contents and digest not in contents):
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


class WatchedRetrying(RetryingBucket):
    """The bucket of one process, on a store that enforces create-if-absent."""

    truth: WatchedBucket
    events: Counter[str]

    def put_if_absent(
        self, name: str, data: Buffer, *, metadata: Mapping[str, str] | None = None
    ) -> None:
        try:
            super().put_if_absent(name, data, metadata=metadata)
        except FileExistsError:
            self.events[f"{name.partition('/')[0]} conflict"] += 1
            raise
        self.truth.told_created(name, data)


class WatchedTwoPhase(TwoPhaseBucket):
    """The bucket of one process, on a store that enforces nothing."""

    truth: WatchedBucket
    events: Counter[str]

    def put_if_absent(
        self, name: str, data: Buffer, *, metadata: Mapping[str, str] | None = None
    ) -> None:
        try:
            super().put_if_absent(name, data, metadata=metadata)
        except FileExistsError:
            self.events[f"{name.partition('/')[0]} conflict"] += 1
            raise
        self.truth.told_created(name, data)

    def _help(self, record: Record) -> None:
        if not record.committed:
            self.events["winner helped"] += 1
        super()._help(record)


def _digest(data: Buffer) -> bytes:
    return blake2b(data, digest_size=16).digest()
