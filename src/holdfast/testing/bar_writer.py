"""A process that writes bars until it is killed.

    python -m holdfast.testing.bar_writer PATH --life 3

It prints what it is about to write and, once that is durable, what is acknowledged, as
holdfast.testing.writer does:

    begin 41 43          rounds 41 to 43 are being written, as one group
    ack 43               ... and are durable

A round is a bar for each of some symbols, and a tick: ten rounds add to one interval.
"""

import argparse
from random import Random

import numpy as np

from holdfast.bars import BarStore
from holdfast.doors import open_bars
from holdfast.testing.writer import say

SYMBOLS = ("A", "B", "C")
BARS, TICKS = "BAR", "TICK"
_START_S, _MINUTE_S = 1_609_459_200, 60  # 2021


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--life", type=int, default=0, help="varies group sizes between restarts")
    options = parser.parse_args()
    # Small logs and many writes, so that it is killed in write-backs and rotations too.
    with open_bars(options.path, create=True, flush_ms=10, wal_size_max=1 << 14) as store:
        write_without_end(store, Random(options.life))


def write_without_end(store: BarStore, random: Random) -> None:
    """Write groups of all sizes, small ones more often, until killed."""
    last = len(store.query("A", "1Min", TICKS)) if store.symbols("1Min", TICKS) else 0
    while True:
        first, last = last + 1, last + 1 + int(random.expovariate(1 / 4))
        say(f"begin {first} {last}")
        write_rounds(store, first, last)
        say(f"ack {last}")


def write_rounds(store: BarStore, first: int, last: int) -> None:
    numbers = np.arange(first, last + 1)
    group = store.group()
    for symbol in SYMBOLS:
        bars = {"Epoch": _START_S + _MINUTE_S * numbers, "Close": numbers}
        group.write(bars, "1Min", BARS, symbol=symbol)
    ticks = {"Epoch": _START_S + _MINUTE_S * (numbers // 10), "Price": numbers}
    group.write(ticks, "1Min", TICKS, symbol="A", is_variable=True)
    group.commit()


if __name__ == "__main__":
    main()
