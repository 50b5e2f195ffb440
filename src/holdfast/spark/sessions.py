"""Spark sessions with the settings that Holdfast needs, on any supported Java.

    from holdfast.spark import session
    spark = session()                              # this machine
    spark = session("spark://10.0.0.5:7077")       # a cluster, with the same code

A local session listens on the loopback interface only, prints only errors, uses UTC and leaves
nothing in the working directory.
"""

import ipaddress
import logging
import os
import re
import threading
from collections.abc import Mapping
from urllib.parse import urlsplit

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from holdfast import spark as package
from holdfast.spark import classcache, jvm
from holdfast.spark.java import find_java
from holdfast.spark.shipping import package_zip

LOCAL_MASTER = "local[*,4]"
"""All cores, and four attempts for each task, as on a cluster.  Plain `local[*]` stops at the first
failure, so one Python worker killed for its memory would end an hour's compaction."""

_LOOPBACK = "127.0.0.1"
_MEMORY = re.compile(r"\d+[kmgt]", re.IGNORECASE)
_lock = threading.Lock()


def session(
    master: str | None = None,
    *,
    app_name: str = "holdfast",
    memory: str = "1g",
    ui: bool = False,
    fast_start: bool = True,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the active session, or a new one, with the data sources of Holdfast registered.

    master      where to run: `local[*,4]`, unless this is given or spark-submit has set another
    memory      the heap of the driver's JVM, which in local mode is all there is.  The JVM lives
                as long as the process, so this counts for the first session of a process
    ui          serve Spark's web pages; on the loopback interface when the session is local
    fast_start  use the class cache, if `holdfast spark warm` has created one
    config      Spark settings, which override the defaults

    On a cluster the package is sent to the workers.  They run the Python that PYSPARK_PYTHON names,
    else the one at this interpreter's path; it must have pyarrow and numpy.  Spark does not
    discover data sources in packages that were sent, so they are registered here.

    MissingError and UnsupportedError name what to install.
    """
    if not _MEMORY.fullmatch(memory):
        raise ValueError(f"memory must be a number and a unit, such as 512m or 4g, not {memory!r}")
    chosen = dict(config or {})
    if master is not None:
        chosen.setdefault("spark.master", master)
    with _lock:
        jvm.forget_if_dead()
        if SparkContext._active_spark_context is None:
            spark = _create(chosen, app_name, memory, ui, fast_start)
        else:
            spark = SparkSession.builder.getOrCreate()
    if callable(register := getattr(package, "register", None)):
        register(spark)
    return spark


def default_settings(
    master: str = LOCAL_MASTER, app_name: str = "holdfast", memory: str = "1g", ui: bool = False
) -> dict[str, str]:
    """Return the default settings for a session on this master."""
    settings = {
        "spark.master": master,
        "spark.app.name": app_name,
        "spark.driver.memory": memory,
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # The C stack of a worker that crashes, instead of "exited unexpectedly".
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    }
    if _is_local(master):
        # Spark's 200 is meant for a cluster: on a few cores it is mostly scheduling.
        settings["spark.sql.shuffle.partitions"] = str(2 * (os.cpu_count() or 1))
    if _is_on_loopback(master):
        settings["spark.driver.host"] = _LOOPBACK
        settings["spark.driver.bindAddress"] = _LOOPBACK
    return settings


def _create(
    chosen: dict[str, str], app_name: str, memory: str, ui: bool, fast_start: bool
) -> SparkSession:
    given = _given_by_foreign_jvm()
    master = chosen.get("spark.master") or given.get("spark.master") or LOCAL_MASTER
    settings = {**default_settings(master, app_name, memory, ui), **given, **chosen}
    if jvm.current() is None and SparkContext._gateway is None:
        _start_jvm(settings, fast_start)
    # It logs every AnalysisException as pages of JSON, before the exception arrives.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if "spark.log.level" not in settings:
        spark.sparkContext.setLogLevel("ERROR")
    if not _is_local(master):
        spark.sparkContext.addPyFile(str(package_zip()))
    return spark


def _given_by_foreign_jvm() -> dict[str, str]:
    """Return the settings of a JVM that spark-submit or the user has started.

    They override Holdfast's defaults, because the user has chosen them.
    """
    if jvm.current() is not None:
        return {}
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _start_jvm(settings: Mapping[str, str], fast_start: bool) -> None:
    java = find_java()
    jvm.start(java, settings, classcache.use_flags(java) if fast_start else [])


def _is_local(master: str) -> bool:
    """Return whether the tasks run inside the driver's JVM."""
    return master.startswith("local") and not master.startswith("local-cluster")


def _is_on_loopback(master: str) -> bool:
    """Return whether all processes that connect to the driver are on this machine."""
    if master.startswith("local"):
        return True
    host = urlsplit(master).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, not an address
        return host == "localhost"
