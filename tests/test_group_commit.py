import asyncio
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
from holdfast.errors import HoldfastError, NotOwnerError, PoisonedError
from holdfast.group_commit import Alone, GroupCommit
from holdfast.runtime import Runtime
from holdfast.testing.log_contract import run_all

MODULE = group_commit.__file__
LINES = Path(MODULE).read_text().splitlines()
# Since 3.12 an error in a trace function may come where no handler is, and where no signal is ever
# handled; at the beginning of a call both are right.
EVENT, EVENTS_MIN = ("line", 8) if sys.version_info < (3, 12) else ("call", 1)


def test_one_commit_serves_all_waiting_batches() -> None:
    groups: list[list[int]] = []
    started, go = threading.Event(), threading.Event()

    def commit(items: Sequence[int]) -> None:
        groups.append(list(items))
        started.set()
        go.wait(10)

    commits = GroupCommit(commit, Runtime())
    first = threading.Thread(target=commits.commit, args=(0,))
    first.start()
    started.wait(10)
    rest = [threading.Thread(target=commits.commit, args=(i,)) for i in range(1, 6)]
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


def test_every_batch_of_a_failed_group_raises() -> None:
    def commit(items: Sequence[int]) -> None:
        raise OSError(5, "Input/output error")

    commits = GroupCommit(commit, Runtime())

    def submit() -> None:
        with pytest.raises(OSError, match="Input/output"):
            commits.commit(1)

    run_all([submit] * 8)


def test_an_interrupted_leader_leaves_no_thread_waiting() -> None:
    entered, go = threading.Event(), threading.Event()

    def commit(items: Sequence[int]) -> None:
        entered.set()
        go.wait(10)
        if 1 in items:
            raise KeyboardInterrupt

    commits = GroupCommit(commit, Runtime())
    outcomes: list[type[BaseException] | None] = [None] * 4

    def submit(item: int) -> None:
        try:
            commits.commit(item)
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
    commits.commit(9)


def test_no_commit_runs_beside_an_exclusive_step() -> None:
    running: list[str] = []

    def commit(items: Sequence[int]) -> None:
        assert not running
        running.append("commit")
        time.sleep(0.0001)
        running.pop()

    commits = GroupCommit(commit, Runtime())

    def step() -> None:
        assert not running
        running.append("step")
        time.sleep(0.0001)
        running.pop()

    def both() -> None:
        for _ in range(50):
            commits.commit(1)
            commits.exclusively(step)

    run_all([both] * 4)


def test_a_call_from_inside_a_call_is_refused() -> None:
    """As a signal handler makes it that has interrupted a write of the same thread."""
    refused: list[str] = []

    def commit(items: Sequence[int]) -> None:
        for call in (lambda: commits.commit(2), lambda: commits.exclusively(int)):
            try:
                call()
            except HoldfastError as error:
                refused.append(str(error))

    commits = GroupCommit(commit, Runtime())
    commits.commit(1)
    assert len(refused) == 2
    assert all("signal handler" in why for why in refused)
    alone = Alone(Runtime())
    with pytest.raises(HoldfastError, match="signal handler"):
        alone.run(lambda: alone.run(int))
    assert alone.run(lambda: 7) == 7


