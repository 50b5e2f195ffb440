"""Give jobs to processes until the time is over, and keep the figures after each."""

import os
import platform
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from campaign.figures import ROOT, Failure, Session, State
from campaign.jobs import Job
from campaign.pool import Pool, Result, Task
from holdfast import __version__

LONG = ("soak", "service")  # jobs whose size is in seconds ...
LONG_SHARE = 1 / 60  # ... and their share of a campaign, for each store
FINISH_S = 60.0  # for the jobs at work when the time is over
INTERRUPTED_S = 5.0  # ... and when it is interrupted


class Campaign:
    """One run.  `path` is where the figures are kept."""

    def __init__(self, jobs: Mapping[str, Job], state: State, path: Path) -> None:
        self.missing = {name: why for name, job in jobs.items() if (why := job.missing())}
        self._jobs = {name: job for name, job in jobs.items() if name not in self.missing}
        self._state, self._path = state, path
        self._running: list[str] = []

    def run(self, hours: float, processes: int, on_progress: Callable[[int, int], None]) -> Session:
        """Run for so long.  The figures are saved after every job, and at Ctrl-C."""
        seconds, started = hours * 3600, time.monotonic()
        session = Session(now(), 0.0, 0, 0, version(), machine())
        self._state.runs.append(session)
        try:
            with Pool(processes) as pool:
                try:
                    while time.monotonic() - started < seconds:
                        if pool.has_room:
                            pool.give(self._next(seconds))
                        else:
                            self._receive(pool, session, started, 1.0)
                        on_progress(int(time.monotonic() - started), int(seconds))
                    self._finish(pool, session, started, FINISH_S)
                except KeyboardInterrupt:
                    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second one ends it at once
                    self._finish(pool, session, started, INTERRUPTED_S)
        finally:
            self._save(session, started)
        return session

    def _next(self, seconds: float) -> Task:
        """Choose the job that has had the least of its share of the time."""

        def spent(job: Job) -> float:
            at_work = self._running.count(job.name)
            return (self._state.of(job.name).seconds + 10 * at_work) / job.weight

        job = min(self._jobs.values(), key=spent)
        self._running.append(job.name)
        size = min(3600.0, seconds * LONG_SHARE) if job.kind in LONG else 1.0
        return Task(job.name, self._state.give_seed(job.name), round(size, 1))

    def _finish(self, pool: Pool, session: Session, started: float, limit: float) -> None:
        stop = time.monotonic() + limit
        while pool.is_busy and time.monotonic() < stop:
            self._receive(pool, session, started, 0.5)

    def _receive(self, pool: Pool, session: Session, started: float, timeout: float) -> None:
        for result in pool.results(timeout):
            self._running.remove(result.task.job)
            session.jobs += 1
            record(self._state, result)
            session.failures += bool(result.failure)
            self._save(session, started)

    def _save(self, session: Session, started: float) -> None:
        session.hours = round((time.monotonic() - started) / 3600, 4)
        self._state.save(self._path)


def record(state: State, result: Result) -> None:
    """Add what came of a task to the figures."""
    task = result.task
    state.add(task.job, result.counts, result.seconds)
    if result.failure:
        failure = Failure(task.job, task.seed, task.size, result.failure, now(), version())
        state.failures.append(failure)


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M}Z"


def version() -> str:
    """The version, and the commit if there is one."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"{__version__} {found.stdout.strip()}".strip()


def machine() -> str:
    python = platform.python_version()
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {python}"
