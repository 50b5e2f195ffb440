"""The baton, and what is handed to a store in place of threads and clocks."""

from collections.abc import Callable
from dataclasses import fields
from random import Random

import pytest

from holdfast.runtime import Runtime
from holdfast.testing.actors import Process, Scheduler, StuckError


class Stage:
    """A scheduler, and what its actors have done."""

    def __init__(self, seed: int = 0) -> None:
        self.scheduler = Scheduler(Random(seed))
        self.done: list[str] = []

    def enter(self, name: str, play: Callable[[Process], None], skew_ms: int = 0) -> Process:
        process = Process(name, skew_ms)
        self.scheduler.spawn(process, "", lambda: play(process), main=True)
        return process

    def count(self, process: Process) -> None:
        for number in range(20):
            self.scheduler.step("counts")
            self.done.append(f"{process.name}{number}")


def test_a_seed_decides_which_actor_runs() -> None:
    def done(seed: int) -> tuple[list[str], str]:
        stage = Stage(seed)
        for name in "ab":
            stage.enter(name, stage.count)
        stage.scheduler.run()
        return stage.done, stage.scheduler.digest

    assert done(1) == done(1) != done(2)
    assert sorted(done(1)[0]) == sorted(done(2)[0])


def test_frozen_processes_continue_later_and_dead_ones_do_not() -> None:
    stage = Stage()
    frozen, dead = (stage.enter(name, stage.count) for name in ("frozen", "dead"))

    def strike(process: Process) -> None:
        stage.scheduler.freeze(frozen, 60_000)
        stage.scheduler.kill(dead)
        before_ms = stage.scheduler.ms
        stage.scheduler.sleep(50_000)
        assert stage.scheduler.ms - before_ms == 50_000
        stage.done.append("slept")

    stage.enter("fate", strike)
    stage.scheduler.run()
    assert stage.done.index("slept") < stage.done.index("frozen19")
    assert "dead19" not in stage.done


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
        ticker = runtime.ticker(1000, lambda: stage.done.append("tick"))
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
    assert len(stage.done) == 5


def test_failures_of_actors_are_reported() -> None:
    stage = Stage()

    def fail(process: Process) -> None:
        stage.count(process)
        raise ZeroDivisionError

    stage.enter("one", fail)
    stage.enter("other", lambda process: stage.scheduler.sleep(10**9))
    with pytest.raises(ZeroDivisionError):
        stage.scheduler.run()


def test_a_deadlock_of_all_actors_is_an_error() -> None:
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


def test_a_runtime_replaces_every_field() -> None:
    runtime = Scheduler(Random(0)).runtime(Process("a"))
    real = Runtime()
    for field in fields(Runtime):
        assert getattr(runtime, field.name) is not getattr(real, field.name), field.name


def test_a_reentrant_lock_admits_its_owner_again_and_no_other_thread() -> None:
    stage = Stage()
    inside: list[int] = []

    def enter(process: Process) -> None:
        runtime = stage.scheduler.runtime(process)
        for _ in range(20):
            with lock, lock:
                inside.append(runtime.thread_id())
                stage.scheduler.step("inside")
                inside.append(runtime.thread_id())

    process = Process("a")
    lock = stage.scheduler.runtime(process).reentrant_lock()
    for name in "abc":
        stage.scheduler.spawn(process, name, lambda: enter(process), main=False)
    stage.scheduler.run()
    assert inside[::2] == inside[1::2]
    assert len(set(inside)) == 3


def test_processes_have_ids_of_their_own_and_run_until_they_end() -> None:
    stage = Stage()
    found: list[bool] = []

    def live(process: Process) -> None:
        stage.scheduler.sleep(100)

    def watch(process: Process) -> None:
        runtime = stage.scheduler.runtime(process)
        stage.scheduler.sleep(10)
        now_ns = runtime.now_ns()
        assert runtime.process_id() != other.id
        found.append(runtime.was_running(other.id, now_ns))
        found.append(runtime.was_running(other.id, now_ns - 10**12))
        stage.scheduler.sleep(1000)
        found.append(runtime.was_running(other.id, now_ns))
        found.append(runtime.was_running(99, now_ns))

    other = stage.enter("other", live)
    stage.enter("watcher", watch)
    stage.scheduler.run()
    assert found == [True, False, False, False]
