"""Spark's Python workers, found among the processes of this machine, so that one can be killed.

The JVM starts a daemon for each kind of worker, and the daemon forks the workers.  Only those that
run tasks are of interest: the one that plans a stream is not replaced when it dies.
"""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

_DAEMON = ("-m", "pyspark.daemon", "pyspark.worker")


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    parent: int
    state: str  # as in proc(5): R is running, S waiting


def task_workers(jvm_pid: int, proc: Path = Path("/proc")) -> list[Process]:
    """The Python workers that run, or wait for, the tasks of this JVM."""
    all_of_them = {process.pid: process for process in _processes(proc)}
    workers = []
    for process in all_of_them.values():
        daemon = all_of_them.get(process.parent)
        if daemon and daemon.parent == jvm_pid and _is_daemon(proc, process.pid):
            workers.append(process)
    return workers


def kill_busy_worker(jvm_pid: int) -> int | None:
    """kill -9 one that is computing at this moment; its number, or None if all are waiting."""
    for worker in task_workers(jvm_pid):
        if worker.state == "R":
            try:
                os.kill(worker.pid, signal.SIGKILL)
            except ProcessLookupError:  # it had ended meanwhile
                continue
            return worker.pid
    return None


def _processes(proc: Path) -> list[Process]:
    found = []
    for directory in proc.iterdir():
        if not directory.name.isdecimal():
            continue
        try:
            stat = (directory / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):  # ended since we listed it
            continue
        state, parent, *_ = stat[stat.rindex(")") + 2 :].split()  # its name may hold anything
        found.append(Process(int(directory.name), int(parent), state))
    return found


def _is_daemon(proc: Path, pid: int) -> bool:
    """Whether it runs the daemon's program, as the daemon's forks do too."""
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return tuple(words[1:4]) == _DAEMON
