import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from holdfast import group_commit
from holdfast.errors import HoldfastError, PoisonedError
from holdfast.group_commit import Alone, GroupCommit
from holdfast.testing.log_contract import run_all

MODULE = group_commit.__file__
LINES = Path(MODULE).read_text().splitlines()
# Since 3.12 an error in a trace function may come where no handler is, and where no signal is ever
# handled; at the beginning of a call both are right.
EVENT, EVENTS_MIN = ("line", 8) if sys.version_info < (3, 12) else ("call", 1)


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


def test_a_call_from_inside_a_call_is_refused() -> None:
    """As a signal handler makes it that has interrupted a write of the same thread."""
    refused: list[str] = []

    def commit(items: Sequence[int]) -> None:
        for call in (lambda: commits.submit(2), lambda: commits.exclusively(int)):
            try:
                call()
            except HoldfastError as error:
                refused.append(str(error))

    commits = GroupCommit(commit)
    commits.submit(1)
    assert len(refused) == 2
    assert all("signal handler" in why for why in refused)
    alone = Alone()
    with pytest.raises(HoldfastError, match="signal handler"):
        alone.run(lambda: alone.run(int))
    assert alone.run(lambda: 7) == 7


def interrupted_at(number: int, step: Callable[[], object]) -> bool:
    """Run `step` with a KeyboardInterrupt before line, or call, `number` of the module under test.

    Not where no signal is handled: at `try`, before a line that only leaves a set, and where a
    `with` lets go of its lock, which is a visit of its line for the second time.
    """
    seen = count()
    entered: set[tuple[int, int]] = set()
    fired = False

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal fired
        if frame.f_code.co_filename != MODULE:
            return None
        text, place = LINES[frame.f_lineno - 1], (id(frame), frame.f_lineno)
        is_atomic = text.endswith(("try:", "discard(me)")) or ("with " in text and place in entered)
        if event == "line":
            entered.add(place)
        if event == EVENT and not is_atomic and not fired and next(seen) == number:
            fired = True
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        step()
    except (KeyboardInterrupt, PoisonedError):
        pass
    finally:
        sys.settrace(before)
    return fired


def must_go_on(commits: GroupCommit[int], done: list[int]) -> None:
    """Another thread, and this one, can still commit."""
    other = threading.Thread(target=commits.submit, args=(100,), daemon=True)
    other.start()
    other.join(30)
    assert not other.is_alive(), "it waits for a leader that is gone"
    commits.submit(101)
    assert {100, 101} <= set(done)


def test_ctrl_c_at_every_line_of_a_lone_commit() -> None:
    for number in count():
        done: list[int] = []
        commits: GroupCommit[int] = GroupCommit(done.extend)
        fired = interrupted_at(number, lambda commits=commits: commits.submit(1))  # type: ignore[misc]
        must_go_on(commits, done)
        if not fired:
            break
    assert number > EVENTS_MIN
    assert 1 in done


@pytest.mark.parametrize("followers", [0, 2])
def test_ctrl_c_at_every_line_of_a_thread_that_waits_or_leads(followers: int) -> None:
    number = 0
    for number in count():
        done: list[int] = []
        entered, go = threading.Event(), threading.Event()

        def commit(items: Sequence[int], done: list[int] = done) -> None:
            entered.set()  # noqa: B023
            go.wait(10)  # noqa: B023
            done.extend(items)

        commits = GroupCommit(commit)

        def submit(item: int, commits: GroupCommit[int] = commits) -> None:
            try:
                commits.submit(item)
            except PoisonedError:
                done.append(-item)  # noqa: B023

        first = threading.Thread(target=submit, args=(0,), daemon=True)
        first.start()
        entered.wait(10)
        threading.Timer(0.02, go.set).start()
        others = [
            threading.Thread(target=submit, args=(i,), daemon=True) for i in range(2, 2 + followers)
        ]

        def lead(
            others: list[threading.Thread] = others, commits: GroupCommit[int] = commits
        ) -> None:
            for other in others:
                other.start()
            commits.submit(1)

        fired = interrupted_at(number, lead)
        go.set()
        for thread in (first, *others):
            thread.join(30)
            assert not thread.is_alive(), f"line {number}: a follower is lost"
        assert len(done) >= 1 + followers, "each was served or refused"
        must_go_on(commits, done)
        if not fired:
            break
    assert number > EVENTS_MIN


def test_a_forked_child_does_not_wait_for_threads_that_it_does_not_have() -> None:
    entered, go = threading.Event(), threading.Event()

    def commit(items: Sequence[int]) -> None:
        if 0 in items:
            entered.set()
            go.wait(10)

    commits = GroupCommit(commit)
    thread = threading.Thread(target=commits.submit, args=(0,), daemon=True)
    thread.start()
    entered.wait(10)
    commits.disown()  # as in a child: the thread above is not there
    commits.submit(1)
    assert commits.exclusively(lambda: 7) == 7
    go.set()
    thread.join(10)
