"""A side file that is flipped, cut, emptied or edited is reported by name, and loses nothing."""

import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from tests.mutants import Mutants

from holdfast.bars import staging as bar_staging
from holdfast.bars.status import damaged_records
from holdfast.disk import Disk
from holdfast.errors import CorruptError, OutOfRangeError
from holdfast.formats import side_file
from holdfast.logs import replicas, staging
from holdfast.logs.file_log import FileLog
from holdfast.logs.opening import FORMATS, open_writer
from holdfast.logs.origin import ORIGIN, Origin, read_origin, write_origin
from holdfast.logs.replicas import Replicas
from holdfast.logs.retention import Retention
from holdfast.logs.status import status_of
from holdfast.logs.verify import damaged_side_files, verify_log
from holdfast.side_files import read_side_file
from holdfast.staged import Transaction
from holdfast.testing import SimDisk
from holdfast.testing.bars import open_store
from holdfast.testing.log_contract import contents

TXN = Transaction("query", 7)
OPTIONS: dict[str, dict[str, Any]] = {
    "raft-wal": {"segment_size_max": 4096},
    "shanghai": {"segment_size_max": 4096},
    "file-log": {"capacity": 4, "request_ttl_ms": 0},
}
REPLICA, RECORD = "replicas/r1.json", staging.area(SimDisk()).transaction_path("query")
ROWS = [b"%d" % number * 300 for number in range(40)]
KEPT = 5  # what the replica has acknowledged


def read_replica(disk: Disk) -> Any:
    return Replicas(disk).get("r1")


def read_record(disk: Disk) -> Any:
    return staging.area(disk).committed_version("query")


READ: dict[str, Callable[[Disk], Any]] = {
    REPLICA: read_replica,
    RECORD: read_record,
    ORIGIN: read_origin,
}


def log_with_side_files(format: str = "shanghai") -> SimDisk:
    disk = SimDisk()
    with closing(FORMATS[format].open_writer(disk, **OPTIONS[format])) as log:
        for row in ROWS[:-1]:
            log.append([row])
        job = staging.new_job(TXN)
        part = staging.stage(disk, job, 0, [pa.record_batch({"payload": [ROWS[-1]]})])
        staging.commit(log, disk, [part], TXN)
    Replicas(disk).register("r1", KEPT)
    write_origin(disk, Origin("/before", 1, {"raft-wal": {"codec": 1, "stable": {}}}))
    return disk


def put(disk: SimDisk, name: str, data: bytes) -> None:
    disk.create(name, data, replace=True)


def names_of(damage: Any) -> list[str]:
    return [one.file for one in damage]


def refuses(disk: SimDisk, name: str) -> None:
    """The file is reported by its name, and whoever needs it gets an error."""
    assert names_of(damaged_side_files(disk)) == [name]
    with pytest.raises(CorruptError, match=name):
        READ[name](disk)


def loses_nothing(disk: SimDisk, name: str) -> None:
    """Every report names the file; a guest and an owner have all entries; nothing is trimmed."""
    report = verify_log(disk)
    assert report.verdict == "corrupt"
    assert [one.name for one in report.segments if one.damage] == [name]
    with closing(open_writer(disk)) as log:
        assert names_of(status_of(log, disk).damage) == [name]
        assert contents(log) == ROWS
        if name == REPLICA:
            for limits in (Retention(before=30), Retention(acknowledged=True)):
                with pytest.raises(CorruptError, match="register it again, or forget it"):
                    log.trim(limits)
        elif name == RECORD:
            with pytest.raises(CorruptError, match="commits nothing until"):
                staging.commit(log, disk, [], Transaction("query", 8))
            staging.commit(log, disk, [], Transaction("another", 1))
        assert contents(log) == ROWS
        log.append([b"more"])
    with closing(FORMATS["shanghai"].open_reader(disk)) as reader:
        assert contents(reader) == [*ROWS, b"more"]


def examine_flips(name: str, step: int = 1) -> None:
    disk = log_with_side_files()
    size = 8 * len(disk.files()[name])
    for bit in range(0, size, step):
        disk.flip(name, bit)
        refuses(disk, name)
        disk.flip(name, bit)
    assert damaged_side_files(disk) == ()


@pytest.mark.parametrize("name", READ)
def test_every_flipped_bit_is_noticed(name: str) -> None:
    examine_flips(name)


