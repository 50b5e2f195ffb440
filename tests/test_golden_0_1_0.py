"""Version 0.1.0 wrote these stores.  Every later version opens them: docs/upgrade.md.

What is expected was noted by the program that wrote them: tests/golden/0.1.0/PROVENANCE.md.
A pipeline is continued, with Spark, in tests/spark/pipelines/test_golden_0_1_0.py.
"""

import json
from collections.abc import Callable, Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from tests.goldens import Goldens, digests, move_parquet
from typer.testing import CliRunner, Result

import holdfast
from holdfast.bars import staging as bar_staging
from holdfast.bucket import connect
from holdfast.cli.app import app
from holdfast.disk import OsDisk
from holdfast.doors import open_bars, open_kv, read_bars, read_kv
from holdfast.errors import UnsupportedError
from holdfast.formats.sst import Rows
from holdfast.integrations.pysyncobj import RaftJournal
from holdfast.kv import BulkLoad, Kv, write_sorted
from holdfast.kv.cas import open_bucket
from holdfast.logs import staging
from holdfast.logs.replicas import Replicas
from holdfast.logs.retention import Retention
from holdfast.staged import Transaction

STORES = Goldens("0.1.0")
APP = "golden-query"
NEW = [b"new one", b"new two"]
TICK_NS = 86_400 * 10**9 / 2**32  # the precision of a tick in a file of days

UNFINISHED = {"file-log-torn-slots", "file-log-rollback-begun", "file-log-discard-begun"}
"""Logs with a write that the next owner finishes.  `verify` of 0.1.0 did not report that."""

LOGS, KVS, BARS = (STORES.names(kind) for kind in ("log", "kv", "bars"))

Unpack = Callable[[str], tuple[Path, dict[str, Any]]]


@pytest.fixture
def unpack(tmp_path: Path) -> Unpack:
    """A store's directory, and what is expected of it."""

    def unpacked(name: str) -> tuple[Path, dict[str, Any]]:
        return STORES.unpack(name, tmp_path) / "store", deepcopy(STORES.expected[name])

    return unpacked


