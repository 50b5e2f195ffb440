"""The stores are looked after on Spark: compacted, swept, rolled up, and every checksum verified.

What the rollup makes is compared with the ledger, as the minutes are; the kv store must show the
same rows before and after it is compacted and swept, and a snapshot the state that it was made of.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

from holdfast.bucket import DirectoryBucket
from holdfast.demo import bars, ticks
from holdfast.demo.history import Moment, moments_of
from holdfast.demo.results import Rollup, Scrub, Upkeep
from holdfast.demo.streams import ATTRIBUTES, TIMEFRAME, read_bars
from holdfast.kv import Db, GarbageCollector, Reader
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.snapshots import Snapshots
from holdfast.runtime import Runtime
from holdfast.spark.jobs import compact, rollup, scrub_bars, scrub_kv

ROLLED = {"1H": 3_600_000_000, "1D": 86_400_000_000}  # in microseconds
GC_MIN_AGE_MS = 2_000  # so that there is something to sweep within a demo
_RECIPE = {
    **{name: (name, rule) for name, rule in (("Open", "first"), ("High", "max"), ("Low", "min"))},
    **{name: (name, rule) for name, rule in (("Close", "last"), ("Volume", "sum"))},
    "Count": ("Count", "sum"),
}
_SNAPSHOT_SECONDS = 3600
_Result = TypeVar("_Result")


def make_store(prices: Path) -> None:
    """The kv store, empty."""
    Db.open(str(prices), gc_min_age_ms=GC_MIN_AGE_MS, maintain=False).close()


def compact_and_sweep(
    spark: SparkSession, prices: Path, before: list[Moment]
) -> tuple[Upkeep, list[Moment]]:
    """The kv store's part; and its manifests, which are swept with the rest."""
    bucket, runtime = DirectoryBucket(prices), Runtime()
    rows, objects = _rows(prices), len(bucket.list(""))
    kept = Snapshots(ManifestStore(bucket, runtime), runtime).create(_SNAPSHOT_SECONDS)
    report, seconds = timed(lambda: compact(spark, str(prices), everything=True))
    history = moments_of(bucket, before)
    time.sleep(GC_MIN_AGE_MS / 1000)  # nothing younger is ever deleted
    swept, sweep_seconds = timed(GarbageCollector(bucket).collect)
    after, then = _rows(prices), _rows(prices, kept.manifest_id)
    upkeep = Upkeep(
        rows_read=report.rows_read,
        rows_written=report.rows_written,
        tasks=report.tasks,
        compact_seconds=seconds,
        objects_before=objects,
        objects_after=len(bucket.list("")),
        deleted=swept.count,
        sweep_seconds=sweep_seconds,
        rows_differing=len(rows.items() ^ after.items()),
        snapshot=kept.manifest_id,
        snapshot_differing=len(rows.items() ^ then.items()),
    )
    return upkeep, moments_of(bucket, history)


def roll_up(spark: SparkSession, root: Path, acknowledged: ticks.Ticks) -> Rollup:
    """The bar store's part, compared with the ledger."""
    report, seconds = timed(
        lambda: rollup(
            spark, str(root), TIMEFRAME, ATTRIBUTES, list(ROLLED), recipe=_RECIPE,
            target_attributes=ATTRIBUTES,
        )
    )  # fmt: skip
    differing = sum(
        bars.differing(read_bars(root, name), bars.make_bars(acknowledged, step_us))
        for name, step_us in ROLLED.items()
    )
    return Rollup(dict(report.rows_written), differing, seconds)


def scrub_stores(spark: SparkSession, prices: Path, root: Path) -> list[Scrub]:
    """The kv store and the bar store; the log has an act of its own."""
    kv, kv_seconds = timed(lambda: scrub_kv(spark, str(prices)))
    bar, bar_seconds = timed(lambda: scrub_bars(spark, str(root)))
    files = len(bar.year_files) + len(bar.logs)
    return [
        Scrub(
            "kv store", f"{kv.manifests} manifests, {kv.ssts} SSTs, {kv.rows:,} rows",
            "clean" if kv.is_sound else "corrupt", kv_seconds,
        ),
        Scrub("bar store", f"{files} files, {bar.rows:,} rows", bar.verdict, bar_seconds),
    ]  # fmt: skip


def timed(step: Callable[[], _Result]) -> tuple[_Result, float]:
    began = time.monotonic()
    return step(), time.monotonic() - began


def _rows(prices: Path, manifest_id: int | None = None) -> dict[bytes, bytes]:
    with Reader.open(str(prices), at=manifest_id, lazy=True) as reader:
        return dict(reader.items())
