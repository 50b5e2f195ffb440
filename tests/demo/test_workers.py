import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.demo import workers

DAEMON = b"python\0-m\0pyspark.daemon\0pyspark.worker\0"
PLANNER = b"python\0-m\0pyspark.daemon\0pyspark.sql.streaming.python_streaming_source_runner\0"


def process(proc: Path, pid: int, parent: int, cmdline: bytes, state: str = "S") -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "stat").write_text(f"{pid} (a ) name) {state} {parent} 1 1 0")
    (proc / str(pid) / "cmdline").write_bytes(cmdline)


def test_only_the_workers_that_run_tasks_are_found(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    process(tmp_path, 10, 1, b"java\0")
    process(tmp_path, 20, 10, DAEMON)
    process(tmp_path, 21, 20, DAEMON, "R")
    process(tmp_path, 22, 20, DAEMON)
    process(tmp_path, 30, 10, PLANNER)
    process(tmp_path, 31, 30, PLANNER, "R")
    process(tmp_path, 40, 1, DAEMON)
    process(tmp_path, 41, 40, DAEMON, "R")  # of another JVM
    found = sorted(workers.task_workers(10, tmp_path), key=lambda worker: worker.pid)
    assert [(worker.pid, worker.state) for worker in found] == [(21, "R"), (22, "S")]


def test_the_busy_one_is_killed_and_the_waiting_one_spared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    idle = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    found = [workers.Process(idle.pid, 1, "S"), workers.Process(busy.pid, 1, "R")]
    monkeypatch.setattr(workers, "task_workers", lambda jvm_pid: found)
    try:
        assert workers.kill_busy_worker(1) == busy.pid
        assert busy.wait() == -signal.SIGKILL
        assert idle.poll() is None
        assert workers.kill_busy_worker(1) is None  # it is gone
    finally:
        idle.kill()
        idle.wait()


def test_processes_that_end_meanwhile_are_no_error() -> None:
    nobody = -1
    assert workers.task_workers(nobody) == []
