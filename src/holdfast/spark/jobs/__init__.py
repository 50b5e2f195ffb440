"""Jobs over stores: Spark schedules, and the bytes stay in its Python workers wherever they can."""

from holdfast.spark.jobs.bar_files import BarsExported, export_bars, import_bars
from holdfast.spark.jobs.bar_scrubbing import scrub_bars
from holdfast.spark.jobs.conversion import ConvertReport, convert
from holdfast.spark.jobs.log_stats import StatsReport, stats
from holdfast.spark.jobs.replaying import ReplayReport, replay
from holdfast.spark.jobs.rollups import RollupReport, rollup, rollup_frame
from holdfast.spark.jobs.scrubbing import ScrubReport, scrub

__all__ = [
    "BarsExported",
    "ConvertReport",
    "ReplayReport",
    "RollupReport",
    "ScrubReport",
    "StatsReport",
    "convert",
    "export_bars",
    "import_bars",
    "replay",
    "rollup",
    "rollup_frame",
    "scrub",
    "scrub_bars",
    "stats",
]
