"""A real standalone cluster on this machine, for tests: a master and two workers, each a JVM.

The workers have loopback addresses of their own, so that Spark sees different hosts.  They are
started without PYTHONPATH: what their Python can import beyond its installation has come through
Spark.  A process holds only one SparkContext, so drivers run as processes of their own:

    with cluster(tmp_path) as running, running.driver(SCRIPT) as driver:
        ...
"""

import ctypes
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.spark.classcache import use_flags
from holdfast.spark.java import Java, find_java
from holdfast.spark.jvm import class_path, launcher_environment, module_flags

Process = subprocess.Popen[str]

MASTER_HOST = "127.0.0.1"
WORKER_HOSTS = ("127.0.0.2", "127.0.0.3")
START_SECONDS_MAX = 240
_PR_SET_PDEATHSIG = 1


@dataclass
class Cluster:
    """What runs, and where.  `workers` are by host."""

    java: Java
    directory: Path
    port: int = 0
    ui_port: int = 0
    master: Process | None = None
    workers: dict[str, Process] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"spark://{MASTER_HOST}:{self.port}"

    def executor_pids(self) -> dict[str, list[int]]:
        """The executors' JVMs, by the host of their worker.  One may be killed with `kill -9`."""
        parents = _parents()
        return {
            host: [
                pid
                for pid, parent in parents.items()
                if parent == worker.pid and b"CoarseGrainedExecutorBackend" in _command_line(pid)
            ]
            for host, worker in self.workers.items()
        }

    @contextmanager
    def driver(self, script: str, *arguments: str) -> Iterator[Process]:
        """A Python process that runs this script with our URL as its first argument.

        Its stdin and stdout are pipes of text; it is killed at the end of the block.
        """
        process = subprocess.Popen(
            [sys.executable, "-c", script, self.url, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self.directory,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()


@contextmanager
def cluster(directory: Path, java: Java | None = None) -> Iterator[Cluster]:
    """Start it and wait until both workers have registered; at the end nothing of it is left."""
    running = Cluster(java or find_java(), directory)
    with ExitStack() as stack:
        running.port, running.ui_port = _free_ports(2)
        arguments = ["--port", str(running.port), "--webui-port", str(running.ui_port)]
        running.master = stack.enter_context(_daemon(running, "Master", MASTER_HOST, arguments))
        stack.callback(lambda: _kill_all(running))
        for host in WORKER_HOSTS:
            arguments = ["--cores", "1", "--memory", "1g", "--webui-port", "0"]
            arguments += ["--work-dir", str(directory / host), running.url]
            worker = stack.enter_context(_daemon(running, "Worker", host, arguments))
            running.workers[host] = worker
        wait_until(lambda: _alive_workers(running) == len(WORKER_HOSTS), "the workers to register")
        yield running


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {START_SECONDS_MAX} s for {what}")
        time.sleep(0.05)


@contextmanager
def _daemon(running: Cluster, role: str, host: str, arguments: list[str]) -> Iterator[Process]:
    command = [
        *(str(running.java.path), "-cp", class_path(), "-Xmx256m", "-Xlog:disable"),
        *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *module_flags(running.java),
        *use_flags(running.java),
        f"org.apache.spark.deploy.{role.lower()}.{role}",
        *("--host", host),
        *arguments,
    ]
    with (running.directory / f"{role.lower()}-{host}.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env=_environment(running.java, host),
            stdout=log,
            stderr=log,
            text=True,
            preexec_fn=_die_with_parent,
        )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _environment(java: Java, host: str) -> dict[str, str]:
    kept = ("PATH", "HOME", "TMPDIR", "SPARK_LOCAL_DIRS")
    environment = {key: os.environ[key] for key in kept if key in os.environ}
    return {**environment, **launcher_environment(java), "SPARK_LOCAL_IP": host}


def _kill_all(running: Cluster) -> None:
    """Executors outlive a killed worker for a moment; a test must not see them afterwards."""
    executors = [pid for pids in running.executor_pids().values() for pid in pids]
    for worker in running.workers.values():
        worker.kill()
    for pid in executors:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _alive_workers(running: Cluster) -> int:
    for process in (running.master, *running.workers.values()):
        assert process is not None
        assert process.poll() is None, f"a daemon has ended; see its log in {running.directory}"
    connection = http.client.HTTPConnection(MASTER_HOST, running.ui_port, timeout=10)
    try:
        connection.request("GET", "/json/")
        answer = connection.getresponse()
        found = answer.read()
        # Its server answers before this page is there, even with another.
        is_there = answer.status == http.HTTPStatus.OK and found.startswith(b"{")
        return int(json.loads(found)["aliveworkers"]) if is_there else 0
    except (OSError, http.client.HTTPException):  # not up yet, or too busy to answer
        return 0
    finally:
        connection.close()


def _die_with_parent() -> None:
    """So that a test run that is killed leaves no cluster behind (Linux)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((MASTER_HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def _parents() -> dict[int, int]:
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    return parents


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
