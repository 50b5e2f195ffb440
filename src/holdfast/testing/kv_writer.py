"""A process that writes to a kv store until it is killed or fenced.

    python -m holdfast.testing.kv_writer URL --life 3

It says on its standard output what it is about to write and, once that is durable, what is
acknowledged: one line each, written whole by one system call, so that what the reader of the pipe
finds after a kill -9 is all that this process has promised.

    open 3 40            epoch 3, and the store holds the rounds up to 40
    begin 41             round 41 is being written: its own key, and the counter
    ack 41               ... and is durable
    fenced               another writer has taken over; exit code 4
"""

import argparse
import sys
from random import Random

from holdfast.errors import FencedError
from holdfast.kv import Db
from holdfast.testing.writer import say

COUNTER = b"counter"
FENCED = 4


def round_key(number: int) -> bytes:
    return b"round/%08d" % number


def round_value(number: int) -> bytes:
    """The value of a round is always the same, so that nothing else need be remembered."""
    random = Random(number)
    return random.randbytes(int(random.expovariate(1 / 200)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--life", type=int, default=0, help="varies group sizes between restarts")
    parser.add_argument("--parallel", type=int, default=1)
    options = parser.parse_args()
    try:
        with Db.open(options.url, max_parallel_writes=options.parallel, flush_ms=5) as db:
            write_for_ever(db, Random(options.life))
    except FencedError:
        say("fenced")
        sys.exit(FENCED)


def write_for_ever(db: Db, random: Random) -> None:
    """Rounds in groups of all sizes; of a group the last is waited for."""
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
