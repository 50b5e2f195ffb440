"""Jobs over logs: Spark schedules, and the bytes stay in its Python workers wherever they can."""

from holdfast.spark.jobs.conversion import ConvertReport, convert
from holdfast.spark.jobs.log_stats import StatsReport, stats
from holdfast.spark.jobs.replaying import ReplayReport, replay
from holdfast.spark.jobs.scrubbing import ScrubReport, scrub

__all__ = [
    "ConvertReport",
    "ReplayReport",
    "ScrubReport",
    "StatsReport",
    "convert",
    "replay",
    "scrub",
    "stats",
]
