"""A manifest as the stores see it: values to read, and a draft to change.

    Manifest.create(created_ms=..., gc_min_age_ms=...)      the first one
    manifest.writer_epoch, .compactor_epoch, ...            every scalar field by its name
    manifest.l0                                             SstInfos, newest first
    manifest.runs                                           Runs, newest first
    manifest.snapshots, .jobs, .transactions                protobuf messages: do not change them
    manifest.sst_ids                                        of L0 and of all runs, a uint64 array
    manifest.edit() -> Draft                                a private copy, until Draft.freeze()

Objects for single SSTs are created when needed, so a manifest of 100,000 SSTs takes little memory.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter, lt

from holdfast.errors import CorruptError
from holdfast.formats.manifest.checks import BASE_STEP, Ids, flaw, sst_ids
from holdfast.formats.manifest.draft import Draft
from holdfast.formats.manifest.manifest_pb2 import (
    Job,
    Snapshot,
    SstInfo,
    Transaction,
    Writer,
)
from holdfast.formats.manifest.manifest_pb2 import Manifest as Message

FORMAT_VERSION = 1


class Run:
    """A sorted run: SSTs in key order, no key in two of them."""

    __slots__ = ("_first_keys", "_ssts", "_start", "_stop", "id")

    def __init__(self, id: int, ssts: Sequence[SstInfo], start: int, stop: int) -> None:
        self.id, self._ssts, self._start, self._stop = id, ssts, start, stop
        self._first_keys: list[bytes] | None = None

    def __len__(self) -> int:
        return self._stop - self._start

    def __getitem__(self, place: int) -> SstInfo:
        return self._ssts[range(self._start, self._stop)[place]]

    def __iter__(self) -> Iterator[SstInfo]:
        return map(self._ssts.__getitem__, range(self._start, self._stop))

    @property
    def first_keys(self) -> list[bytes]:
        """The first key of every SST; made once, when first asked for."""
        if self._first_keys is None:
            keys = list(map(attrgetter("first_key"), self))
            if not all(map(lt, keys, keys[1:])):
                raise CorruptError("manifest", 0, f"first keys of run {self.id} do not rise")
            self._first_keys = keys
        return self._first_keys

    def find(self, key: bytes) -> int:
        """Return the place of the only SST of this run that may hold the key, or -1."""
        return bisect_right(self.first_keys, key) - 1

    def range(self, start: bytes | None, stop: bytes | None) -> list[SstInfo]:
        """Return the SSTs that may hold keys with start <= key < stop; None: unbounded."""
        first = 0 if start is None else max(0, bisect_right(self.first_keys, start) - 1)
        last = len(self) if stop is None else bisect_left(self.first_keys, stop)
        return [self[place] for place in range(first, last)]


class Manifest:
    """One state of the store.  Never changes."""

    __slots__ = ("_ids", "_message", "_runs", "unique_id")

    def __init__(self, message: Message, ids: Ids, unique_id: bytes = b"") -> None:
        """Take over a message that was checked; see decode_manifest and Draft.freeze."""
        self._message, self._ids = message, ids
        self.unique_id = unique_id  # of the object it was read from; no part of the state
        self._runs: tuple[Run, ...] | None = None

    @classmethod
    def create(
        cls, *, created_ms: int, gc_min_age_ms: int, max_parallel_writes: int = 1
    ) -> "Manifest":
        """Return the manifest of a new, empty store."""
        message = Message(
            manifest_format_version=FORMAT_VERSION,
            created_ms=created_ms,
            gc_min_age_ms=gc_min_age_ms,
            max_parallel_writes=max_parallel_writes,
            next_sst_base=BASE_STEP,
        )
        if why := flaw(message, ids := sst_ids(message)):
            raise ValueError(f"invalid manifest: {why}")
        return cls(message, ids)

    def edit(self) -> "Draft[Manifest]":
        """Return a copy to change."""
        message = Message()
        message.CopyFrom(self._message)
        return Draft(message, self._ids, Manifest)

    def signed(self, unique_id: bytes) -> "Manifest":
        """Return this manifest as it is read from an object with this unique id."""
        return Manifest(self._message, self._ids, unique_id)

    def serialized(self) -> bytes:
        """Return the protobuf message, without the unique id of any object."""
        return self._message.SerializeToString()

    def __eq__(self, other: object) -> bool:
        """Return whether the states are equal, in different objects too."""
        return isinstance(other, Manifest) and self._message == other._message

    @property
    def sst_ids(self) -> Ids:
        """Return the ids of all SSTs: L0 first, then run by run."""
        return self._ids

    @property
    def l0(self) -> Sequence[SstInfo]:
        """Return the SSTs of L0, newest first; each may hold any key."""
        return self._message.leveled_ssts[: self.l0_count]

    @property
    def l0_count(self) -> int:
        """Return the number of SSTs in L0."""
        return len(self._ids) - sum(run.sst_count for run in self._message.sorted_runs)

    @property
    def runs(self) -> tuple[Run, ...]:
        """Return the sorted runs, newest first."""
        if self._runs is None:
            runs, start = [], self.l0_count
            for run in self._message.sorted_runs:
                stop = start + run.sst_count
                runs.append(Run(run.id, self._message.leveled_ssts, start, stop))
                start = stop
            self._runs = tuple(runs)
        return self._runs

    @property
    def snapshots(self) -> Sequence[Snapshot]:
        """Return the snapshots, expired ones too."""
        return self._message.snapshots

    @property
    def jobs(self) -> Sequence[Job]:
        """Return the jobs that write SSTs which no manifest names yet."""
        return self._message.jobs

    @property
    def transactions(self) -> Sequence[Transaction]:
        """Return the last committed batch of every stream."""
        return self._message.transactions

    @property
    def writer(self) -> Writer | None:
        """Return who opened the store last; None if that is not recorded."""
        if self._message.writer.epoch != self.writer_epoch or not self.writer_epoch:
            return None
        return self._message.writer

    @property
    def writer_epoch(self) -> int:
        return self._message.writer_epoch

    @property
    def compactor_epoch(self) -> int:
        return self._message.compactor_epoch

    @property
    def wal_id_last_compacted(self) -> int:
        return self._message.wal_id_last_compacted

    @property
    def wal_id_last_seen(self) -> int:
        return self._message.wal_id_last_seen

    @property
    def max_parallel_writes(self) -> int:
        return self._message.max_parallel_writes

    @property
    def next_sst_base(self) -> int:
        return self._message.next_sst_base

    @property
    def wal_gc_boundary(self) -> int:
        return self._message.wal_gc_boundary

    @property
    def manifest_gc_boundary(self) -> int:
        return self._message.manifest_gc_boundary

    @property
    def gc_min_age_ms(self) -> int:
        return self._message.gc_min_age_ms

    @property
    def last_seq(self) -> int:
        return self._message.last_seq

    @property
    def created_ms(self) -> int:
        return self._message.created_ms
