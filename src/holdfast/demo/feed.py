"""A process that writes the market to a log until it is killed.  `python -m holdfast.demo.feed`

The day is played at a speed that makes it last some seconds, by a clock that all the lives of the
feed share.  Each append takes what has arrived since the last: a slow disk gets larger batches, and
a feed that was dead catches up.  What it says is what holdfast.testing.writer says, and how long
each append took:

    begin 41 43          entries 41 to 43 are being appended
    ack 43 612           ... and are durable, after 612 microseconds
    over                 the day is, and all of it is acknowledged; said again and again
"""

import argparse
import time
from collections.abc import Callable

import numpy as np

from holdfast.demo import ticks
from holdfast.disk import OsDisk
from holdfast.logs.log import Log
from holdfast.logs.open import FORMATS
from holdfast.testing.writer import say

BATCH_MAX = 2048
SEGMENT_SIZE_MAX = 2**20
_IDLE_SECONDS = 0.0005
_OVER_SECONDS = 0.02


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--format", default="shanghai")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="how long the day lasts")
    parser.add_argument("--opened-ns", type=int, required=True, help="by the monotonic clock")
    options = parser.parse_args()
    disk = OsDisk(options.path)
    log = FORMATS[options.format].open(disk, segment_size_max=SEGMENT_SIZE_MAX)
    market = ticks.day(options.seed, options.count)

    opened_ns: int = options.opened_ns

    def elapsed() -> float:
        return (time.monotonic_ns() - opened_ns) / 1e9

    feed_for_ever(log, market, options.seconds, elapsed)


def feed_for_ever(
    log: Log, market: ticks.Ticks, seconds: float, elapsed: Callable[[], float]
) -> None:
    """Entry i is tick i - 1."""
    arrivals = ticks.arrivals(market, seconds)
    data, size = memoryview(market.tobytes()), ticks.TICK.itemsize
    while True:
        start = log.last_index
        stop = min(int(np.searchsorted(arrivals, elapsed(), "right")), start + BATCH_MAX)
        if stop > start:
            say(f"begin {start + 1} {stop}")
            began_ns = time.perf_counter_ns()
            log.append([data[at * size : (at + 1) * size] for at in range(start, stop)])
            say(f"ack {stop} {(time.perf_counter_ns() - began_ns) // 1000}")
        elif start == len(market):
            say("over")  # and when nobody listens any more, the pipe breaks and ends us
            time.sleep(_OVER_SECONDS)
        else:
            time.sleep(_IDLE_SECONDS)


if __name__ == "__main__":
    main()
