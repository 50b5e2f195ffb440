"""Processes that run jobs: one job at a time each, and a process that dies has failed its job."""

import logging
import multiprocessing
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from campaign.jobs import JOBS

LIMIT_S = 900.0  # for a job, besides what it was asked to take


@dataclass(frozen=True, slots=True)
class Task:
    """A job to run once."""

    job: str
    seed: int
    size: float


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a task: its counts, or what failed."""

    task: Task
    counts: dict[str, int]
    seconds: float
    failure: str = ""


def run_task(task: Task) -> Result:
    """Run a job in this process, in a directory of its own.  Never raises."""
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)  # each recovery would be logged
    place, started = Path(tempfile.mkdtemp(prefix="holdfast-campaign-")), time.monotonic()
    counts: dict[str, int] = {}
    failure = ""
    try:
        counts = dict(JOBS[task.job].run(task.seed, place, task.size))
    except Exception as error:
        notes = " ".join(getattr(error, "__notes__", []))
        lines = f"{type(error).__name__}: {error} {notes}".split()
        where = traceback.extract_tb(error.__traceback__)[-1]
        failure = f"{' '.join(lines)[:400]} ({Path(where.filename).name}:{where.lineno})"
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return Result(task, counts, time.monotonic() - started, failure)


def _work(tasks: "Connection[Any, Any]") -> None:
    """The life of a process.  Ctrl-C is for the campaign, which then ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while (task := tasks.recv()) is not None:
        tasks.send(run_task(task))


class _Worker:
    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.line, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=[theirs], daemon=True)
        self.process.start()
        theirs.close()
        self.task: Task | None = None
        self.started = 0.0

    def give(self, task: Task) -> None:
        self.task, self.started = task, time.monotonic()
        self.line.send(task)

    def result(self) -> Result:
        """Receive what came of the task; if the process has died, that is the failure."""
        assert self.task is not None
        task, self.task = self.task, None
        try:
            found: Result = self.line.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            why = f"the process ended with exit code {self.process.exitcode}"
            return Result(task, {}, time.monotonic() - self.started, why)
        return found

    @property
    def is_late(self) -> bool:
        return self.task is not None and time.monotonic() > self.started + LIMIT_S + self.task.size

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.line.close()


class Pool:
    """As many processes as there are cores.  A context manager: all of them end with it."""

    def __init__(self, count: int) -> None:
        self._workers = [_Worker() for _ in range(count)]

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            worker.end()

    @property
    def has_room(self) -> bool:
        return any(worker.task is None for worker in self._workers)

    @property
    def is_busy(self) -> bool:
        return any(worker.task is not None for worker in self._workers)

    def give(self, task: Task) -> None:
        next(worker for worker in self._workers if worker.task is None).give(task)

    def results(self, timeout: float) -> Iterator[Result]:
        """Yield what is done within so many seconds."""
        busy = {worker.line: worker for worker in self._workers if worker.task is not None}
        for line in wait(list(busy), timeout):
            worker = busy[line]  # type: ignore[index]
            yield worker.result()
            self._replace_dead(worker)
        for worker in [worker for worker in self._workers if worker.is_late]:
            assert worker.task is not None
            yield Result(worker.task, {}, LIMIT_S, f"it did not end in {LIMIT_S:g} s")
            worker.end()
            self._replace_dead(worker)

    def _replace_dead(self, worker: _Worker) -> None:
        if not worker.process.is_alive():
            self._workers[self._workers.index(worker)] = _Worker()
