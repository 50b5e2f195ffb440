"""Where a run took place: its figures mean little without that."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.runtime import now_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def facts(work: Path, spark: "SparkSession | None") -> dict[str, str]:
    """Versions, the machine and the file system, for a reader of the report."""
    found = {
        "run at": f"{datetime.fromtimestamp(now_ms() // 1000, UTC):%Y-%m-%d %H:%M} UTC",
        "holdfast": version("holdfast"),
        "Python": platform.python_version(),
    }
    if spark is not None:
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        found["Spark"] = f"{spark.version}, {spark.sparkContext.master}"
        found["Java"] = str(jvm.java.lang.System.getProperty("java.vm.version"))
    found["system"] = f"{platform.system()} {platform.release()}"
    found["processor"] = f"{os.cpu_count()} x {_processor()}"
    found["file system"] = _file_system(work)
    return found


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _file_system(path: Path) -> str:
    """The type of the one that holds `path`: what a sync costs there, and whether it does sync."""
    best, found = -1, "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split(" ")
        point = Path(place.replace("\\040", " "))
        if path.resolve().is_relative_to(point) and len(point.parts) >= best:
            best, found = len(point.parts), kind
    return found
