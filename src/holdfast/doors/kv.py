"""Create, open and read key-value stores by address.

An address is a path, a URL (`file://`, `memory://`, `s3://`, `gs://`, `az://`) or a Bucket.
Options are keyword-only; an unknown one raises TypeError.
"""

import os
from typing import TYPE_CHECKING, TypeAlias, Unpack

from holdfast.bucket.bucket import Bucket
from holdfast.bucket.directory import DirectoryBucket
from holdfast.bucket.open import connect, has_mark, refuse_two_phase, shown
from holdfast.disk import OsDisk
from holdfast.errors import ExistsError, NotFoundError, UnsupportedError
from holdfast.kv.admin import KvAdmin
from holdfast.kv.cas import open_bucket, open_two_phase
from holdfast.kv.manifests import GC_MIN_AGE_MS, ManifestStore, create_store
from holdfast.kv.names import LEVELS, MANIFESTS, WAL
from holdfast.kv.options import KvOptions, Options
from holdfast.kv.reader import KvReader
from holdfast.kv.tables import CACHE_SIZE
from holdfast.kv.writer import Kv
from holdfast.linux import check_system
from holdfast.runtime import Runtime

if TYPE_CHECKING:
    from holdfast.kv.maintenance import MaintenanceOptions

Address: TypeAlias = "str | os.PathLike[str] | Bucket"

_OURS = {MANIFESTS, WAL, LEVELS, "two-phase", "probe"}  # in the directory of a store


def create_kv(
    where: Address,
    *,
    cas: str | None = None,
    maintain: "MaintenanceOptions | bool" = True,
    runtime: Runtime | None = None,
    **options: Unpack[KvOptions],
) -> Kv:
    """Create a store and open it for writing.

    ExistsError if there is one, or if a directory holds something else.

    The options are those of `open_kv`.
    """
    settings, runtime = _settings("create_kv", options), runtime or Runtime()
    _refuse_foreign(where)
    bucket = _bucket_to_write(where, cas)
    if not create_store(bucket, runtime, settings.gc_min_age_ms):
        raise ExistsError(f"{bucket} holds a kv store already; open it with open_kv")
    return Kv(bucket, settings, runtime=runtime, maintain=maintain)


def open_kv(
    where: Address,
    *,
    create: bool = False,
    take_over: bool = True,
    cas: str | None = None,
    maintain: "MaintenanceOptions | bool" = True,
    runtime: Runtime | None = None,
    **options: Unpack[KvOptions],
) -> Kv:
    """Open a store for writing and fence its previous writer.

    NotFoundError if there is none; with `create`, create it.  With `take_over=False`, LockedError
    if another writer has it open: it is free when that one closes it, when its process on this
    machine is dead, and else when its snapshot has expired.  With `maintain`, this process also
    compacts the store and collects garbage in a thread of its own, every `watch_ms`.  `cas` is
    where the records of two-phase writes are, for a bucket that ignores create-if-absent.
    """
    settings, runtime = _settings("open_kv", options), runtime or Runtime()
    if create:
        _refuse_foreign(where)
    bucket = _bucket_to_write(where, cas)
    if create:
        create_store(bucket, runtime, settings.gc_min_age_ms)
    return Kv(bucket, settings, runtime=runtime, maintain=maintain, take_over=take_over)


def read_kv(
    where: Address,
    *,
    at: int | None = None,
    lazy: bool = False,
    poll_ms: float | None = None,
    snapshot_ttl_ms: int = 600_000,
    memory_bytes_max: int = 64 * 2**20,
    cache_bytes_max: int = CACHE_SIZE,
    runtime: Runtime | None = None,
) -> KvReader:
    """Open a store for reading, beside a writer or without one.  NotFoundError if there is none.

    `at` is the id of an active manifest: read that state, and not the newest.  A `lazy` reader
    writes nothing to the bucket; where nothing can be written, every reader is lazy.  With
    `poll_ms`, poll for new writes at that interval.
    """
    return KvReader(
        _bucket_to_read(where),
        at=at,
        lazy=lazy,
        poll_ms=poll_ms,
        snapshot_ttl_ms=snapshot_ttl_ms,
        memory_bytes_max=memory_bytes_max,
        cache_bytes_max=cache_bytes_max,
        runtime=runtime,
    )


