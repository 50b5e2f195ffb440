from dataclasses import replace

import pytest

from holdfast.demo import market
from holdfast.demo.acts import Act, Promise, Run, judge_kills
from holdfast.demo.ledger import Line

COUNT = 6000


@pytest.fixture
def run() -> Run:
    """Return a run with real bars and invented times."""
    ledger = [Line(n, 0.4 * n, 1000 * n, 7, 1000 * n, 0, 0) for n in range(1, 7)]
    latencies_us = [200 + n % 300 for n in range(1, 601)]
    streaming = {"rows": COUNT, "lost": 0, "doubled": 0, "killed_worker": 4711}
    landed = Promise(True, f"{COUNT:,} ticks landed")
    return Run(
        seed=5,
        seconds=2.4,
        ledger=ledger,
        acts=[
            Act("killing", "The writer is killed", *judge_kills(ledger, latencies_us)),
            Act("streaming", "Spark streams", streaming, [landed]),
        ],
        missing=None,
        bars=market.make_bars(market.day(5, COUNT), 5),
        total_seconds=9.0,
        facts={"Python": "3.11 <&>"},
    )


@pytest.fixture
def without_spark(run: Run) -> Run:
    missing = "Spark is not installed. Run: pip <it>"
    return replace(run, acts=run.acts[:1], missing=missing)
