import threading
import time
from collections.abc import Sequence

import pytest

from holdfast.errors import PoisonedError
from holdfast.runtime import GroupCommit, new_id, now_ms
from holdfast.testing.log_contract import run_all


def test_one_commit_serves_all_who_came_meanwhile() -> None:
    groups: list[list[int]] = []
    started, go = threading.Event(), threading.Event()

    def commit(items: Sequence[int]) -> None:
        groups.append(list(items))
        started.set()
        go.wait(10)

    commits = GroupCommit(commit)
    first = threading.Thread(target=commits.submit, args=(0,))
    first.start()
    started.wait(10)
    rest = [threading.Thread(target=commits.submit, args=(i,)) for i in range(1, 6)]
    for thread in rest:
        thread.start()
    while len(commits._waiting) < 5:
        time.sleep(0.001)
    go.set()
    for thread in (first, *rest):
        thread.join(10)
    assert groups[0] == [0]
    assert len(groups) == 2
    assert sorted(groups[1]) == [1, 2, 3, 4, 5]


def test_everyone_in_a_failed_group_hears_of_it() -> None:
    def commit(items: Sequence[int]) -> None:
        raise OSError(5, "Input/output error")

    commits = GroupCommit(commit)

    def submit() -> None:
        with pytest.raises(OSError, match="Input/output"):
            commits.submit(1)

    run_all([submit] * 8)


def test_an_interrupted_leader_leaves_nobody_waiting() -> None:
    entered, go = threading.Event(), threading.Event()

    def commit(items: Sequence[int]) -> None:
        entered.set()
        go.wait(10)
        if 1 in items:
            raise KeyboardInterrupt

    commits = GroupCommit(commit)
    outcomes: list[type[BaseException] | None] = [None] * 4

    def submit(item: int) -> None:
        try:
            commits.submit(item)
        except BaseException as error:
            outcomes[item] = type(error)

    threads = [threading.Thread(target=submit, args=(i,)) for i in range(4)]
    threads[0].start()
    entered.wait(10)
    for i, thread in enumerate(threads[1:], 1):  # one by one: number 1 will lead the next group
        thread.start()
        while len(commits._waiting) < i:
            time.sleep(0.001)
    go.set()
    for thread in threads:
        thread.join(10)
    assert outcomes == [None, KeyboardInterrupt, PoisonedError, PoisonedError]
    commits.submit(9)


def test_no_commit_runs_beside_an_exclusive_step() -> None:
    running: list[str] = []

    def commit(items: Sequence[int]) -> None:
        assert not running
        running.append("commit")
        time.sleep(0.0001)
        running.pop()

    commits = GroupCommit(commit)

    def step() -> None:
        assert not running
        running.append("step")
        time.sleep(0.0001)
        running.pop()

    def both() -> None:
        for _ in range(50):
            commits.submit(1)
            commits.exclusively(step)

    run_all([both] * 4)


def test_clock_and_ids() -> None:
    assert abs(now_ms() - time.time_ns() // 10**6) < 1000
    assert new_id() != new_id()