@pytest.mark.parametrize("name", READ)
def test_a_flipped_file_loses_nothing(name: str) -> None:
    for bit in (0, 100, 300, 500):
        disk = log_with_side_files()
        disk.flip(name, bit)
        loses_nothing(disk, name)


@pytest.mark.parametrize("name", READ)
def test_every_shorter_file_is_noticed(name: str) -> None:
    disk = log_with_side_files()
    data = disk.files()[name]
    for size in range(len(data)):
        put(disk, name, data[:size])
        refuses(disk, name)
    put(disk, name, b"")
    loses_nothing(disk, name)


@pytest.mark.parametrize("name", READ)
def test_an_edited_file_is_noticed(name: str) -> None:
    """As an operator would edit it, and as a disk would place it under another name."""
    disk = log_with_side_files()
    data = disk.files()[name]
    edits = {REPLICA: (b": 5,", b": 25,"), RECORD: (b": 7}", b": 9}"), ORIGIN: (b": 1,", b": 2,")}
    for edited in (data.replace(*edits[name]), data + b"\n", data.replace(b"}\n", b"}")):
        assert edited != data
        put(disk, name, edited)
        refuses(disk, name)
    put(
        disk,
        name,
        next(other for path, other in disk.files().items() if path in READ.keys() - {name}),
    )
    refuses(disk, name)


def examine_positions(disk: SimDisk, beyond: int) -> None:
    """A position beyond the log is refused, wherever it comes from."""
    known = Replicas(disk)
    for change in (known.register, known.acknowledge):
        with pytest.raises(OutOfRangeError, match=f"{beyond}: the log ends at {len(ROWS)}"):
            change("r1", beyond)
    assert known.get("r1").acknowledged == KEPT
    body = {"acknowledged": beyond, "updated_ms": 1}
    for data in (side_file.encode_side_file(REPLICA, body), json.dumps(body).encode()):
        put(disk, REPLICA, data)
        assert names_of(damaged_side_files(disk)) == [REPLICA]
        with pytest.raises(CorruptError, match=f"the log ends at {len(ROWS)}; register it again"):
            known.get("r1")
        with closing(open_writer(disk)) as log:
            for limits in (Retention(before=30), Retention(acknowledged=True)):
                with pytest.raises(CorruptError, match="register it again"):
                    log.trim(limits)
            assert log.first_index == 1
            assert status_of(log, disk).replicas == ()
    assert known.register("r1", len(ROWS)).acknowledged == len(ROWS)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("beyond", [len(ROWS) + 1, 99_999_999, 2**63])
def test_a_position_beyond_the_log_never_counts(format: str, beyond: int) -> None:
    examine_positions(log_with_side_files(format), beyond)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("way_out", ["register", "forget"])
def test_an_unsound_replica_holds_trim_back_until_it_is_registered_again_or_forgotten(
    format: str, way_out: str
) -> None:
    disk = log_with_side_files(format)
    disk.flip(REPLICA, 333)
    with closing(open_writer(disk, **OPTIONS[format])) as log:
        with pytest.raises(CorruptError, match="register it again, or forget it"):
            log.trim(Retention(before=30))
        with pytest.raises(CorruptError, match="register it again"):
            Replicas(disk).acknowledge("r1", 30)
        assert contents(log) == ROWS
        if way_out == "register":
            Replicas(disk).register("r1", 20)
        else:
            Replicas(disk).forget("r1")
        if isinstance(log, FileLog):  # its snapshot covers what may be removed
            log.create_snapshot(20 if way_out == "register" else 30, [b"state"])
        done = log.trim(Retention(before=30))
        assert done.removed, done
        last = done.removed[-1].last_index
        assert 10 < last <= 20 if way_out == "register" else 20 < last < 30
    assert damaged_side_files(disk) == ()


def test_one_unsound_replica_hides_no_other() -> None:
    disk = log_with_side_files()
    Replicas(disk).register("r2", 6)
    Replicas(disk).register("r3", 7)
    disk.flip(REPLICA, 8)
    disk.flip("replicas/r3.json", 8)
    put(disk, "replicas/not a name.json", b"")
    unsound = [REPLICA, "replicas/not a name.json", "replicas/r3.json"]
    assert sorted(names_of(damaged_side_files(disk))) == sorted(unsound)
    with closing(open_writer(disk)) as log:
        assert [(one.name, one.lag) for one in status_of(log, disk).replicas] == [("r2", 34)]


