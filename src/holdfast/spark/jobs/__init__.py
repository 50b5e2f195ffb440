"""Jobs over logs and stores: Spark schedules; bytes stay in its Python workers where they can."""

from holdfast.spark.jobs.compacting import CompactReport, compact
from holdfast.spark.jobs.conversion import ConvertReport, convert
from holdfast.spark.jobs.kv_scrubbing import scrub_kv
from holdfast.spark.jobs.log_stats import StatsReport, stats
from holdfast.spark.jobs.replaying import ReplayReport, replay
from holdfast.spark.jobs.scrubbing import ScrubReport, scrub

__all__ = [
    "CompactReport",
    "ConvertReport",
    "ReplayReport",
    "ScrubReport",
    "StatsReport",
    "compact",
    "convert",
    "replay",
    "scrub",
    "scrub_kv",
    "stats",
]
