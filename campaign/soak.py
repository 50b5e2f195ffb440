"""Open, write, read and close stores for a long time: memory and descriptors stay as they are."""

import gc
import math
import os
import resource
import shutil
import statistics
import time
from collections import Counter
from pathlib import Path

from holdfast.testing.lives import BrokenPromiseError
from holdfast.testing.owners.stores import KINDS

NUMBERS, BATCH = 60, 6
GROWTH_MAX = 16 << 20  # of memory, between the first half and the last quarter


def soak(format: str, place: Path, seconds: float) -> Counter[str]:
    """Run cycles for so long, each with a new store.  BrokenPromiseError if anything grows."""
    sizes: list[int] = []
    descriptors: list[int] = []
    stop = time.monotonic() + seconds
    while time.monotonic() < stop or len(sizes) < 8:
        _cycle(format, place / "store")
        gc.collect()
        sizes.append(resident())
        descriptors.append(len(os.listdir("/proc/self/fd")))  # noqa: PTH208
    quarter = len(sizes) // 4
    growth = int(
        statistics.median(sizes[-quarter:]) - statistics.median(sizes[quarter : 2 * quarter])
    )
    if growth > GROWTH_MAX:
        raise BrokenPromiseError("broken", f"memory grew by {growth >> 10} KiB")
    if min(descriptors[-quarter:]) > max(descriptors[quarter : 2 * quarter]):
        what = f"{descriptors[quarter]} descriptors became {descriptors[-1]}"
        raise BrokenPromiseError("broken", what)
    return Counter({"seconds": math.ceil(seconds), "cycles": len(sizes)})


def _cycle(format: str, path: Path) -> None:
    kind = KINDS[format]()
    store = kind.open(path)
    for first in range(1, NUMBERS, BATCH):
        kind.write(store, *range(first, first + BATCH))
        kind.change(store)
    assert kind.read(path) == kind.scan(store) == [*range(1, NUMBERS + 1)]
    store.close()
    shutil.rmtree(path)


def resident() -> int:
    """Return the bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
