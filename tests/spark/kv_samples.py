"""Kv stores for the tests here, and what they hold."""

import random
from pathlib import Path

from holdfast.bucket import connect
from holdfast.doors import open_kv, read_kv
from holdfast.formats.manifest import Manifest
from holdfast.kv import Kv
from holdfast.kv.compaction import Compactor
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.plans import CompactionOptions
from holdfast.runtime import Runtime

SMALL = CompactionOptions(
    wal_count=1, sst_size=1 << 16, task_size=1 << 16, block_size=1 << 12, unit_count=3
)


def key(number: int) -> bytes:
    return b"key/%06d" % number


def open_db(path: Path) -> Kv:
    return open_kv(
        str(path), create=True, flush_ms=None, watch_ms=None, gc_min_age_ms=0, maintain=False
    )


def make_store(path: Path, *, seed: int = 0, rows: int = 3000) -> Path:
    """A run of several SSTs, something in L0, and a WAL; with rows overwritten and deleted."""
    choose = random.Random(seed)

    def batch(count: int) -> dict[bytes, bytes | None]:
        numbers = [choose.randrange(rows) for _ in range(count)]
        return {
            key(number): choose.randbytes(choose.randrange(100)) if choose.random() < 0.8 else None
            for number in numbers
        }

    with open_db(path) as db:
        db.write({key(number): choose.randbytes(80) for number in range(rows)}).result()
        Compactor(db.bucket, options=SMALL).compact_everything()
        db.write(batch(300)).result()
        Compactor(db.bucket, options=SMALL).step()
        for _ in range(5):
            db.write(batch(40)).result()
    return path


def contents(path: Path) -> dict[bytes, bytes]:
    with read_kv(str(path), lazy=True) as reader:
        return dict(reader.items())


def manifest(path: Path) -> Manifest:
    current = ManifestStore(connect(str(path)), Runtime()).latest()
    assert current is not None
    return current[1]
