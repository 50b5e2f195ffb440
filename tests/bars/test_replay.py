"""Opening a root after others: every state of a log, every owner, and hostile logs."""

import os
import subprocess
from contextlib import closing
from itertools import count
from pathlib import Path
from random import Random

import numpy as np
import pytest
from tests.bars.conftest import Golden
from tests.bars.test_store import START_S, bars, closes

from holdfast import runtime
from holdfast.bars import BarReader, BarStore, recovery
from holdfast.bars.catalog import Catalog
from holdfast.bars.group import NewFile
from holdfast.bars.wal import Logs, find_logs
from holdfast.doors import open_bars, read_bars
from holdfast.errors import HoldfastError, LockedError
from holdfast.formats import market_wal as fmt
from holdfast.formats.year_file import schema_of
from holdfast.testing import Fault, SimDisk
from holdfast.testing.bars import SIM_RUNTIME, open_store

SCHEMA = schema_of((("Close", 2),), False)
PATH = "A/1D/X/2021.bin"
NAME = "WALFile.1465405207042113300"


def sets_for(price: float = 7.0, path: str = PATH, index: int = 1, width: int = 8) -> bytes:
    place = fmt.encode_place(fmt.FIXED, path, 2021, 1)
    return fmt.encode_set(place, [index], np.array([price], "<f8").tobytes()[:width], width)


def log(*groups: bytes, status: tuple[int, int] = (1, 1), pid: int = 0, tgid: int = 1) -> bytes:
    data = fmt.encode_status(fmt.Status(*status, pid))
    new = NewFile("A/1D/X", 2021, SCHEMA).encode(1)
    for number, sets in enumerate(groups):
        data += fmt.encode_write(tgid + number, new + sets, 2).messages
    return data


@pytest.mark.parametrize(
    ("status", "rows"),
    [
        *(((1, 1), [7]), ((1, 2), [7]), ((1, 3), [7]), ((2, 1), [7]), ((2, 3), [7])),
        *(((2, 2), None), ((0, 0), [7]), ((9, 9), [7])),
    ],
)
def test_every_state_of_a_log(disk: SimDisk, status: tuple[int, int], rows: list[float]) -> None:
    disk.create(NAME, log(sets_for(), status=status))
    with open_store(disk) as store:
        assert store.damage == ()
        if rows is None:
            assert store.symbols() == []
        else:
            assert closes(store) == rows
    assert NAME not in disk.files()


def open_while_the_disk_fails(disk: SimDisk) -> BarStore:
    """Let each call of opening fail in turn.  Or a salvage would take sound groups for damaged."""
    for call in count():
        copy = disk.copy_after_kill()
        copy.posix.fault = Fault("eio", call)
        try:
            store = open_store(copy)
        except OSError:
            copy.posix.fault = None
            copy.lock().release()  # LockedError if the failed attempt had kept it
            continue
        assert store.damage == ()
        if copy.posix.calls <= call:
            copy.posix.fault = None
            break
    assert disk.posix.fired["eio"] > 10
    return store


def test_a_disk_that_fails_is_not_damage(disk: SimDisk) -> None:
    with open_store(disk) as store:
        store.write(bars(1), "1D", "X", symbol="A")
    store = open_store(disk)
    store.write(bars(2), "1D", "X", symbol="A")
    assert closes(open_while_the_disk_fails(disk)) == [2]


def test_a_failing_disk_is_not_damage_in_the_log_of_a_server(disk: SimDisk, golden: Golden) -> None:
    root = golden.path / "wal_replay_variable_duplicates" / "root"
    for path in root.rglob("*"):
        if path.is_file():
            disk.create(str(path.relative_to(root)), path.read_bytes())
    store = open_while_the_disk_fails(disk)
    assert len(store.query("AAPL", "1Min", "TICK")) == 6


def test_the_log_of_a_server_is_removed_unchanged(disk: SimDisk, golden: Golden) -> None:
    root = golden.path / "wal_replay_variable_duplicates" / "root"
    for path in root.rglob("*"):
        if path.is_file():
            disk.create(str(path.relative_to(root)), path.read_bytes())
    [log] = find_logs(disk)
    before, seen = disk.files()[log.name], set[bytes | None]()
    disk.posix.witness = lambda: seen.add(disk.files().get(log.name))
    with open_store(disk) as store:
        assert len(store.query("AAPL", "1Min", "TICK")) == 6
    assert seen == {before, None}


def test_the_status_of_a_log_is_durable(disk: SimDisk) -> None:
    disk.create(NAME, log(sets_for()))
    lock = disk.lock()
    logs = Logs(disk, lock, SIM_RUNTIME, 1000)
    logs.adopt(NAME, 100)
    replaying = fmt.Status(fmt.OPEN, fmt.REPLAYING, SIM_RUNTIME.process_id())
    for seed in range(12):
        found = disk.after_power_cut(Random(seed)).files()[NAME]
        assert fmt.decode_status(found) == replaying
    logs.close()
    lock.release()
    with open_store(disk) as store:
        group = store.group()
        group.write(bars(8), "1D", "X", symbol="B")
        group.prepare()
    closed = fmt.Status(fmt.CLOSED, fmt.NOT_REPLAYED, SIM_RUNTIME.process_id())
    for seed in range(12):
        image = disk.after_power_cut(Random(seed))
        [only] = find_logs(image)
        assert fmt.decode_status(image.files()[only.name]) == closed


