"""Jobs over logs and stores: Spark schedules; bytes stay in its Python workers where they can."""

from holdfast.spark.jobs.bar_files import BarsExported, export_bars, import_bars
from holdfast.spark.jobs.bar_scrubbing import scrub_bars
from holdfast.spark.jobs.compacting import CompactReport, compact
from holdfast.spark.jobs.conversion import ConvertReport, convert
from holdfast.spark.jobs.copying import CopyReport, Place, copy
from holdfast.spark.jobs.kv_scrubbing import scrub_kv
from holdfast.spark.jobs.log_stats import StatsReport, stats
from holdfast.spark.jobs.replaying import ReplayReport, replay
from holdfast.spark.jobs.rollups import RollupReport, rollup, rollup_frame
from holdfast.spark.jobs.scrubbing import ScrubReport, scrub

__all__ = [
    "BarsExported",
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
    "export_bars",
    "import_bars",
    "replay",
    "rollup",
    "rollup_frame",
    "scrub",
    "scrub_bars",
    "scrub_kv",
    "stats",
]
