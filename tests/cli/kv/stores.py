"""A kv store in a directory, for the tests of `holdfast kv`."""

from pathlib import Path

from holdfast.bucket import DirectoryBucket
from holdfast.doors import open_kv, read_kv
from holdfast.kv import Kv

PAIRS = {b"user/1": b"Ada", b"user/2": b"Bob", b"user/\xff": b"\0\x80", b"vat": b""}


def open_db(path: Path, **settings: object) -> Kv:
    quiet = {"flush_ms": None, "watch_ms": None, **settings}
    return open_kv(path, create=True, maintain=False, **quiet)  # type: ignore[arg-type]


def make_store(path: Path, **settings: object) -> Path:
    with open_db(path, **settings) as db:
        db.write(PAIRS).result()
    return path


def rows(path: Path) -> dict[bytes, bytes]:
    """All that a reader finds."""
    with read_kv(str(path), lazy=True) as reader:
        return dict(reader.items())


def names(path: Path) -> list[str]:
    """Every object of the bucket."""
    return [info.name for info in DirectoryBucket(path).list("")]
