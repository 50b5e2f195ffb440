from dataclasses import replace
from pathlib import Path

import pytest

import holdfast
from holdfast.demo import bars, ticks
from holdfast.demo.results import Batch, Run, Streaming, WorkerKill
from holdfast.demo.rounds import Ack, Reckoning
from holdfast.reports import inspect_log, verify_log

COUNT = 6000


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run as it might have been: its log is real, its times are made up."""
    market = ticks.day(5, COUNT)
    path = tmp_path / "log"
    with holdfast.create_log(path, segment_size_max=60_000) as log:
        for at in range(0, COUNT, 500):
            log.append([market[i : i + 1].tobytes() for i in range(at, at + 500)])
    ledger = [
        Reckoning(number, 0.4 * number, 1000 * number, 7, 1000 * number, 0, 0, ())
        for number in range(1, 7)
    ]
    made = bars.make_bars(market)
    streaming = Streaming(
        seconds=4.0,
        batches=tuple(Batch(n, 1500, 1.0 + n, 0.9) for n in range(4)),
        worker_kills=(WorkerKill(4711, 2, 2.5),),
        failed_tasks=1,
        rows=COUNT,
        distinct=COUNT,
        bars=len(made),
        bars_expected=len(made),
        bars_differing=0,
    )
    return Run(
        seed=5,
        seconds=2.4,
        ticks=COUNT,
        ledger=tuple(ledger),
        acks=tuple(Ack(0.004 * n, 10 * n, 200 + n % 300) for n in range(1, 601)),
        arrived=((0.0, 0), (2.4, COUNT)),
        log=inspect_log(str(path)),
        scrub=verify_log(str(path)),
        scrub_seconds=0.01,
        streaming=streaming,
        missing=None,
        bars=made,
        total_seconds=9.0,
        facts={"Python": "3.11 <&>"},
    )


@pytest.fixture
def broken(run: Run) -> Run:
    """The same, but the last kill cost something."""
    worse = replace(run.ledger[-1], lost=13)
    return replace(run, ledger=(*run.ledger[:-1], worse))


@pytest.fixture
def without_spark(run: Run) -> Run:
    return replace(run, streaming=None, missing="Spark is not installed. Run: pip <it>")
