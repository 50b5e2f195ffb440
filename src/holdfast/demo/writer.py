"""The processes that the demo kills and freezes: `python -m holdfast.demo.writer STORE PATH ...`

`log` appends the ticks of a day to a log.  The day lasts some seconds by a clock that all writers
share: each append takes the ticks that have arrived since the last one.  `kv` puts numbers into a
kv store until another writer fences it.  Both report on standard output, each line in one write:

    begin 41 43          entries 41 to 43 are being appended
    ack 43 612           ... and are durable, after 612 microseconds
    over                 all ticks are durable; repeated, so that a closed pipe ends the process
    open 2               the writer of a kv store has this epoch
    fenced WHY           another writer has taken over
"""

import sys
import time

import numpy as np

import holdfast
from holdfast.demo import market
from holdfast.errors import FencedError
from holdfast.testing.writer import say

BATCH_MAX = 2048
SEGMENT_SIZE_MAX = 2**20


def append_ticks(path: str, ticks: market.Ticks, seconds: float, opened: float) -> None:
    """Append until killed; entry i is tick i - 1.  The market opened at `opened`, monotonic."""
    arrivals = opened + market.share_of_day(ticks) * seconds
    log = holdfast.open_log(path, segment_size_max=SEGMENT_SIZE_MAX)
    while (start := log.last_index) < len(ticks):
        arrived = int(np.searchsorted(arrivals, time.monotonic(), "right"))
        stop = min(arrived, start + BATCH_MAX)
        if stop > start:
            say(f"begin {start + 1} {stop}")
            began_ns = time.perf_counter_ns()
            log.append([tick.tobytes() for tick in ticks[start:stop]])
            say(f"ack {stop} {(time.perf_counter_ns() - began_ns) // 1000}")
        else:
            time.sleep(0.0005)
    while True:
        say("over")
        time.sleep(0.02)


def put_numbers(path: str) -> None:
    """Put one number after the other, each durable before the next one, until fenced."""
    try:
        with holdfast.open_kv(path, maintain=False, flush_ms=None, watch_ms=None) as kv:
            say(f"open {kv.epoch}")
            number = 0
            while True:
                number += 1
                kv.put(number_key(kv.epoch, number), b"%d" % number).result()
                say(f"ack {number}")
                time.sleep(0.02)
    except FencedError as error:
        say(f"fenced {error}")


def number_key(epoch: int, number: int) -> bytes:
    return b"number/%d/%06d" % (epoch, number)


if __name__ == "__main__":
    store, place, *rest = sys.argv[1:]
    if store == "kv":
        put_numbers(place)
    else:
        seed, count, day_seconds, opened_at = rest
        append_ticks(place, market.day(int(seed), int(count)), float(day_seconds), float(opened_at))
