"""A kv store under sustained load: its WAL, its files and its memory stay bounded."""

import math
import statistics
import threading
import time
from collections import Counter
from pathlib import Path

from campaign.soak import resident
from holdfast.doors import open_kv
from holdfast.kv.gc import GcOptions
from holdfast.kv.maintenance import MaintenanceOptions
from holdfast.testing.lives import BrokenPromiseError

GROWTH_MAX = 64 << 20
_GC_MS = 2_000  # age and interval of garbage collection, so that minutes show what days would
_SECONDS_KEPT = 30  # of garbage, and of a WAL that is not compacted yet
_LEAST = 500  # objects that a slow machine may have in any case


def sustained(place: Path, seconds: float) -> Counter[str]:
    """Put from two threads, each waiting for every row.  BrokenPromiseError if anything grows."""
    maintain = MaintenanceOptions(gc=GcOptions(fence_age_ms=0), gc_interval_ms=_GC_MS)
    written = Counter[int]()
    sizes, stop = [], time.monotonic() + seconds
    kv = open_kv(
        place / "store", create=True, gc_min_age_ms=_GC_MS, watch_ms=500.0, maintain=maintain
    )

    def put(author: int) -> None:
        while time.monotonic() < stop:
            kv.put(b"%d-%d" % (author, written[author] % 1000), b"value").result()
            written[author] += 1

    threads = [threading.Thread(target=put, args=(author,)) for author in range(2)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(min(1.0, seconds / 20))
        sizes.append(resident())
        rate = written.total() / (time.monotonic() - began)
        _check(place / "store", _LEAST + int(rate * _SECONDS_KEPT))
    kv.close()
    quarter = max(1, len(sizes) // 4)
    growth = statistics.median(sizes[-quarter:]) - statistics.median(sizes[quarter : 2 * quarter])
    if growth > GROWTH_MAX:
        raise BrokenPromiseError("broken", f"memory grew by {int(growth) >> 10} KiB")
    return Counter({"seconds": math.ceil(seconds), "acknowledged": written.total()})


def _check(store: Path, most: int) -> None:
    for name in ("wal", "manifest", "levels"):
        if (store / name).is_dir() and (count := len(list((store / name).iterdir()))) > most:
            raise BrokenPromiseError("broken", f"{count} objects are in {name}; expected {most}")