def test_an_old_log_is_not_replayed_over_a_newer_one(disk: SimDisk) -> None:
    """It says that it is done before the newer one does, and a torn tail changes nothing."""
    disk.create("WALFile.1000000000000000000", log(sets_for(1)) + b"\x01" + bytes(5))
    disk.create("WALFile.1000000000000000001", log(sets_for(2), tgid=9))
    images: list[SimDisk] = []

    def cut_power() -> None:
        at = disk.posix.operations
        images.extend(disk.after_power_cut(Random(f"{at}/{seed}")) for seed in range(3))

    disk.posix.witness = cut_power
    open_store(disk).close()
    disk.posix.witness = None
    for image in images:
        with open_store(image) as store:
            assert closes(store) == [2]


@pytest.mark.parametrize("status", [(1, 1), (1, 2), (1, 3)])
def test_a_living_owner_is_respected(tmp_path: Path, status: tuple[int, int]) -> None:
    with subprocess.Popen(["sleep", "60"]) as owner:
        name = f"WALFile.{runtime.now_ns() + 10**9}"
        (tmp_path / name).write_bytes(log(sets_for(), status=status, pid=owner.pid))
        with pytest.raises(LockedError, match=str(owner.pid)):
            open_bars(tmp_path, create=True)
        with read_bars(tmp_path) as guest:
            assert closes(guest) == [7]
        owner.kill()
    with open_bars(tmp_path, create=True) as store:
        assert closes(store) == [7]


