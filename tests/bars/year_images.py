"""The bytes of a year file after a power cut at every step of a write-back.

The promise: a reader of a year file alone never finds an index without its data.
"""

from collections.abc import Iterator
from contextlib import suppress
from random import Random

import numpy as np

from holdfast.formats import year_file as fmt
from holdfast.testing import PowerLost, SimDisk
from holdfast.testing.bars import open_store

DAY_S, START_S = 86_400, 1_609_459_200
PRICE = 0x0123456789ABCDEF
STEPS, SEEDS = 12, 8


def images(days: tuple[int, ...], *, is_variable: bool) -> Iterator[bytes]:
    """Yield the file after power cuts in a write-back of these days; the last is complete."""
    rows = np.array([(START_S + day * DAY_S, PRICE) for day in (3, *days)], "i8,i8")
    rows.dtype.names = ("Epoch", "Price")
    for dies_at in (*range(1, STEPS), None):
        disk = SimDisk()
        opened = open_store(disk)
        opened.write(rows[:1], "1D", "X", symbol="A", is_variable=is_variable)
        opened.flush()
        opened.write(rows[1:], "1D", "X", symbol="A", is_variable=is_variable)
        disk.posix.operations, disk.posix.dies_at = 0, dies_at
        with suppress(PowerLost):
            opened.flush()
        for seed in range(SEEDS):
            yield disk.after_power_cut(Random(seed)).open("A/1D/X/2021.bin").read_at(0, 10**6)


def no_index_precedes_its_data() -> None:
    """Check single bars, consecutive bars, and the slots and payloads of ticks."""
    for days in ((4, 9), (4, 5, 6, 7)):
        *torn, whole = images(days, is_variable=False)
        for image, at in (
            (image, fmt.HEADER_SIZE + (day - 1) * 16) for image in torn for day in days
        ):
            if image[at : at + 8] == whole[at : at + 8]:
                assert image[at + 8 : at + 16] == whole[at + 8 : at + 16], "an index without data"
        assert whole.count(PRICE.to_bytes(8, "little")) == 1 + len(days)
    *torn, whole = images((4, 9), is_variable=True)
    for day in (4, 9):
        at = fmt.HEADER_SIZE + (day - 1) * fmt.SLOT.itemsize
        index, offset, length = np.frombuffer(whole, fmt.SLOT, 1, at)[0].item()
        assert index == day
        for image in torn:
            if image[at : at + fmt.SLOT.itemsize] == whole[at : at + fmt.SLOT.itemsize]:
                place = slice(offset, offset + length)
                assert image[place] == whole[place], "a slot without a payload"