def cli(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def cli_lines(*args: object) -> list[Any]:
    return [json.loads(line) for line in cli(*args, "--json").stdout.splitlines()]


def cli_json(*args: object) -> Any:
    return json.loads(cli(*args, "--json").stdout)


def as_bytes(texts: Iterable[str]) -> list[bytes]:
    return [text.encode("latin-1") for text in texts]


def test_all_kinds_are_here() -> None:
    assert (len(LOGS), len(KVS), len(BARS)) == (36, 5, 12)
    assert STORES.names("pipeline") + STORES.names("journal") == ["pipeline", "journal"]


# Logs


def entries_of(log: Any) -> list[bytes]:
    """All entries, from a scan; each also read alone."""
    scanned = [payload for batch in log.scan() for payload in batch["payload"].to_pylist()]
    indexes = range(log.first_index, log.last_index + 1)
    assert [log.read(index) for index in indexes] == scanned
    return scanned


def recovered_of(expected: dict[str, Any]) -> list[bytes]:
    """The entries when an owner has recovered the log."""
    kept = expected.get("kept", len(expected["entries"]))
    return as_bytes(expected["entries"][:kept] + expected["recovered"])


def first_of(expected: dict[str, Any]) -> int:
    first: int = expected.get("first_index_later", expected["first_index"])
    return first


@pytest.mark.parametrize("name", LOGS)
def test_a_guest_reads_a_log_and_changes_nothing(name: str, unpack: Unpack) -> None:
    path, expected = unpack(name)
    before = digests(path)
    with holdfast.read_log(path) as guest:
        shown = entries_of(guest)
        assert guest.first_index == expected["first_index"]
        if "kept" not in expected:
            check_facts(guest, expected)
    sees_all = expected.get("guest_sees_recovered", False)
    assert shown == (recovered_of(expected) if sees_all else as_bytes(expected["entries"]))
    verdict, code = ("torn tail", 3) if name in UNFINISHED else expected["verify"]
    verified = cli("log", "verify", path, "--json")
    assert (json.loads(verified.stdout)["verdict"], verified.exit_code) == (verdict, code)
    assert replicas_of(path) == expected["replicas"]
    assert digests(path) == before


@pytest.mark.parametrize("name", LOGS)
def test_an_owner_recovers_a_log_and_can_append(name: str, unpack: Unpack) -> None:
    path, expected = unpack(name)
    old = recovered_of(expected)
    with holdfast.open_log(path) as log:
        assert entries_of(log) == old
        assert log.first_index == first_of(expected)
        check_facts(log, expected)
        new = new_payloads(log, expected)
        assert log.append(new) == log.first_index + len(old) + len(new) - 1
    assert bool(list(path.glob("*.cut"))) == expected.get("cut", False)
    for opened in (holdfast.read_log(path), holdfast.open_log(path)):
        with opened as log:
            assert entries_of(log) == old + new
            assert log.first_index == first_of(expected)
            check_facts(log, expected)
    assert cli("log", "verify", path).exit_code == 0
    assert replicas_of(path) == expected["replicas"]


def replicas_of(path: Path) -> dict[str, int]:
    return {replica.name: replica.acknowledged for replica in Replicas(OsDisk(path)).list()}


@pytest.mark.parametrize("name", STORES.names("log", "replicas"))
def test_replicas_are_listed(name: str, unpack: Unpack) -> None:
    path, expected = unpack(name)
    last = expected["first_index"] + len(expected["entries"]) - 1
    found = cli_lines("log", "replicas", path, "list")
    assert {one["name"]: one["acknowledged"] for one in found} == expected["replicas"]
    assert all(one["lag"] == last - one["acknowledged"] for one in found)
    assert cli_json("log", "inspect", path)["format"] == expected["format"]


def check_facts(log: Any, expected: dict[str, Any]) -> None:
    """What a format has besides payloads."""
    for index, entry in expected.get("raft", {}).items():
        found = log.get_log(int(index))
        assert (found.term, found.type) == (entry["term"], entry["type"])
        assert [found.data, found.extensions] == as_bytes([entry["data"], entry["extensions"]])
        assert found.appended_at.hex() == entry["appended_at"]
    for key, value in expected.get("stable", {}).items():
        assert log.get(key.encode()) == (None if value is None else value.encode())
    for key, number in expected.get("stable_numbers", {}).items():
        assert log.get_uint64(key.encode()) == number
    for index, (term, type, request_id) in expected.get("file_entries", {}).items():
        entry = log.get_entry(int(index))
        assert (entry.term, entry.type, entry.request_id.hex()) == (term, type, request_id)
    if snapshot := expected.get("snapshot"):
        assert (log.snapshot.index, log.snapshot.term) == (snapshot["index"], snapshot["term"])
        assert log.read_snapshot() == snapshot["data"].encode()
    if state := expected.get("state"):
        assert log.read_state().items() >= state.items()
        if hasattr(log, "state"):  # of an owner
            assert log.state.values.items() >= state.items()


def new_payloads(log: Any, expected: dict[str, Any]) -> list[bytes]:
    if "raft" not in expected:
        return NEW
    from holdfast.formats.raft_entry import RaftEntry, encode_entry

    after = log.last_index + 1
    return [encode_entry(RaftEntry(after + at, 9, data=data)) for at, data in enumerate(NEW)]


@pytest.mark.parametrize("name", STORES.names("log", "transactions"))
def test_a_transaction_of_a_log_is_committed_once(name: str, unpack: Unpack) -> None:
    path, expected = unpack(name)
    disk, version = OsDisk(path), expected["transactions"][APP]
    with holdfast.open_log(path) as log:
        assert staging.area(disk).read_intent() is None
        assert staging.area(disk).committed_version(APP) == version
        left = 0 if expected.get("unfinished") else expected.get("staged_files", 0)
        assert len(staging.area(disk).files()) == left
        for again in (version - 1, version):
            assert staging.commit(log, disk, [stage(disk, again)], Transaction(APP, again)) is None
        assert entries_of(log) == recovered_of(expected)
        done = staging.commit(log, disk, [stage(disk, 9)], Transaction(APP, 9))
        assert done is not None
        assert entries_of(log) == recovered_of(expected) + NEW
        swept = staging.sweep(disk, staging.new_job(Transaction(APP, 10)))
        assert len(swept) == left
    with holdfast.open_log(path) as log:
        assert staging.area(disk).committed_version(APP) == 9
        assert entries_of(log) == recovered_of(expected) + NEW


def stage(disk: OsDisk, version: int) -> staging.Staged:
    rows = pa.record_batch({"payload": pa.array(NEW, pa.binary())})
    return staging.stage(disk, staging.new_job(Transaction(APP, version)), 0, [rows])


@pytest.mark.parametrize("name", ["shanghai-killed", "raft-wal-killed"])
def test_compaction_waits_for_a_replica_of_0_1_0(name: str, unpack: Unpack) -> None:
    path, expected = unpack(name)
    with holdfast.open_log(path) as log:
        done = log.trim(Retention(before=log.last_index))
        assert "north" in done.stopped_by
        assert log.first_index <= expected["replicas"]["north"] + 1
        kept = recovered_of(expected)[log.first_index - expected["first_index"] :]
        assert entries_of(log) == kept


def test_requests_of_a_file_log_are_remembered(unpack: Unpack) -> None:
    path, expected = unpack("file-log-closed")
    asked = {
        bytes.fromhex(request_id): int(index)
        for index, (_, _, request_id) in expected["file_entries"].items()
        if int(request_id, 16)
    }
    with holdfast.open_log(path, request_ttl_ms=None, requests_max=1000) as log:
        for request_id, index in asked.items():
            assert log.find_request(request_id) == index  # type: ignore[attr-defined]
            again = log.append_request(request_id, b"again", term=5)  # type: ignore[attr-defined]
            assert again == index
        assert entries_of(log) == recovered_of(expected)


def test_a_log_that_0_1_0_converted_goes_back(tmp_path: Path, unpack: Unpack) -> None:
    path, expected = unpack("shanghai-converted")
    target = tmp_path / "back"
    assert cli("log", "convert", path, target, "--to", "raft-wal").exit_code == 0
    with holdfast.read_log(target) as log:
        assert entries_of(log) == as_bytes(expected["entries"])
        check_facts(log, expected["origin"])


def test_a_journal_of_0_1_0_can_be_continued(unpack: Unpack) -> None:
    path, expected = unpack("journal")
    entries = [(data.encode("latin-1"), *rest) for data, *rest in expected["entries"]]
    for _ in range(2):
        journal = RaftJournal(OsDisk(path))
        assert journal[:] == entries
        vote = journal.getCurrentTerm(), journal.getVotedForNodeId()
        assert vote == (expected["term"], expected["vote"])
        entries.append((b"\0more", entries[-1][1] + 1, 4))
        journal.add(*entries[-1])
        journal.flush()
        journal._destroy()


# Key-value stores


def rows_of(expected: dict[str, str]) -> dict[bytes, bytes]:
    return dict(zip(as_bytes(expected), as_bytes(expected.values()), strict=True))


def kv_recovered(expected: dict[str, Any]) -> dict[bytes, bytes]:
    return rows_of(expected["rows"] | expected.get("recovered", {}))


def cas_of(path: Path, expected: dict[str, Any]) -> str | None:
    cas: str | None = expected["cas"]
    return cas and cas.format(directory=path.parent)


def open_db(path: Path, expected: dict[str, Any]) -> Kv:
    bucket = open_bucket(str(path), cas_of(path, expected))
    return open_kv(bucket, flush_ms=None, watch_ms=None, maintain=False)


def check_snapshots(path: Path, expected: dict[str, Any]) -> None:
    listed = {UUID(one["id"]): one for one in cli_lines("kv", "snapshot", path, "list")}
    for snapshot in expected["snapshots"]:
        assert listed[UUID(snapshot["id"])]["manifest_id"] == snapshot["manifest_id"]
        with read_kv(connect(str(path)), at=snapshot["manifest_id"], lazy=True) as reader:
            assert dict(reader.items()) == rows_of(snapshot["rows"])


@pytest.mark.parametrize("name", KVS)
def test_a_reader_reads_a_kv_store_and_changes_nothing(name: str, unpack: Unpack) -> None:
    path, expected = unpack(name)
    before = digests(path.parent)
    rows = rows_of(expected["rows"])
    with read_kv(str(path), lazy=True) as reader:
        assert dict(reader.items()) == rows
        assert all(reader.get(key) == value for key, value in rows.items())
        assert [reader.get(key) for key in (b"user/0006", b"user/0202", b"user/0300")] == [None] * 3
    check_snapshots(path, expected)
    verified = cli("kv", "verify", path, "--json")
    found = json.loads(verified.stdout)["verdict"], verified.exit_code
    assert found == ("clean", expected["verify"])
    assert digests(path.parent) == before


@pytest.mark.parametrize("name", KVS)
def test_a_writer_recovers_a_kv_store_and_can_write(name: str, unpack: Unpack) -> None:
    path, expected = unpack(name)
    rows = kv_recovered(expected)
    with open_db(path, expected) as db:
        assert dict(db.items()) == rows
        db.write({b"new": b"value", b"user/0001": None}).result()
    del rows[b"user/0001"]
    rows[b"new"] = b"value"
    with open_db(path, expected) as db:
        assert dict(db.items()) == rows
    check_snapshots(path, expected)
    assert cli("kv", "verify", path).exit_code == 0


@pytest.mark.parametrize("name", KVS)
def test_compaction_and_garbage_collection_keep_all_of_a_kv_store(
    name: str, unpack: Unpack
) -> None:
    path, expected = unpack(name)
    cas = cas_of(path, expected)
    options = ["--cas", cas] if cas else []
    assert cli("kv", "compact", path, "--everything", *options).exit_code == 0
    assert cli("kv", "gc", path, "--apply", *options).exit_code == 0
    with read_kv(str(path), lazy=True) as reader:
        assert dict(reader.items()) == kv_recovered(expected)
    check_snapshots(path, expected)
    dropped = [snapshot["id"] for snapshot in expected["snapshots"]]
    assert cli("kv", "snapshot", path, "drop", *dropped, *options).exit_code == 0
    with open_db(path, expected) as db:
        assert dict(db.items()) == kv_recovered(expected)


@pytest.mark.parametrize("name", KVS)
def test_a_batch_of_a_kv_store_is_loaded_once(name: str, unpack: Unpack) -> None:
    path, expected = unpack(name)
    bucket = open_bucket(str(path), cas_of(path, expected))
    batch = expected["transactions"][APP]
    for again in (batch - 1, batch):
        assert BulkLoad(bucket, transaction=(APP, again)).is_committed
    load = BulkLoad(bucket, transaction=(APP, batch + 1))
    assert not load.is_committed
    ssts = write_sorted(bucket, load.job, [Rows.from_pairs([(b"user/0300", b"loaded", 0)])])
    assert load.commit(ssts)
    with read_kv(str(path), lazy=True) as reader:
        assert dict(reader.items()) == kv_recovered(expected) | {b"user/0300": b"loaded"}


@pytest.mark.parametrize("name", [name for name in KVS if "two-phase" in name])
def test_a_two_phase_store_is_not_opened_without_its_records(name: str, unpack: Unpack) -> None:
    path, expected = unpack(name)
    before = digests(path)
    with pytest.raises(UnsupportedError):
        open_bucket(str(path))
    assert digests(path) == before
    count = len(expected.get("recovered", {}))
    for options, left in ([], count), (["--apply"], count), ([], 0):
        found = cli_json("kv", "repair", path, "--cas", cas_of(path, expected), *options)
        assert len(found["unfinished"]) == left
        assert found["applied"] == bool(options and left)


# Bars and ticks


def check_bars(store: Any, buckets: dict[str, list[list[Any]]]) -> None:
    assert store.buckets() == sorted(buckets)
    for key, rows in buckets.items():
        symbol, timeframe, attributes = key.split("/")
        table = store.query(symbol, timeframe, attributes)
        assert table.column_names[:2] == ["symbol", "time"]
        times = table["time"].cast(pa.int64()).to_pylist()
        wanted = [row[0] for row in rows]
        if attributes == "TICK":
            assert times == pytest.approx(wanted, rel=0, abs=TICK_NS)
        else:
            assert times == wanted
        columns = [table[name].to_pylist() for name in table.column_names[2:]]
        assert [list(row) for row in zip(*columns, strict=True)] == [row[1:] for row in rows]


def bars_recovered(expected: dict[str, Any]) -> dict[str, list[list[Any]]]:
    buckets: dict[str, list[list[Any]]] = expected.get("recovered", expected["buckets"])
    return buckets


@pytest.mark.parametrize("name", BARS)
def test_a_guest_reads_bars_and_changes_nothing(name: str, unpack: Unpack) -> None:
    path, expected = unpack(name)
    before = digests(path)
    with read_bars(path) as guest:
        check_bars(guest, expected["buckets"])
        assert not guest.damage
    assert cli("bars", "verify", path).exit_code == expected["verify"]
    replay = cli("bars", "replay", path, "--json")
    assert replay.exit_code == expected["replay"]
    if expected["undecided"]:
        assert json.loads(replay.stdout)["undecided"] == expected["undecided"]
    assert digests(path) == before


@pytest.mark.parametrize("name", BARS)
def test_an_owner_recovers_bars_and_can_write(name: str, unpack: Unpack) -> None:
    path, expected = unpack(name)
    buckets = bars_recovered(expected)
    with open_bars(path) as store:
        check_bars(store, buckets)
        assert list(store.undecided) == expected["undecided"]
        store.write({"time": [NEW_TIME], **NEW_BAR}, "1D", "OHLCV", symbol="AAPL")
        store.write(NEW_TICK, "1D", "TICK", symbol="AAPL", is_variable=True)
    buckets["AAPL/1D/OHLCV"].append([NEW_TIME, *(value for (value,) in NEW_BAR.values())])
    buckets["AAPL/1D/TICK"].append([NEW_TIME, 9.5, 7])
    assert bool(list(path.glob("*.cut"))) == expected.get("cut", False)
    for open_any in (read_bars, open_bars):
        with open_any(path) as found:
            check_bars(found, buckets)
    assert cli("bars", "verify", path).exit_code == 0


NEW_TIME = 1_735_516_800 * 10**9  # 2024-12-30
NEW_BAR: dict[str, list[Any]] = {
    "Open": [1.0],
    "High": [2.0],
    "Low": [0.5],
    "Close": [1.5],
    "Volume": [3],
}
NEW_TICK = {"time": [NEW_TIME], "Price": [9.5], "Size": [7]}


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("name", STORES.names("bars", "undecided"))
def test_a_prepared_group_can_be_decided(name: str, commit: bool, unpack: Unpack) -> None:
    path, expected = unpack(name)
    (tgid,) = expected["undecided"]
    done = cli("bars", "replay", path, "--apply", "--commit" if commit else "--abort", tgid)
    assert done.exit_code == 0, done.output
    for open_any in (read_bars, open_bars):
        with open_any(path) as store:
            check_bars(store, expected["if_committed"] if commit else expected["buckets"])
    assert not list(path.glob("WALFile.*"))


@pytest.mark.parametrize("name", STORES.names("bars", "transactions"))
def test_a_transaction_of_bars_is_committed_once(name: str, unpack: Unpack) -> None:
    path, expected = unpack(name)
    disk, version = OsDisk(path), expected["transactions"][APP]
    with open_bars(path) as store:
        assert bar_staging.area(disk).read_intent() is None
        assert bar_staging.area(disk).committed_version(APP) == version
        for again in (version - 1, version):
            part = stage_bars(disk, again)
            assert not bar_staging.commit(store, disk, [part], Transaction(APP, again))
        check_bars(store, bars_recovered(expected))
        assert bar_staging.commit(store, disk, [stage_bars(disk, 9)], Transaction(APP, 9))
    buckets = bars_recovered(expected)
    buckets["AAPL/1D/TICK"].append([NEW_TIME, 9.5, 7])
    with read_bars(path) as guest:
        check_bars(guest, buckets)


def stage_bars(disk: OsDisk, version: int) -> bar_staging.Staged:
    times = pa.array(NEW_TICK["time"], pa.timestamp("ns"))
    batch = pa.record_batch({"symbol": ["AAPL"], **NEW_TICK, "time": times})
    job = bar_staging.new_job(Transaction(APP, version))
    return bar_staging.stage(disk, job, 0, [batch], "1D", "TICK", is_variable=True)


# A pipeline


def test_the_status_of_a_pipeline_is_read_from_its_checkpoint(tmp_path: Path) -> None:
    expected = STORES.expected["pipeline"]
    path = STORES.unpack("pipeline", tmp_path)
    move_parquet(path / "archive", expected["written_at"], path)
    before = digests(path)
    found = cli_json("pipeline", "status", path / "pipeline.toml")
    sinks = expected["sinks"]
    assert (found["pipeline"], found["running"]) == ("golden", None)
    assert found["dead_letters"] == len(sinks["dead_letters"])
    assert {sink["name"]: sink["rows"] for sink in found["sinks"]} == {
        "lines": len(sinks["lines"]),
        "prices": None,
        "bars": None,
        "archive": len(sinks["archive"]),
        "dead-letters": len(sinks["dead_letters"]),
    }
    for sink in found["sinks"]:
        assert (sink["batch"], sink["rows_read"]) == (expected["batch"], expected["rows_read"])
        assert sink["lags"] == [
            {"source": "ticks", "behind": expected["behind"], "unit": sink["lags"][0]["unit"]}
        ]
    assert digests(path) == before


def test_the_sinks_of_a_pipeline_are_read_without_spark(tmp_path: Path) -> None:
    path, sinks = STORES.unpack("pipeline", tmp_path), STORES.expected["pipeline"]["sinks"]
    with holdfast.read_log(path / "lines") as log:
        assert entries_of(log) == as_bytes(sinks["lines"])
    with read_kv(str(path / "prices"), lazy=True) as reader:
        assert dict(reader.items()) == rows_of(sinks["prices"])
    with read_bars(path / "bars") as guest:
        check_bars(guest, sinks["bars"])
    with holdfast.read_log(path / "state" / "dead-letters") as log:
        letters = [json.loads(letter)["index"] for letter in entries_of(log)]
    assert letters == sinks["dead_letters"]
