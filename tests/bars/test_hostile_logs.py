"""Logs with right checksums and invalid groups: refused, and salvaged on request."""

from random import Random

import numpy as np

from holdfast.bars import BarReader, BarStore
from holdfast.bars.group import NewFile
from holdfast.bars.view import Placed, encode_plan
from holdfast.errors import HoldfastError
from holdfast.formats import market_wal as fmt
from holdfast.formats.marketstore_wal import IntervalSet, encode_interval
from holdfast.formats.year_file import SLOT, schema_of
from holdfast.testing import SimDisk
from holdfast.testing.bars import SIM_RUNTIME

BARS = schema_of((("Close", 2),), False)
TICKS = schema_of((("Price", 1),), True)
BAR_PATH, TICK_PATH = "A/1D/X/2021.bin", "A/1D/T/2021.bin"
PLACED = Placed(2021, {45_800: b"\x08\x1c12345678"}, np.array([37_024]), np.zeros(1, SLOT))
PARTS = (
    NewFile("A/1D/X", 2021, BARS).encode(1),
    NewFile("A/1D/T", 2021, TICKS).encode(1),
    fmt.encode_set(fmt.encode_place(fmt.FIXED, BAR_PATH, 2021, 1), [1, 2], bytes(16), 8),
    fmt.encode_set(fmt.encode_place(fmt.VARIABLE, TICK_PATH, 2021, 1), [1, 2], bytes(16), 8),
    fmt.encode_set(fmt.encode_place(fmt.REMOVED, BAR_PATH, 2021, 1), [1], b"", 0),
    fmt.encode_set(fmt.encode_place(fmt.REMOVED, TICK_PATH, 2021, 1), [1], bytes(8), 8),
    fmt.encode_decision(),
    fmt.encode_decision([100, 101], fmt.COMPLETE),
    encode_plan([100], {TICK_PATH: PLACED})[0],
    encode_interval(IntervalSet(0, BAR_PATH, 0, 37_024, 1, bytes(8), (("Close", 2),))),
    encode_interval(IntervalSet(1, TICK_PATH, 8, 37_024, 1, bytes(16), (("Price", 1),))),
)
NASTY = (b"\xff" * 8, bytes(8), b"\xff\xff\xff\x7f", b"\x80", b"..", b"/")


def spoiled(data: bytes, random: Random) -> bytes:
    found = bytearray(data)
    for _ in range(random.randrange(4)):
        at, nasty = random.randrange(len(found) + 1), random.choice(NASTY)
        found[at : at + random.randrange(6)] = random.choice((b"", nasty, random.randbytes(3)))
    return bytes(found)


def hostile_log(random: Random) -> bytes:
    data = fmt.encode_status(fmt.Status(random.choice((1, 2)), random.choice((1, 2, 3)), 0))
    for tgid in range(100, 100 + random.randrange(1, 3)):
        parts = random.choices(PARTS, k=random.randrange(1, 4))
        count = len(parts) if random.random() < 0.8 else random.choice((0, -1, 2**40))
        data += fmt.encode_info(tgid, fmt.WAL, fmt.PREPARING)
        data += fmt.encode_group(tgid, spoiled(b"".join(parts), random), count)
        data += fmt.encode_info(tgid, fmt.WAL, random.choice((1, 2, 2, 3)))
        if random.random() < 0.2:
            data += fmt.encode_info(100, fmt.PRIMARY, fmt.COMPLETE)
    return data if random.random() < 0.9 else spoiled(data, random)


def open_store(disk: SimDisk, *, salvage: bool = False) -> BarStore:
    return BarStore(disk, create=True, salvage=salvage, runtime=SIM_RUNTIME)


def test_every_log_is_replayed_or_reported_as_damage_and_salvaged() -> None:
    damaged = 0
    for seed in range(300):
        random, disk = Random(seed), SimDisk()
        disk.create("WALFile.5" + random.choice(("", "", ".walfile")), hostile_log(random))
        with BarReader(disk) as guest:
            assert_readable(guest)
        with open_store(disk) as store:
            assert_readable(store)
            damaged += bool(store.damage)
        with open_store(disk, salvage=True) as store:
            assert store.damage == ()
            store.write({"Epoch": [1_609_545_600], "Close": [1.0]}, "1D", "Z", symbol="B")
        with open_store(disk) as store:
            assert store.damage == ()
            assert len(store.latest("B", "1D", "Z")) == 1
    assert 50 < damaged < 250


def assert_readable(store: BarStore | BarReader) -> None:
    """All that is shown can be read, or the error says why not."""
    for key in store.buckets():
        symbol, timeframe, attributes = key.split("/")
        try:
            found = store.query(symbol, timeframe, attributes)
        except (HoldfastError, ValueError):
            continue
        assert len(found) >= 0