def test_a_reused_process_id_is_another_process(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        (tmp_path / NAME).write_bytes(log(sets_for(), pid=stranger.pid))  # of 2016
        with open_bars(tmp_path, create=True) as store:
            assert closes(store) == [7]
        stranger.kill()


def test_a_closed_log_has_no_owner(tmp_path: Path) -> None:
    name = f"WALFile.{runtime.now_ns() + 10**9}"
    (tmp_path / name).write_bytes(log(sets_for(), status=(2, 1), pid=os.getppid()))
    with open_bars(tmp_path, create=True) as store:
        assert closes(store) == [7]


def test_groups_are_replayed_in_the_order_of_the_log_whatever_their_tgids(disk: SimDisk) -> None:
    data = log(sets_for(1), tgid=2000) + log(sets_for(2), tgid=1000)[11:]
    disk.create(NAME, data)
    with open_store(disk) as store:
        assert closes(store) == [2]


def test_a_group_there_twice_is_one_and_two_of_one_tgid_are_two(disk: SimDisk) -> None:
    disk.create(NAME, log(sets_for(1)) + log(sets_for(1))[11:] + log(sets_for(2, index=2))[11:])
    with open_store(disk) as store:
        assert closes(store) == [1, 2]


@pytest.mark.parametrize("tail", [b"", bytes(4000), b"\x00garbage", b"\x01" + bytes(5)])
def test_a_torn_tail_is_cut_and_kept(disk: SimDisk, tail: bytes) -> None:
    whole = log(sets_for(1))
    torn = log(sets_for(2, index=2), tgid=5)[11:-11]
    disk.create(NAME, whole + torn + tail)
    with BarReader(disk) as guest:
        assert closes(guest) == [1]
    with open_store(disk) as store:
        assert closes(store) == [1]
        assert "kept" in store.recovered[0]
    kept = [data for name, data in disk.files().items() if name.endswith(".cut")]
    assert kept == [torn + tail]


HOSTILE = {
    "up": sets_for(path="../../X/2021.bin"),
    "absolute": sets_for(path="/etc/X/Y/2021.bin"),
    "dots": sets_for(path="A/../X/2021.bin"),
    "no year file": sets_for(path="A/1D/X/LOCK"),
    "another year": sets_for(path="A/1D/X/2022.bin"),
    "another timeframe": sets_for(path="A/1Min/X/2021.bin"),
    "before the year": sets_for(index=-1),
    "behind the year": sets_for(index=365),
    "far behind": sets_for(index=2**62),
    "too narrow": sets_for(width=4),
    "no such kind": fmt.encode_set(fmt.encode_place(9, PATH, 2021, 1), [1], bytes(8), 8),
    "placed in the header": fmt.encode_set(
        fmt.encode_place(fmt.PLACED, PATH, 0, 0), [0], bytes(8), 8
    ),
    "placed far away": fmt.encode_set(
        fmt.encode_place(fmt.PLACED, PATH, 0, 0), [2**60], bytes(8), 8
    ),
    "other columns": NewFile("A/1D/X", 2021, schema_of((("Open", 2),), False)).encode(1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_log_is_refused_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    root = tmp_path / "one" / "two" / "root"
    root.mkdir(parents=True)
    with open_bars(root, create=True) as store:
        store.write(bars(1), "1D", "X", symbol="A")
    data = log(HOSTILE[name], sets_for(3))
    (root / NAME).write_bytes(data)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with open_bars(root, create=True) as store:
        assert store.damage
        with pytest.raises(HoldfastError):
            store.write(bars(2), "1D", "X", symbol="A")
        assert closes(store) == [3], "what is sound is shown"
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {p: d for p, d in after.items() if p.name != "LOCK"} == {
        p: d for p, d in before.items() if p.name != "LOCK"
    }


@pytest.mark.parametrize("part", ["A", "A/1D", "A/1D/X", "A/1D/X/2021.bin"])
def test_links_do_not_lead_out_of_the_root(tmp_path: Path, part: str) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    with open_bars(outside, create=True) as store:
        store.write(bars(1), "1D", "X", symbol="A")
    content = (outside / PATH).read_bytes()
    (root / part).parent.mkdir(parents=True)
    (root / part).symlink_to(outside / part)
    (root / NAME).write_bytes(log(sets_for(9)))
    if part == PATH:
        with pytest.raises(OSError, match=r"symbolic|link"):
            open_bars(root, create=True)
    else:
        with open_bars(root, create=True) as store:
            assert store.damage
    assert (outside / PATH).read_bytes() == content


def test_a_missing_file_is_created_like_another_year(disk: SimDisk) -> None:
    with open_store(disk) as store:
        store.write(bars(1), "1D", "X", symbol="A")
    place = fmt.encode_place(fmt.FIXED, "A/1D/X/2020.bin", 2020, 1)
    sets = fmt.encode_set(place, [5], np.array([4.0]).tobytes(), 8)
    status = fmt.encode_status(fmt.Status(1, 1, 0))
    disk.create(NAME, status + fmt.encode_write(1, sets, 1).messages)
    with open_store(disk) as store:
        assert closes(store) == [4, 1]


def test_a_missing_file_with_unknown_columns_is_damage(disk: SimDisk) -> None:
    status = fmt.encode_status(fmt.Status(1, 1, 0))
    disk.create(NAME, status + fmt.encode_write(1, sets_for(), 1).messages)
    with open_store(disk) as store:
        assert "its schema is unknown" in store.damage[0].why


@pytest.mark.parametrize("field", ["length", "rows", "checksum"])
@pytest.mark.parametrize("later", [False, True], ids=["last", "followed"])
def test_a_flipped_bit_in_a_plan_doubles_no_tick(disk: SimDisk, field: str, later: bool) -> None:
    """The log records after the plan that its groups are in the files: that settles the doubt."""
    store = open_store(disk)
    ticks = {"Epoch": [START_S] * 3, "Price": [1, 2, 3]}
    store.write(ticks, "1D", "TICK", symbol="A", is_variable=True)
    store.flush()
    if later:
        store.write(bars(8), "1D", "X", symbol="B")
    [only] = find_logs(disk)
    data = bytearray(disk.files()[only.name])
    groups = [
        one for one in fmt.scan(memoryview(bytes(data))).messages if isinstance(one, fmt.Group)
    ]
    plan = next(group for group in groups if group.first_kind == fmt.PLACED)
    at = {"length": plan.offset + 1, "rows": plan.offset + 90, "checksum": plan.stop - 1}[field]
    data[at] ^= 4
    image = disk.after_kill()
    with closing(image.open(only.name, writable=True)) as file:
        file.write_at(0, bytes(data), sync=True)
    with BarReader(image) as guest:
        assert guest.query("A", "1D", "TICK")["Price"].to_pylist() == [1, 2, 3]
        assert guest.damage
    with open_store(image) as damaged:
        assert damaged.damage
        assert damaged.query("A", "1D", "TICK")["Price"].to_pylist() == [1, 2, 3]
    with BarStore(image, salvage=True, runtime=SIM_RUNTIME) as salvaged:
        assert salvaged.query("A", "1D", "TICK")["Price"].to_pylist() == [1, 2, 3]
        if later:
            assert salvaged.query("B", "1D", "X")["Close"].to_pylist() == [8]


def test_a_salvage_keeps_groups_that_were_prepared_and_committed() -> None:
    disk = SimDisk()
    store = BarStore(disk, create=True, runtime=SIM_RUNTIME)
    for price in (1, 2):
        group = store.group()
        group.write(
            {"Epoch": [START_S], "Price": [price]}, "1D", "TICK", symbol="A", is_variable=True
        )
        group.prepare()
        if price == 1:
            group.commit()
    image = disk.copy_after_kill()
    found = recovery.look(image, Catalog(image))
    recovery.salvage(image, found, found.last_ns + 1)
    with BarStore(image, runtime=SIM_RUNTIME) as salvaged:
        assert salvaged.query("A", "1D", "TICK")["Price"].to_pylist() == [1]
        assert len(salvaged.undecided) == 1
