"""The baton, and what is handed to a store in place of threads and clocks."""

from collections.abc import Callable
from random import Random

import pytest

from holdfast.testing.actors import Process, Scheduler, StuckError


class Stage:
    """A scheduler, and what its actors have done."""

    def __init__(self, seed: int = 0) -> None:
        self.scheduler = Scheduler(Random(seed))
        self.told: list[str] = []

    def enter(self, name: str, play: Callable[[Process], None], skew_ms: int = 0) -> Process:
        process = Process(name, skew_ms)
        self.scheduler.spawn(process, "", lambda: play(process), main=True)
        return process

    def count(self, process: Process) -> None:
        for number in range(20):
            self.scheduler.step("counts")
            self.told.append(f"{process.name}{number}")


def test_a_seed_decides_who_goes_on() -> None:
    def told(seed: int) -> tuple[list[str], str]:
        stage = Stage(seed)
        for name in "ab":
            stage.enter(name, stage.count)
        stage.scheduler.run()
        return stage.told, stage.scheduler.digest

    assert told(1) == told(1) != told(2)
    assert sorted(told(1)[0]) == sorted(told(2)[0])


def test_the_frozen_go_on_late_and_the_dead_do_not() -> None:
    stage = Stage()
    frozen, dead = (stage.enter(name, stage.count) for name in ("frozen", "dead"))

    def strike(process: Process) -> None:
        stage.scheduler.freeze(frozen, 60_000)
        stage.scheduler.kill(dead)
        before_ms = stage.scheduler.ms
        stage.scheduler.sleep(50_000)
        assert stage.scheduler.ms - before_ms == 50_000
        stage.told.append("slept")

    stage.enter("fate", strike)
    stage.scheduler.run()
    assert stage.told.index("slept") < stage.told.index("frozen19")
    assert "dead19" not in stage.told


def test_locks_conditions_workers_and_tickers() -> None:
    stage = Stage(3)

    def play(process: Process) -> None:
        runtime = stage.scheduler.runtime(process)
        lock = runtime.lock()
        some, done = runtime.condition(lock), 0

        def work() -> None:
            nonlocal done
            with lock:
                before = done
                stage.scheduler.step("in the lock")
                done = before + 1
                some.notify_all()

        workers = runtime.workers(3)
        ticker = runtime.ticker(1000, lambda: stage.told.append("tick"))
        for _ in range(9):
            workers.submit(work)
        with lock:
            while done < 9:
                assert some.wait(60)
            assert not some.wait(5.5)
        assert workers.map(str, [1, 2]) == ["1", "2"]
        workers.close()
        ticker.close()
        assert runtime.now_ms() - int(stage.scheduler.ms) == process.skew_ms

    stage.enter("one", play, skew_ms=-500)
    stage.scheduler.run()
    assert len(stage.told) == 5


def test_failures_of_actors_are_told() -> None:
    stage = Stage()

    def fail(process: Process) -> None:
        stage.count(process)
        raise ZeroDivisionError

    stage.enter("one", fail)
    stage.enter("other", lambda process: stage.scheduler.sleep(10**9))
    with pytest.raises(ZeroDivisionError):
        stage.scheduler.run()


def test_nobody_who_can_go_on_is_an_error() -> None:
    stage = Stage()

    def wait(process: Process) -> None:
        stage.scheduler.wait_for("Godot")

    stage.enter("one", wait)
    with pytest.raises(StuckError, match="one for 'Godot'"):
        stage.scheduler.run()
    stage = Stage()
    stage.scheduler.steps_max = 10
    stage.enter("one", stage.count)
    with pytest.raises(StuckError, match="no end after 11 steps"):
        stage.scheduler.run()
