"""A process that appends until it is killed.  `python -m holdfast.testing.writer --help`

It prints what it is about to append and, once append has returned, what is acknowledged.  Each line
is written by one system call, so after a kill -9 the reader of the pipe has every promise.

    begin 41 43          entries 41 to 43 are being appended
    ack 43               ... and are durable
"""

import argparse
import os
import sys
from collections.abc import Callable
from functools import cache
from random import Random

from holdfast.disk import OsDisk
from holdfast.logs.log import Log
from holdfast.logs.opening import FORMATS

Payload = Callable[[int], bytes]


def random_payloads(seed: int) -> Payload:
    """Return a function of the payloads: entry i of a seed is always the same."""

    @cache
    def payload(index: int) -> bytes:
        random = Random(f"{seed}/{index}")
        return random.randbytes(1 + int(random.expovariate(1 / 120)))

    return payload


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--format", default="shanghai")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--life", type=int, default=0, help="varies batch sizes between restarts")
    parser.add_argument("--segment-size", type=int, default=256 * 1024)
    options = parser.parse_args()
    log = FORMATS[options.format].open_writer(
        OsDisk(options.path), segment_size_max=options.segment_size
    )
    append_until_killed(log, random_payloads(options.seed), Random(options.life))


def append_until_killed(log: Log, payload: Payload, random: Random) -> None:
    """Append batches of all sizes, small ones more often."""
    while True:
        first = log.last_index + 1
        last = first + int(random.expovariate(1 / 8))
        say(f"begin {first} {last}")
        log.append([payload(index) for index in range(first, last + 1)])
        say(f"ack {last}")


def say(line: str) -> None:
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


if __name__ == "__main__":
    main()