@pytest.mark.parametrize("name", READ)
def test_a_file_of_0_1_0_is_read_and_the_next_change_seals_it(name: str) -> None:
    disk = log_with_side_files()
    body = json.loads(disk.files()[name])["body"]
    was = READ[name](disk)
    put(disk, name, json.dumps(body, indent=1 if name == ORIGIN else None).encode())
    assert damaged_side_files(disk) == ()
    if name == REPLICA:
        assert READ[name](disk).acknowledged == was.acknowledged
        Replicas(disk).acknowledge("r1", KEPT + 1)
    elif name == RECORD:
        with closing(open_writer(disk)) as log:
            assert staging.commit(log, disk, [], TXN) is None
            assert staging.commit(log, disk, [], Transaction("query", 8)) is not None
    else:
        assert read_origin(disk) == was
        write_origin(disk, was)
    assert "crc32c" in json.loads(disk.files()[name])
    examine_sealed(disk, name)


def examine_sealed(disk: SimDisk, name: str) -> None:
    disk.flip(name, 400)
    refuses(disk, name)


def test_the_record_of_another_application_is_not_believed() -> None:
    disk = log_with_side_files()
    body = {"app": "another", "version": 9}
    for data in (side_file.encode_side_file(RECORD, body), json.dumps(body).encode()):
        put(disk, RECORD, data)
        refuses(disk, RECORD)


def bars_with_a_record() -> tuple[SimDisk, str]:
    disk = SimDisk()
    rows = pa.record_batch({"symbol": ["A"], "time": [1_609_545_600 * 10**9], "Price": [5]})
    with open_store(disk) as store:
        part = bar_staging.stage(disk, bar_staging.new_job(TXN), 0, [rows], "1D", "X")
        assert bar_staging.commit(store, disk, [part], TXN)
    return disk, bar_staging.area(disk).transaction_path("query")


def test_every_flipped_bit_of_a_record_of_a_bar_store_is_noticed() -> None:
    disk, name = bars_with_a_record()
    for bit in range(8 * len(disk.files()[name])):
        disk.flip(name, bit)
        assert names_of(damaged_records(disk)) == [name]
        with pytest.raises(CorruptError, match="txn-"):
            bar_staging.area(disk).committed_version("query")
        disk.flip(name, bit)
    assert damaged_records(disk) == ()
    disk.flip(name, 300)
    with open_store(disk) as store:
        for damage in (store.status().damage, store.verify().damage):
            assert names_of(damage) == [name]
        assert store.verify().verdict == store.status().verdict == "corrupt"
        with pytest.raises(CorruptError, match="commits nothing until"):
            bar_staging.commit(store, disk, [], Transaction("query", 8))
        assert store.query("A", "1D", "X")["Price"].to_pylist() == [5]
        assert bar_staging.commit(store, disk, [], Transaction("another", 1))


# Planted bugs

mutant = Mutants()


def examine() -> None:
    for name in READ:
        examine_flips(name, step=3)
    examine_positions(log_with_side_files(), 99_999_999)


def test_nothing_is_found_without_a_planted_bug() -> None:
    examine()


@mutant
def the_checksum_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(side_file, "_checksum", lambda name, body: 0)


@mutant
def the_length_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    original = side_file._unwrap

    def unwrap(name: str, data: bytes) -> Any:
        header = side_file._HEADER.match(data)
        if header is None:
            return original(name, data)
        length = len(data) - header.end() - len(side_file._END)
        return original(name, data[: header.start(1)] + b"%d" % length + data[header.end(1) :])

    patch.setattr(side_file, "_unwrap", unwrap)


@mutant
def a_position_beyond_the_log_is_registered(patch: pytest.MonkeyPatch) -> None:
    original = Replicas._write
    patch.setattr(Replicas, "_write", lambda self, one, last: original(self, one, 2**64))


@mutant
def a_position_beyond_the_log_counts(patch: pytest.MonkeyPatch) -> None:
    original = Replicas.__init__

    def init(self: Replicas, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        if "last_index" in options:  # the owner's
            self._last_index = lambda: 2**64

    patch.setattr(Replicas, "__init__", init)


@mutant
def an_unsound_file_counts_as_absent(patch: pytest.MonkeyPatch) -> None:
    def read(*args: Any) -> Any:
        try:
            return read_side_file(*args)
        except CorruptError:
            return None

    patch.setattr(replicas, "read_side_file", read)


@pytest.mark.parametrize("name", mutant)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant[name](monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        examine()
