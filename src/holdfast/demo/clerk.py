"""A process that writes prices to a kv store until it is fenced.  `python -m holdfast.demo.clerk`

It says what it has done, line by line:

    open 1               it is the writer, of this epoch
    ack 7 2101           its seventh price is durable, after so many microseconds
    fenced WHY           another writer has taken over; nothing more is written
"""

import argparse
import time

from holdfast.errors import FencedError
from holdfast.kv import Db
from holdfast.testing.writer import say

_PAUSE_SECONDS = 0.02


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    path = parser.parse_args().path
    try:
        with Db.open(path, maintain=False, flush_ms=None, watch_ms=None) as db:
            write_for_ever(db)
    except FencedError as error:
        say(f"fenced {error}")


def write_for_ever(db: Db) -> None:
    say(f"open {db.epoch}")
    number = 0
    while True:
        number += 1
        began_ns = time.perf_counter_ns()
        db.put(clerk_key(db.epoch, number), b"%d" % number).result()
        say(f"ack {number} {(time.perf_counter_ns() - began_ns) // 1000}")
        time.sleep(_PAUSE_SECONDS)


def clerk_key(epoch: int, number: int) -> bytes:
    return b"clerk/%d/%06d" % (epoch, number)


if __name__ == "__main__":
    main()
