"""A kv store in a directory, for the tests of `holdfast kv`."""

from pathlib import Path

from holdfast.bucket import DirectoryBucket
from holdfast.kv import Db, Options, Reader

PAIRS = {b"user/1": b"Ada", b"user/2": b"Bob", b"user/\xff": b"\0\x80", b"vat": b""}


def open_db(path: Path, **settings: object) -> Db:
    options = Options(flush_ms=None, watch_ms=None, **settings)  # type: ignore[arg-type]
    return Db.open(str(path), options, maintain=False)


def make_store(path: Path, **settings: object) -> Path:
    with open_db(path, **settings) as db:
        db.write(PAIRS).result()
    return path


def rows(path: Path) -> dict[bytes, bytes]:
    """All that a reader finds."""
    with Reader.open(str(path), lazy=True) as reader:
        return dict(reader.items())


def names(path: Path) -> list[str]:
    """Every object of the bucket."""
    return [info.name for info in DirectoryBucket(path).list("")]
