import os
import subprocess
import threading
import time

import pytest

from holdfast import runtime
from holdfast.runtime import (
    Numbers,
    Runtime,
    from_rfc3339,
    hostname,
    new_id,
    now_ms,
    process_id,
    to_rfc3339,
)
from holdfast.testing.log_contract import run_all


def test_clock_and_ids() -> None:
    assert abs(now_ms() - time.time_ns() // 10**6) < 1000
    assert new_id() != new_id()


@pytest.mark.parametrize(
    ("unix_ms", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_700_000_000_120, "2023-11-14T22:13:20.12Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_times_as_text(unix_ms: int, text: str) -> None:
    assert to_rfc3339(unix_ms) == text
    assert from_rfc3339(text) == unix_ms


def test_times_of_others_as_text() -> None:
    assert from_rfc3339("2026-11-15T18:37:33.28967027Z") == 1_794_767_853_289
    assert from_rfc3339("1970-01-01T05:30:00.5+05:30") == 500


def test_a_process_is_known_by_its_number_and_its_start() -> None:
    before = runtime.now_ns()
    with subprocess.Popen(["sleep", "60"]) as process:
        started = runtime.process_started_ns(process.pid)
        assert started is not None
        assert abs(started - before) < 2 * 10**9
        assert runtime.was_running(process.pid, runtime.now_ns() + 10**9)
        assert not runtime.was_running(process.pid, before - 3600 * 10**9)
        process.kill()
        while runtime.process_started_ns(process.pid) is not None:
            pass  # a zombie does not count
    assert runtime.process_started_ns(0) is None
    assert runtime.open_files_max() > 10


def test_workers_answer_in_order_and_raise_the_first_error() -> None:
    workers = Runtime().workers(3)
    workers.close()  # nothing was asked of it
    workers = Runtime().workers(3)
    assert workers.map(lambda n: n * n, range(10)) == [n * n for n in range(10)]

    def fail_at(n: int) -> int:
        if n > 4:
            raise OSError(n, "no")
        return n

    with pytest.raises(OSError, match="5"):
        workers.map(fail_at, range(10))
    done: list[int] = []
    for n in range(5):
        workers.submit(lambda n=n: done.append(n))  # type: ignore[misc]
    workers.close()
    assert sorted(done) == list(range(5))


def test_a_ticker_ticks_until_it_is_closed() -> None:
    ticked = threading.Event()
    calls: list[int] = []

    def tick() -> None:
        calls.append(1)
        if len(calls) == 3:
            ticked.set()

    ticker = Runtime().ticker(1, tick)
    assert ticked.wait(10)
    ticker.close()
    count = len(calls)
    time.sleep(0.02)
    assert len(calls) == count


def test_a_ticker_may_be_closed_by_its_own_step() -> None:
    closed = threading.Event()
    made = threading.Event()

    def tick() -> None:
        assert made.wait(10)
        ticker.close()
        closed.set()

    ticker = Runtime().ticker(1, tick)
    made.set()
    assert closed.wait(10)


def test_clocks_advance_and_random_numbers_are_in_range() -> None:
    runtime = Runtime()
    before, wall = runtime.monotonic_ms(), runtime.now_ms()
    runtime.sleep_ms(3)
    assert runtime.monotonic_ms() - before >= 2
    assert runtime.now_ms() >= wall
    assert all(0 <= runtime.jitter(5) <= 5 for _ in range(100))


def test_no_two_threads_get_the_same_number() -> None:
    numbers = Numbers(7)
    taken: list[int] = []

    def take() -> None:
        for _ in range(200):
            first = numbers.take(3)
            taken.extend(range(first, first + 3))

    run_all([take] * 4)
    assert sorted(taken) == list(range(7, 7 + 4 * 200 * 3))


def test_the_process_and_the_host_are_known() -> None:
    assert process_id() == os.getpid()
    assert hostname()