def manage_kv(
    where: Address,
    *,
    create: bool = False,
    read_only: bool = False,
    cas: str | None = None,
    gc_min_age_ms: int = GC_MIN_AGE_MS,
    runtime: Runtime | None = None,
) -> KvAdmin:
    """Maintain a store beside its writer: load, compact, collect garbage, manage snapshots.

    NotFoundError if there is none.  With `create`, create it; ExistsError if a directory holds
    foreign files.  With `read_only` nothing is written, not even to test the bucket.
    """
    runtime = runtime or Runtime()
    if read_only:
        return KvAdmin(_bucket_to_read(where), read_only=True, runtime=runtime)
    if create:
        _refuse_foreign(where)
    elif isinstance(where, str | os.PathLike):
        _require_store(_bucket_to_read(where), cas, runtime)
    bucket = _bucket_to_write(where, cas)
    is_new = create and create_store(bucket, runtime, gc_min_age_ms)
    return KvAdmin(bucket, is_new=is_new, runtime=runtime)


def repair_kv(
    where: "str | os.PathLike[str]", *, cas: str | None = None, apply: bool = False
) -> list[str]:
    """Return the objects whose two-phase writes a crash left unfinished; `apply` finishes them.

    Without `cas`, UnsupportedError if the bucket uses two-phase writes, else nothing to repair.
    With it, NotFoundError if the bucket does not use them.
    """
    check_system()
    url = os.fspath(where)
    bucket = connect(url)
    if cas is None or cas == "native":
        refuse_two_phase(bucket, url)
        return []
    if not has_mark(bucket):  # perhaps a typo; opening it with records would claim it
        raise NotFoundError(f"no two-phase writes in {shown(url)}")
    two_phase = open_two_phase(url, cas)
    names = [record.destination for record in two_phase.unfinished()]
    if apply:
        two_phase.recover()
    return names


def _require_store(bucket: Bucket, cas: str | None, runtime: Runtime) -> None:
    """Raise NotFoundError before anything is written to a wrong address."""
    # Of a two-phase store even the first manifest may be unfinished; opening finishes it.
    if cas is None or not has_mark(bucket):
        ManifestStore(bucket, runtime).current()


def _refuse_foreign(where: Address) -> None:
    """Raise ExistsError if a store would be created in a directory that holds something else."""
    bucket = _bucket_to_read(where)
    if not isinstance(bucket, DirectoryBucket):
        return
    disk = OsDisk(bucket.path)
    try:
        names = {*disk.list(), *disk.directories()}
    except FileNotFoundError:
        return
    foreign = sorted(names - _OURS)
    if "compacted" in foreign:
        raise UnsupportedError(f"{disk} holds a SlateDB database; name another directory")
    if foreign and MANIFESTS not in names:
        raise ExistsError(f"{disk} holds the foreign file {foreign[0]}; name another directory")


def _settings(function: str, options: KvOptions) -> Options:
    known = KvOptions.__annotations__
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise TypeError(f"{function}() has no option {unknown[0]!r}; it has {', '.join(known)}")
    return Options(**options)


def _bucket_to_read(where: Address) -> Bucket:
    check_system()
    return connect(os.fspath(where)) if isinstance(where, str | os.PathLike) else where


def _bucket_to_write(where: Address, cas: str | None) -> Bucket:
    check_system()
    if isinstance(where, str | os.PathLike):
        return open_bucket(os.fspath(where), cas)
    if cas is not None:
        raise TypeError(
            "pass `cas` only with a path or URL; a Bucket decides itself how it creates objects"
        )
    return where
