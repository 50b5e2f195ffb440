"""Jobs over logs and stores.  Spark schedules; bytes stay in its Python workers if possible."""

from holdfast.kv.admin import CompactReport
from holdfast.spark.jobs.compacting import compact
from holdfast.spark.jobs.conversion import ConvertReport, convert
from holdfast.spark.jobs.copying import CopyReport, Place, copy
from holdfast.spark.jobs.log_stats import StatsReport, stats
from holdfast.spark.jobs.replaying import ReplayReport, replay
from holdfast.spark.jobs.rollups import RollupReport, rollup, rollup_frame
from holdfast.spark.jobs.scrubbing import ScrubReport, scrub, scrub_bars, scrub_kv

__all__ = [
    "CompactReport",
    "ConvertReport",
    "CopyReport",
    "Place",
    "ReplayReport",
    "RollupReport",
    "ScrubReport",
    "StatsReport",
    "compact",
    "convert",
    "copy",
    "replay",
    "rollup",
    "rollup_frame",
    "scrub",
    "scrub_bars",
    "scrub_kv",
    "stats",
]
