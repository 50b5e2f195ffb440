"""A process that writes to a kv store until it is killed or fenced.

    python -m holdfast.testing.kv_writer URL --life 3

It prints what it is about to write and, once that is durable, what is acknowledged.  Each line is
written by one system call, so after a kill -9 the reader of the pipe has every promise.

    open 3 40            epoch 3, and the store holds the rounds up to 40
    begin 41             round 41 is being written: its own key, and the counter
    ack 41               ... and is durable
    fenced               another writer has taken over; exit code 4
"""

import argparse
import sys
from random import Random

from holdfast.doors import open_kv
from holdfast.errors import FencedError
from holdfast.kv import Kv
from holdfast.testing.writer import say

COUNTER = b"counter"
FENCED = 4


def round_key(number: int) -> bytes:
    return b"round/%08d" % number


def round_value(number: int) -> bytes:
    """Return the value of a round, which is always the same."""
    random = Random(number)
    return random.randbytes(int(random.expovariate(1 / 200)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--life", type=int, default=0, help="varies group sizes between restarts")
    parser.add_argument("--parallel", type=int, default=1)
    options = parser.parse_args()
    try:
        with open_kv(
            options.url, create=True, parallel_writes_max=options.parallel, flush_ms=5
        ) as db:
            write_until_killed(db, Random(options.life))
    except FencedError:
        say("fenced")
        sys.exit(FENCED)


def write_until_killed(db: Kv, random: Random) -> None:
    """Write rounds in groups of all sizes; wait for the last one of each group."""
    number = int(db.get(COUNTER) or 0)
    say(f"open {db.epoch} {number}")
    while True:
        for _ in range(1 + int(random.expovariate(1 / 4))):
            number += 1
            say(f"begin {number}")
            rows = {round_key(number): round_value(number), COUNTER: b"%d" % number}
            handle = db.write(rows)
        handle.result()
        say(f"ack {number}")


if __name__ == "__main__":
    main()