def interrupted_at(number: int, step: Callable[[], object]) -> bool:
    """Run `step` with a KeyboardInterrupt before line, or call, `number` of the module under test.

    Not where no signal is handled: at `try`, before a line that only leaves a set, and where a
    `with` releases its lock, which is a visit of its line for the second time.
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
    other = threading.Thread(target=commits.commit, args=(100,), daemon=True)
    other.start()
    other.join(30)
    assert not other.is_alive(), "it waits for a leader that is gone"
    commits.commit(101)
    assert {100, 101} <= set(done)


def test_ctrl_c_at_every_line_of_a_lone_commit() -> None:
    for number in count():
        done: list[int] = []
        commits: GroupCommit[int] = GroupCommit(done.extend, Runtime())
        fired = interrupted_at(number, lambda commits=commits: commits.commit(1))  # type: ignore[misc]
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

        commits = GroupCommit(commit, Runtime())

        def submit(item: int, commits: GroupCommit[int] = commits) -> None:
            try:
                commits.commit(item)
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
            commits.commit(1)

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

    commits = GroupCommit(commit, Runtime())
    thread = threading.Thread(target=commits.commit, args=(0,), daemon=True)
    thread.start()
    entered.wait(10)
    commits.disown()  # as in a child: the thread above is not there
    commits.commit(1)
    assert commits.exclusively(lambda: 7) == 7
    go.set()
    thread.join(10)


def test_what_is_submitted_is_committed_though_no_thread_waits() -> None:
    done: list[int] = []
    commits = GroupCommit(done.extend, Runtime())
    tickets = [commits.submit(item, int) for item in range(100)]
    commits.close()
    assert done == list(range(100))
    assert all(ticket.done() for ticket in tickets)
    assert [ticket.result() for ticket in tickets] == done


def test_items_submitted_during_a_commit_are_one_group() -> None:
    groups: list[list[int]] = []
    started, go = threading.Event(), threading.Event()

    def commit(items: Sequence[int]) -> None:
        groups.append(list(items))
        started.set()
        go.wait(10)

    commits = GroupCommit(commit, Runtime())
    first = commits.submit(0, int)
    started.wait(10)
    rest = [commits.submit(item, int) for item in range(1, 6)]
    with pytest.raises(TimeoutError, match="its commit continues"):
        rest[0].result(timeout=0.01)
    assert not first.done()
    go.set()
    assert [ticket.result(timeout=10) for ticket in (first, *rest)] == [0, 1, 2, 3, 4, 5]
    assert groups == [[0], [1, 2, 3, 4, 5]]
    commits.close()


def test_threads_and_submitted_items_keep_their_order() -> None:
    done: list[tuple[int, int]] = []

    def commit(items: Sequence[tuple[int, int]]) -> None:
        done.extend(items)
        time.sleep(0.0001)

    commits = GroupCommit(commit, Runtime())

    def both(who: int) -> None:
        for number in range(0, 200, 2):
            commits.submit((who, number), len)
            commits.commit((who, number + 1))

    run_all([lambda who=who: both(who) for who in range(4)])  # type: ignore[misc]
    commits.close()
    for who in range(4):
        assert [number for one, number in done if one == who] == list(range(200))


def test_a_failed_commit_reaches_all_that_were_submitted() -> None:
    def commit(items: Sequence[int]) -> None:
        raise OSError(5, "Input/output error")

    commits = GroupCommit(commit, Runtime())
    tickets = [commits.submit(item, int) for item in range(3)]
    for ticket in tickets:
        with pytest.raises(OSError, match="Input/output"):
            ticket.result(timeout=10)
    commits.close()


def test_tasks_of_asyncio_share_commits() -> None:
    groups: list[int] = []

    def commit(items: Sequence[int]) -> None:
        groups.append(len(items))
        time.sleep(0.002)

    commits = GroupCommit(commit, Runtime())

    async def one(item: int) -> int:
        return await commits.submit(item, int)

    async def all_of_them() -> list[int]:
        return await asyncio.gather(*(one(item) for item in range(64)))

    assert asyncio.run(all_of_them()) == list(range(64))
    assert sum(groups) == 64
    assert len(groups) <= 8
    commits.close()


def test_a_cancelled_task_does_not_take_its_item_back() -> None:
    done: list[int] = []
    go = threading.Event()

    def commit(items: Sequence[int]) -> None:
        go.wait(10)
        done.extend(items)

    commits = GroupCommit(commit, Runtime())

    async def one() -> int:
        return await commits.submit(1, int)

    async def cancel_it() -> None:
        task = asyncio.create_task(one())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_it())
    go.set()
    commits.close()
    assert done == [1]


def test_a_ticket_is_refused_in_a_forked_child() -> None:
    entered, go = threading.Event(), threading.Event()

    def commit(items: Sequence[int]) -> None:
        entered.set()
        go.wait(10)

    commits = GroupCommit(commit, Runtime())
    being_written = commits.submit(1, int)
    entered.wait(10)
    waiting = commits.submit(2, int)
    commits.disown()  # as in a child: the worker is not there
    for ticket in (being_written, waiting):
        with pytest.raises(NotOwnerError, match="fork"):
            ticket.result(timeout=10)
    go.set()


def test_a_signal_handler_cannot_wait_for_what_it_has_interrupted() -> None:
    refused: list[str] = []

    def commit(items: Sequence[int]) -> None:
        for call in (lambda: commits.submit(2, int), commits.close):
            try:
                call()
            except HoldfastError as error:
                refused.append(str(error))

    commits = GroupCommit(commit, Runtime())
    commits.commit(1)
    assert len(refused) == 2
