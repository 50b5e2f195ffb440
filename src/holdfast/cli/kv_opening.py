"""How commands open kv stores: as a guest to read, as the writer to write.

A guest writes nothing to the bucket.  A writer takes the store over, and whoever wrote before it
is fenced.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from holdfast.cli.errors import AbsentError

if TYPE_CHECKING:
    from holdfast.bucket import Bucket
    from holdfast.kv import Db, Reader

StoreUrl = Annotated[
    str,
    typer.Argument(
        metavar="URL", help="The store: a path, s3://BUCKET/PREFIX, gs:// or az:// likewise."
    ),
]
CasOption = Annotated[
    str | None,
    typer.Option(
        "--cas",
        metavar="RECORDS",
        envvar="HOLDFAST_CAS",
        help="For a bucket that ignores create-if-absent: where the records of two-phase writes "
        "are, the same for all who write. sqlite:FILE, postgresql://, mysql:// or dynamodb://; "
        "or `native`, which leaves out the trial.",
    ),
]
AtOption = Annotated[
    int | None, typer.Option("--at", min=1, metavar="ID", help="Read the state of this manifest.")
]
SnapshotOption = Annotated[
    UUID | None, typer.Option("--snapshot", metavar="ID", help="Read the state of this snapshot.")
]
PinOption = Annotated[
    bool,
    typer.Option(
        "--pin",
        help="Keep what is read with a snapshot while this runs, which writes two manifests; for "
        "reads that take longer than the garbage collector waits.",
    ),
]

_OURS = {"manifest", "wal", "levels", "two-phase", "probe"}


def bucket_to_read(url: str) -> "Bucket":
    """The bucket of a store that is there; nothing is written."""
    from holdfast.bucket import connect

    bucket = connect(_checked(url))
    _require_store(bucket, url)
    return bucket


def bucket_to_write(url: str, cas: str | None, *, create: bool = False) -> "Bucket":
    """The same, with creates that can be relied on; with `create`, an empty bucket will do."""
    from holdfast.bucket import connect
    from holdfast.bucket.open import has_mark
    from holdfast.kv.cas import open_bucket

    if not create:
        bucket = connect(_checked(url))
        # Of a two-phase store even the first manifest may be unfinished; opening finishes it.
        if cas is None or not has_mark(bucket):
            _require_store(bucket, url)
    elif "://" not in url or url.startswith("file://"):
        _refuse_strange(url)
    bucket = open_bucket(_checked(url), cas)
    if not create:
        _require_store(bucket, url)
    return bucket


def make_store(bucket: "Bucket", gc_min_age_ms: int | None = None) -> bool:
    """Make an empty store, unless there is one; whether it was made."""
    from holdfast.formats.manifest import Manifest
    from holdfast.kv import Options
    from holdfast.kv.manifests import ManifestStore
    from holdfast.runtime import Runtime

    runtime = Runtime()
    store = ManifestStore(bucket, runtime)
    if store.latest() is not None:
        return False
    age_ms = Options().gc_min_age_ms if gc_min_age_ms is None else gc_min_age_ms
    store.create(Manifest.create(created_ms=runtime.now_ms(), gc_min_age_ms=age_ms))
    return True


@contextmanager
def writer_of(url: str, cas: str | None, *, create: bool = False) -> "Iterator[Db]":
    """Take the store over.  It flushes when waited for, and does not compact by itself."""
    from holdfast.kv import Db

    bucket = bucket_to_write(url, cas, create=create)
    options = {"flush_ms": None, "watch_ms": None}
    with Db.open(bucket, create=create, maintain=False, **options) as db:
        yield db


@contextmanager
def reader_of(
    url: str, cas: str | None, *, at: int | None, snapshot: UUID | None, pin: bool
) -> "Iterator[Reader]":
    """The newest state, or another; with `pin`, kept by a snapshot."""
    from holdfast.kv import Reader

    if at is not None and snapshot is not None:
        raise ValueError("--at and --snapshot exclude each other")
    bucket = bucket_to_write(url, cas) if pin else bucket_to_read(url)
    if snapshot is not None:
        at = find_snapshot(bucket, snapshot)
    with Reader.open(bucket, at=at, lazy=not pin) as reader:
        yield reader


def find_snapshot(bucket: "Bucket", id: UUID) -> int:
    """The manifest that a snapshot names."""
    from holdfast.kv.manifests import ManifestStore
    from holdfast.kv.snapshots import Snapshots
    from holdfast.runtime import Runtime

    runtime = Runtime()
    found = Snapshots(ManifestStore(bucket, runtime), runtime).list()
    for each in found:
        if each.id == id:
            return each.manifest_id
    raise AbsentError(f"no snapshot {id}; `holdfast kv snapshot URL list` tells which there are")


def require_two_phase(url: str) -> None:
    """Refuse to make a two-phase bucket of one that is none, for instance because of a typo."""
    from holdfast.bucket import connect
    from holdfast.bucket.open import has_mark

    bare = shown(url)
    if not has_mark(connect(_checked(url))):
        raise FileNotFoundError(errno.ENOENT, "nobody wrote here in two phases", bare)


def shown(url: str) -> str:
    """An address as it may be printed: a query may hold secrets.  A path has none."""
    return url.partition("?")[0] if "://" in url else url


def _checked(url: str) -> str:
    if url.startswith("memory://"):
        raise ValueError("memory:// ends with this command; name a directory or an object store")
    if not url or "\0" in url:
        raise ValueError(f"{url!r} is not a store's address")
    return url


def _require_store(bucket: "Bucket", url: str) -> None:
    from holdfast.kv.manifests import ManifestStore
    from holdfast.runtime import Runtime

    if ManifestStore(bucket, Runtime()).latest() is None:
        bare = shown(url)
        advice = f"no kv store here; make one with `holdfast kv create {bare}`"
        raise FileNotFoundError(errno.ENOENT, advice, bare)


def _refuse_strange(url: str) -> None:
    """A store is not made among other files."""
    from holdfast.bucket import DirectoryBucket

    path = Path(DirectoryBucket(_checked(url)).path)
    strange = sorted({each.name for each in path.iterdir()} - _OURS) if path.is_dir() else []
    if strange:
        advice = f"it holds {strange[0]}, which is no part of a kv store; name another directory"
        raise FileExistsError(errno.EEXIST, advice, str(path))
