"""The campaign in its short form: every kind of job, and what is kept of it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from campaign import page, pool, running, soak
from campaign.figures import State, load
from campaign.jobs import JOBS
from campaign.pool import Pool, Result, Task, run_task
from campaign.running import Campaign

from holdfast.testing.lives import BrokenPromiseError

SMALL = 0.05
JOB = "fuzz/side file"
ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", JOBS)
def test_every_job_judges_something(name: str) -> None:
    if why := JOBS[name].missing():
        pytest.skip(why)
    result = run_task(Task(name, 7, SMALL))
    assert result.failure == ""
    assert result.counts[JOBS[name].unit] > 0


def test_a_broken_promise_is_recorded_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(seed: int, place: Path, size: float) -> Counter[str]:
        error = BrokenPromiseError("lost", "one of two")
        error.add_note(f"in life 3 of seed {seed}")
        raise error

    monkeypatch.setitem(JOBS, JOB, replace(JOBS[JOB], run=fail))
    result = run_task(Task(JOB, 7, 1.0))
    assert "BrokenPromiseError: lost: one of two in life 3 of seed 7" in result.failure
    state = State()
    running.record(state, result)
    (failure,) = state.failures
    assert failure.again == "python -m campaign --repeat 'fuzz/side file' --seed 7 --size 1"
    text = "\n".join(page.lines(state, {}))
    assert "**1 of these tests fail**" in text
    assert failure.again in text
    failure.passed = "2026-11-18"
    text = "\n".join(page.lines(state, {}))
    assert "No promise was broken" not in text
    assert "It passes since 2026-11-18" in text


class OneAtATime:
    """A pool without processes; it runs a job when its result is asked for."""

    given: list[Task]

    def __init__(self, count: int) -> None:
        self.tasks: list[Task] = []
        OneAtATime.given = []

    def __enter__(self) -> "OneAtATime":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    @property
    def has_room(self) -> bool:
        return not self.tasks

    @property
    def is_busy(self) -> bool:
        return bool(self.tasks)

    def give(self, task: Task) -> None:
        self.tasks.append(task)
        OneAtATime.given.append(task)

    def results(self, timeout: float) -> Iterator[Result]:
        task = self.tasks.pop()
        time.sleep(0.005)
        yield Result(task, {"mutants": 5}, 1.0, "broken" if task.seed == 3 else "")


def test_figures_add_up_over_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "Pool", OneAtATime)
    path, shown = tmp_path / "figures.json", list[int]()
    seeds = []
    for _ in range(2):
        state = load(path)
        session = Campaign({JOB: JOBS[JOB]}, state, path).run(
            0.05 / 3600, 1, lambda done, total: shown.append(done)
        )
        assert session.jobs > 0
        seeds += [task.seed for task in OneAtATime.given]
    state = load(path)
    assert seeds == list(range(len(seeds))), "no seed is used twice"
    assert state.jobs[JOB].next_seed == state.jobs[JOB].jobs == len(seeds)
    assert state.jobs[JOB].counts == {"mutants": 5 * len(seeds)}
    assert [run.jobs for run in state.runs] == [len(seeds) - state.runs[1].jobs, state.runs[1].jobs]
    assert [failure.seed for failure in state.failures] == [3]
    assert sum(run.failures for run in state.runs) == 1
    assert shown


def test_time_is_shared_by_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "Pool", OneAtATime)
    heavy, light = replace(JOBS[JOB], weight=3), JOBS["fuzz/csv"]
    jobs = {heavy.name: heavy, light.name: light}
    Campaign(jobs, State(), tmp_path / "f").run(0.5 / 3600, 1, lambda done, total: None)
    counts = Counter(task.job for task in OneAtATime.given)
    assert counts[heavy.name] > 2 * counts[light.name] > 0


def test_what_is_not_installed_is_left_out_and_named(tmp_path: Path) -> None:
    absent = replace(JOBS[JOB], missing=lambda: "no such program here")
    campaign = Campaign({JOB: absent}, State(), tmp_path / "f")
    assert campaign.missing == {JOB: "no such program here"}
    assert f"- {JOB}: no such program here" in "\n".join(page.lines(State(), campaign.missing))


def test_a_process_that_dies_has_failed_its_job() -> None:
    with Pool(1) as processes:
        processes.give(Task(JOB, 1, 10**6))
        (worker,) = processes._workers
        os.kill(worker.process.pid or 0, signal.SIGKILL)
        (result,) = processes.results(60)
        assert result.failure == "the process ended with exit code -9"
        processes.give(Task(JOB, 2, SMALL))
        (result,) = processes.results(60)
        assert result.counts["mutants"] > 0


def test_a_job_without_end_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "LIMIT_S", -(10.0**6))
    with Pool(1) as processes:
        processes.give(Task(JOB, 1, 10**6))
        (result,) = processes.results(0)
        assert "did not end" in result.failure
        assert processes.has_room


@pytest.mark.parametrize("leak", ["descriptors", "memory"])
def test_what_grows_is_caught(leak: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[object] = []

    def cycle(format: str, path: Path) -> None:
        if leak == "memory":
            kept.append(os.urandom(8 << 20))
        else:
            kept.append(os.open("/dev/null", os.O_RDONLY))

    monkeypatch.setattr(soak, "_cycle", cycle)
    with pytest.raises(BrokenPromiseError, match="memory grew" if leak == "memory" else "descr"):
        soak.soak("shanghai", tmp_path, 0)
    for one in kept:
        if isinstance(one, int):
            os.close(one)


def command(tmp_path: Path, *arguments: str) -> list[str]:
    files = "--figures", str(tmp_path / "figures.json"), "--page", str(tmp_path / "page.md")
    return [sys.executable, "-m", "campaign", *files, *arguments]


def test_ctrl_c_ends_it_without_loss(tmp_path: Path) -> None:
    started = subprocess.Popen(
        command(tmp_path, "--hours", "1", "--processes", "1", "--only", "fuzz/s"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "figures.json").exists():
        assert started.poll() is None
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    answer, _ = started.communicate(timeout=60)
    assert started.returncode == 0
    assert ", 0 failures" in answer
    state = load(tmp_path / "figures.json")
    assert state.runs[0].jobs == sum(figures.jobs for figures in state.jobs.values()) > 0
    assert (tmp_path / "page.md").read_text().startswith("# Reliability")


def test_a_failure_can_be_repeated(tmp_path: Path) -> None:
    state = State()
    running.record(state, Result(Task(JOB, 5, SMALL), {}, 1.0, "broken"))
    state.save(tmp_path / "figures.json")
    again = command(tmp_path, "--repeat", JOB, "--seed", "5", "--size", str(SMALL))
    done = subprocess.run(again, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("passed: {'mutants': 1000")
    assert json.loads((tmp_path / "figures.json").read_text())["failures"][0]["passed"]
    assert "It passes since" in (tmp_path / "page.md").read_text()


def test_the_page_is_made_from_the_figures() -> None:
    state = load(ROOT / "campaign" / "figures.json")
    shown = (ROOT / "docs" / "reliability.md").read_text().partition("\n## Not run")[0]
    assert shown.strip() == "\n".join(page.lines(state, {})).strip()
