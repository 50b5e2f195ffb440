from dataclasses import replace
from pathlib import Path

import pytest

import holdfast
from holdfast.demo import bars, ticks
from holdfast.demo.history import Moment
from holdfast.demo.results import (
    Batch,
    Fencing,
    Rollup,
    Run,
    Scrub,
    Stores,
    Streaming,
    Upkeep,
    WorkerKill,
)
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
        bars=len(made),
        bars_differing=0,
        prices=2346,
        prices_differing=0,
    )
    stores = Stores(
        streaming,
        Upkeep(9000, 2346, 2, 1.5, 31, 8, 23, 0.1, 0, 7, 0),
        Rollup({"1H": 42, "1D": 6}, 0, 1.25),
        Fencing(2, 3, 25, 0, 0, "writer 2 was fenced", (900,) * 25, 0.3, 1.0, 2.1, 2.2, 2.3),
        tuple(
            Moment(
                n,
                1000 * n,
                1 + (n > 8),
                n // 7,
                n % 4,
                1,
                n % 4 + 1,
                (n - 1,) if n % 3 else (),
                0,
                n,
            )
            for n in range(1, 13)
        ),
    )
    checked = verify_log(str(path))
    return Run(
        seed=5,
        seconds=2.4,
        ticks=COUNT,
        ledger=tuple(ledger),
        acks=tuple(Ack(0.004 * n, 10 * n, 200 + n % 300) for n in range(1, 601)),
        arrived=((0.0, 0), (2.4, COUNT)),
        log=inspect_log(str(path)),
        scrubs=(Scrub("log", f"{checked.entries:,} entries", checked.verdict, 0.01),),
        stores=stores,
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
    return replace(run, stores=None, missing="Spark is not installed. Run: pip <it>")
