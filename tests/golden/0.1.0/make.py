"""Write the golden stores of version 0.1.0: one archive per store, and expected.json.

Run it with the code of version 0.1.0 only, from the root of the repository:

    PYTHONPATH=src python tests/golden/0.1.0/make.py /srv/golden

The argument is an empty directory to work in.  Use a neutral path: a Parquet sink stores it.

Every recipe runs in a process of its own, in a directory of its own, on relative paths.  A recipe
keeps a ledger: what it wrote, and what 0.1.0 promises about it.  The ledger becomes the store's
part of expected.json.  Nothing in it is read back from the store.

A recipe that ends with `ledger.die()` ends with SIGKILL, with the store open.  Recipes replace
single methods to die at a certain step.  They change nothing else.

Later versions do not run this file, so the type checker leaves it out.
"""

import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

import holdfast
from holdfast.bars import open_bars
from holdfast.bars import staging as bar_staging
from holdfast.bars.store import BarStore
from holdfast.bucket import DirectoryBucket
from holdfast.disk import OsDisk
from holdfast.formats.raft_entry import COMMAND, CONFIGURATION, NOOP, RaftEntry, Time, encode_time
from holdfast.formats.raft_entry import encode_entry as encode_raft_entry
from holdfast.formats.raft_wal import RAFT_CODEC
from holdfast.formats.rlog_entry import CHECKPOINT, CHECKPOINT_DATA, CONFIG, STATE, FileEntry
from holdfast.formats.sst import Rows
from holdfast.integrations.pysyncobj.journal import RaftJournal
from holdfast.kv import BulkLoad, CompactionOptions, Compactor, Db, write_sorted
from holdfast.kv.cas import TwoPhaseBucket, open_bucket
from holdfast.kv.cas.open import open_records
from holdfast.logs import staging
from holdfast.logs.conversion import convert_log
from holdfast.logs.file_log import log as file_log
from holdfast.logs.replicas import Replicas
from holdfast.logs.retention import Retention
from holdfast.staged import Transaction

HERE = Path(__file__).parent
STORE = Path("store")
EXPECTED = "../expected-{}.json"
MODIFIED_S = 1_767_225_600  # of every file in the archives
NO_PROCESS = (
    2**22 + 1
)  # no process has this number, so no process looks like the owner of a bar log

LOG_OPTIONS: dict[str, dict[str, Any]] = {
    "shanghai": {"segment_size_max": 200},
    "raft-wal": {"segment_size_max": 512},
    "file-log": {"capacity": 8, "hostname": "golden-host", "request_ttl_ms": None}
    | {"requests_max": 4},
}
APP = "golden-query"
STEPS = {
    "staged": "Version 6 of a transaction is committed; tasks staged version 7; killed.",
    "after the note": "As staged; a note says that a commit began; killed.",
    "prepared": "As staged; a note, and one of two groups is prepared; killed.",
    "after the intent": "As staged; the intent is written, and nothing is appended; killed.",
    "half of the append": "As staged; the intent is written, half is appended; killed.",
    "before the record": "As staged; all is in the store, version 7 is not recorded; killed.",
    "after the record": "As staged; version 7 is recorded, the intent is still there; killed.",
    "finished": "Version 6 of a transaction is committed; closed.",
}


class Ledger:
    """What a recipe wrote.  Saved before the recipe ends."""

    def __init__(self, name: str, **about: Any) -> None:
        self._name, self.about = name, about

    def save(self) -> None:
        Path(EXPECTED.format(self._name)).write_text(json.dumps(self.about))

    def die(self) -> NoReturn:
        """End this process as a crash does."""
        self.save()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("not reached")


def text(data: bytes) -> str:
    """Bytes in JSON: one character per byte."""
    return data.decode("latin-1")


# Logs


class LogLedger(Ledger):
    """A log's entries, as they were acknowledged.  `recovered` comes after them, if anything."""

    def __init__(self, name: str, format: str) -> None:
        super().__init__(name, kind="log", format=format, first_index=1, entries=[], recovered=[])
        self.about |= {"replicas": {}, "transactions": {}, "verify": ["clean", 0]}
        self.format = format

    @property
    def last_index(self) -> int:
        return int(self.about["first_index"]) + len(self.about["entries"]) - 1

    def payloads(self, count: int) -> list[bytes]:
        """The next payloads: text, and bytes of all kinds."""
        first = self.last_index + 1
        return [
            b"entry %d " % index + bytes((index * 31 + 7 * at) % 256 for at in range(index % 24))
            for index in range(first, first + count)
        ]

    def add(self, payloads: Sequence[bytes]) -> None:
        self.about["entries"] += map(text, payloads)

    def drop_before(self, first: int) -> None:
        self.about["entries"] = self.about["entries"][first - self.about["first_index"] :]
        self.about["first_index"] = first

    def drop_after(self, last: int) -> None:
        self.about["entries"] = self.about["entries"][: last + 1 - self.about["first_index"]]

    def create(self, **options: Any) -> Any:
        return holdfast.create_log(STORE, self.format, **LOG_OPTIONS[self.format], **options)

    def append(self, log: Any, *counts: int) -> None:
        """Append batches of these sizes, and note each when it is acknowledged."""
        for count in counts:
            payloads = self.payloads(count)
            last = log.append(payloads)
            self.add(payloads)
            assert last == self.last_index

    def register(self, **replicas: int) -> None:
        for name, acknowledged in replicas.items():
            Replicas(OsDisk(STORE)).register(name, acknowledged)
            self.about["replicas"][name] = acknowledged


def closed_shanghai(ledger: LogLedger) -> None:
    """Several segments; the oldest were compacted away; two replicas."""
    with ledger.create() as log:
        ledger.append(log, 1, 3, 5, 1, 8, 2, 9)
        ledger.register(north=11, south=29)
        done = log.compact(Retention(acknowledged=True))
        assert done.removed
        ledger.drop_before(done.first_index)
        ledger.append(log, 4)
        log.rotate()
        ledger.append(log, 2)


def closed_raft_wal(ledger: LogLedger) -> None:
    """Opaque payloads; both ends truncated, the head within a segment; two replicas."""
    with ledger.create() as log:
        ledger.append(log, 1, 3, 5, 1, 8, 2, 9)
        ledger.register(north=11, south=29)
        log.truncate_head(8)
        ledger.drop_before(8)
        log.truncate_tail(27)
        ledger.drop_after(27)
        ledger.append(log, 4)
        log.rotate()
        ledger.append(log, 2)


def raft_entries(first: int, count: int, term: int) -> list[RaftEntry]:
    made = []
    for index in range(first, first + count):
        type = (COMMAND, COMMAND, NOOP, CONFIGURATION)[index % 4]
        at = encode_time(Time(1_700_000_000 * 10**9 + index, None if index % 2 else 3600))
        extensions = b"ext %d" % index if index % 5 == 0 else b""
        made.append(RaftEntry(index, term, type, b"command %d" % index, extensions, at))
    return made


def store_raft_entries(ledger: LogLedger, log: Any, count: int, term: int) -> None:
    entries = raft_entries(ledger.last_index + 1, count, term)
    log.store_logs(entries)
    ledger.add([encode_raft_entry(entry) for entry in entries])
    ledger.about.setdefault("raft", {}).update(
        {
            str(entry.index): {
                "term": entry.term,
                "type": entry.type,
                "data": text(entry.data),
                "extensions": text(entry.extensions),
                "appended_at": entry.appended_at.hex(),
            }
            for entry in entries
        }
    )


def set_stable(ledger: LogLedger, log: Any) -> None:
    log.set_uint64(b"CurrentTerm", 4)
    log.set_uint64(b"LastVoteTerm", 4)
    log.set(b"LastVoteCand", b"server-2:8300")
    log.set(b"gone", b"soon")
    log.set(b"gone", None)
    ledger.about["stable"] = {"LastVoteCand": "server-2:8300", "gone": None}
    ledger.about["stable_numbers"] = {"CurrentTerm": 4, "LastVoteTerm": 4}


def raft_codec(ledger: LogLedger) -> None:
    """Raft entries and keys of the stable store; the log begins at 100; closed."""
    ledger.about["first_index"] = 100
    with ledger.create(codec=RAFT_CODEC) as log:
        store_raft_entries(ledger, log, 7, 3)
        set_stable(ledger, log)
        store_raft_entries(ledger, log, 9, 4)
        log.delete_range(100, 102)
        ledger.drop_before(103)
    for index in (100, 101, 102):
        del ledger.about["raft"][str(index)]


def raft_codec_killed(ledger: LogLedger) -> None:
    """Raft entries and keys of the stable store; the log begins at 100; killed."""
    ledger.about["first_index"] = 100
    log = ledger.create(codec=RAFT_CODEC)
    store_raft_entries(ledger, log, 7, 3)
    set_stable(ledger, log)
    store_raft_entries(ledger, log, 9, 4)
    ledger.die()


def append_file_entries(ledger: LogLedger, log: Any, entries: Sequence[FileEntry]) -> None:
    first = ledger.last_index + 1
    log.append_entries(entries)
    ledger.add([bytes(entry.data) for entry in entries])
    ledger.about.setdefault("file_entries", {}).update(
        {
            str(index): [entry.term, entry.type, entry.request_id.hex()]
            for index, entry in enumerate(entries, first)
        }
    )


def request(number: int) -> bytes:
    return b"request-%04d" % number


def set_state(ledger: LogLedger, log: Any) -> None:
    log.state.update({"currentTerm": 2, "votedFor": "id1"})
    log.state.update({"currentTerm": 5, "votedFor": "id2", "peers": [["id1", "tcp://one"]]})
    ledger.about["state"] = {"currentTerm": 5, "votedFor": "id2", "peers": [["id1", "tcp://one"]]}


def closed_file_log(ledger: LogLedger) -> None:
    """A snapshot, files pruned behind it, a rollback, terms, requests, a server's state."""
    with ledger.create() as log:
        append_file_entries(ledger, log, [FileEntry(1, CHECKPOINT_DATA, CHECKPOINT)])
        ledger.append(log, 3, 5, 1, 8, 2)
        ledger.register(north=19, south=20)
        log.truncate_tail(18)
        ledger.drop_after(18)
        append_file_entries(
            ledger,
            log,
            [
                FileEntry(5, CHECKPOINT_DATA, CHECKPOINT),
                FileEntry(5, b"state by request", STATE, request(1)),
                FileEntry(5, b"peers by request", CONFIG, request(2)),
            ],
        )
        ledger.append(log, 12)
        set_state(ledger, log)
        log.create_snapshot(17, b"all up to entry 17")
        ledger.drop_before(18)
        ledger.about["snapshot"] = {"index": 17, "term": 1, "data": "all up to entry 17"}
        assert log.compact(Retention(before=17)).removed
    del ledger.about["file_entries"]["1"]


def file_log_state_killed(ledger: LogLedger) -> None:
    """Killed with its state file open, and a snapshot that came from a leader."""
    log = ledger.create()
    ledger.append(log, 5)
    log.install_snapshot(40, 3, b"sent by a leader")
    ledger.drop_after(0)
    ledger.about["first_index"] = 41
    ledger.about["snapshot"] = {"index": 40, "term": 3, "data": "sent by a leader"}
    ledger.append(log, 3, 9)
    set_state(ledger, log)
    ledger.die()


def killed(ledger: LogLedger) -> None:
    """Killed after acknowledged appends, over several segments."""
    log = ledger.create()
    ledger.append(log, 1, 3, 5, 1, 8, 2)
    ledger.register(north=7)
    ledger.append(log, 3)
    ledger.die()


class DyingFile:
    """A file whose Nth write is torn in the middle by the end of the process."""

    def __init__(self, file: Any, ledger: Ledger, whole_writes: int = 0) -> None:
        self._file, self._ledger, self._left = file, ledger, whole_writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write_at(
        self, offset: int, data: bytes | bytearray | memoryview, *, sync: bool = False
    ) -> None:
        if self._left == 0:
            self._file.write_at(offset, bytes(data)[: len(data) // 2], sync=True)
            self._ledger.die()
        self._left -= 1
        self._file.write_at(offset, data, sync=sync)


def torn(ledger: LogLedger) -> None:
    """Killed when half of a batch of three was written."""
    log = ledger.create()
    ledger.append(log, 1, 3, 5, 1, 2)
    if ledger.format != "file-log":
        log._file = DyingFile(log._file, ledger)
    else:
        log._writer._file = DyingFile(log._writer._file, ledger)
    batch = [letter * 20 for letter in (b"x", b"y", b"z")]
    if ledger.format == "shanghai":  # shows and keeps the whole entries of a torn batch
        ledger.about |= {"recovered": [text(batch[0])], "guest_sees_recovered": True}
    if ledger.format != "file-log":  # in which bytes that no slot shows are no flaw
        ledger.about |= {"verify": ["torn tail", 3], "cut": True}
    log.append(batch)


def torn_slots(ledger: LogLedger) -> None:
    """Killed between the two writes of a batch: the entries are there, half of the slots."""
    log = ledger.create()
    ledger.append(log, 1, 3, 5, 1, 2)
    log._writer._file = DyingFile(log._writer._file, ledger, whole_writes=1)
    batch = [letter * 20 for letter in (b"x", b"y", b"z")]
    ledger.about["recovered"] = list(map(text, batch))
    log.append(batch)


def torn_seal(ledger: LogLedger) -> None:
    """Killed in a rotation: the successor is there, and half of the seal."""
    log = ledger.create()
    ledger.append(log, 3)
    log._file = DyingFile(log._file, ledger)
    log.rotate()


def sealed(ledger: LogLedger) -> None:
    """Killed in a rotation: the segment is sealed, and the meta store does not say so."""
    log = ledger.create()
    ledger.append(log, 3)
    log._rotate = ledger.die
    log.rotate()


def torn_state(ledger: LogLedger) -> None:
    """Killed when half of a record of the state file was written."""
    log = ledger.create()
    ledger.append(log, 3)
    log.state.update({"currentTerm": 2, "votedFor": "id1"})
    log.state._file = DyingFile(log.state._file, ledger)
    ledger.about |= {"state": {"currentTerm": 7, "votedFor": "id3"}, "cut": True}
    log.state.update({"currentTerm": 7, "votedFor": "id3"})


def rollback_begun(ledger: LogLedger) -> None:
    """Killed when a rollback over two files was written down, and nothing of it was done."""
    log = ledger.create()
    ledger.append(log, 3, 9)
    file_log.carry_out = lambda *_: ledger.die()  # type: ignore[attr-defined]
    ledger.about["kept"] = 5
    log.truncate_tail(5)


def discard_begun(ledger: LogLedger) -> None:
    """Killed when a leader's snapshot was written down, and nothing of it was done."""
    log = ledger.create()
    ledger.append(log, 3, 9)
    file_log.carry_out = lambda *_: ledger.die()  # type: ignore[attr-defined]
    ledger.about |= {"kept": 0, "first_index_later": 41}
    ledger.about["snapshot"] = {"index": 40, "term": 3, "data": "sent by a leader"}
    log.install_snapshot(40, 3, b"sent by a leader")


def converted(ledger: LogLedger) -> None:
    """Made of a raft-wal log of Raft entries; origin.json keeps its stable store and its codec."""
    ledger.about["first_index"] = 100
    path = Path("before")
    with holdfast.create_log(path, "raft-wal", codec=RAFT_CODEC, segment_size_max=512) as log:
        store_raft_entries(ledger, log, 7, 3)
        set_stable(ledger, log)
    convert_log(path, STORE, "shanghai", **LOG_OPTIONS["shanghai"])
    shutil.rmtree(path)
    ledger.about["origin"] = {key: ledger.about.pop(key) for key in ("stable", "stable_numbers")}
    ledger.about["origin"]["raft"] = ledger.about.pop("raft")


def journal(ledger: Ledger) -> None:
    """A journal of PySyncObj: entries, term, vote, and a head that was cut; killed."""
    journal = RaftJournal(OsDisk(STORE), segment_size_max=512)
    entries = [(bytes([index % 2]) + b"command %d" % index, index, 1 + index // 8) for index in
               range(1, 20)]  # fmt: skip
    for entry in entries:
        journal.add(*entry)
    journal.flush()
    journal.setCurrentTerm(3, "10.0.0.5:4321")
    journal.deleteEntriesTo(6)
    ledger.about |= {"entries": [[text(data), index, term] for data, index, term in entries[6:]]}
    ledger.about |= {"term": 3, "vote": "10.0.0.5:4321"}
    ledger.die()


class DyingDisk(OsDisk):
    """A disk on which the process dies before or after a certain step."""

    def __init__(self, path: Path, die: Callable[[], NoReturn], at: str) -> None:
        super().__init__(path)
        self._die, self._step = die, at

    def create(self, name: str, data: Any = b"", *, replace: bool = False) -> None:
        if "/txn-" in name and self._step == "before the record":
            self._die()
        super().create(name, data, replace=replace)
        if name.endswith("/intent.json"):
            if self._step == "after the note" and "others" in json.loads(bytes(data)):
                self._die()
            if self._step == "after the intent" and "files" in json.loads(bytes(data)):
                self._die()

    def remove(self, *names: str) -> None:
        if self._step == "after the record" and names[0].endswith("/intent.json"):
            self._die()
        super().remove(*names)


class HalfLog:
    """A log that appends half of a batch, and then the process dies."""

    def __init__(self, log: Any, ledger: Ledger) -> None:
        self._log, self._ledger = log, ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, payloads: Any) -> NoReturn:
        self._log.append(payloads.slice(0, len(payloads) // 2))
        self._ledger.die()


def stage_rows(version: int, *, ordered: bool) -> tuple[list[staging.Staged], list[bytes]]:
    """Rows of two tasks, and the order in which a commit appends them."""
    job = staging.new_job(Transaction(APP, version))
    disk, parts, rows = OsDisk(STORE), [], []
    for partition, numbers in ((1, (3, 5)), (0, (4, 1, 2))):
        payloads = [b"staged %d of version %d" % (number, version) for number in numbers]
        columns = {"payload": pa.array(payloads, pa.binary())}
        if ordered:
            columns["order"] = pa.array(numbers, pa.int64())
        parts.append(staging.stage(disk, job, partition, [pa.record_batch(columns)]))
        rows += [(number if ordered else partition, payload) for payload, number in
                 zip(payloads, numbers, strict=True)]  # fmt: skip
    return parts, [payload for _, payload in sorted(rows, key=lambda row: row[0])]


def staged(step: str) -> Callable[[LogLedger], None]:
    """A transaction that ends at this step."""

    def recipe(ledger: LogLedger) -> None:
        log = ledger.create()
        ledger.append(log, 2, 3)
        ordered = step in ("half of the append", "before the record")
        parts, first = stage_rows(6, ordered=ordered)
        staging.commit(log, OsDisk(STORE), parts, Transaction(APP, 6), ordered=ordered)
        ledger.add(first)
        ledger.about["transactions"] = {APP: 6}
        if step == "finished":
            ledger.append(log, 2)
            log.close()
            return
        parts, rows = stage_rows(7, ordered=ordered)
        ledger.about["staged_files"] = 2
        if step == "staged":
            ledger.die()
        ledger.about["transactions"] = {APP: 7}
        ledger.about["unfinished"] = True
        visible = {"after the intent": 0, "half of the append": 2}.get(step, len(rows))
        ledger.add(rows[:visible])
        ledger.about["recovered"] = list(map(text, rows[visible:]))
        disk = DyingDisk(STORE, ledger.die, step)
        owner = HalfLog(log, ledger) if step == "half of the append" else log
        staging.commit(owner, disk, parts, Transaction(APP, 7), ordered=ordered)

    recipe.__doc__ = STEPS[step]
    return recipe


# Key-value stores


class KvLedger(Ledger):
    """The rows of a store, as they were acknowledged, and of its snapshots."""

    def __init__(self, name: str, cas: str | None) -> None:
        super().__init__(name, kind="kv", cas=cas, rows={}, snapshots=[], transactions={})
        self.about["verify"] = 0

    def bucket(self) -> Any:
        cas = self.about["cas"]
        return open_bucket(str(STORE), cas.format(directory=".") if cas else None)

    def open(self, bucket: Any = None) -> Db:
        return Db.open(bucket or self.bucket(), flush_ms=None, watch_ms=None, maintain=False)

    def write(self, db: Db, rows: dict[bytes, bytes | None]) -> None:
        """One SST of the WAL."""
        db.write(rows).result()
        self.note(rows)

    def note(self, rows: dict[bytes, bytes | None]) -> None:
        for key, value in rows.items():
            if value is None:
                self.about["rows"].pop(text(key), None)
            else:
                self.about["rows"][text(key)] = text(value)

    def snapshot(self, db: Db) -> None:
        """One that does not expire."""
        made = db.snapshot(None)
        self.about["snapshots"].append(
            {"id": str(made.id), "manifest_id": made.manifest_id, "rows": dict(self.about["rows"])}
        )


def kv_rows(first: int, last: int, life: int) -> dict[bytes, bytes | None]:
    return {
        b"user/%04d" % number: b"life %d " % life + bytes((number + at) % 256 for at in range(9))
        for number in range(first, last)
    }


def bulk_load(ledger: KvLedger, batch: int, rows: dict[bytes, bytes | None]) -> None:
    bucket = ledger.bucket()
    load = BulkLoad(bucket, transaction=(APP, batch))
    pairs = [(key, value, 0) for key, value in sorted(rows.items())]
    half = len(pairs) // 2
    ssts = [
        sst
        for part in (pairs[:half], pairs[half:])
        for sst in write_sorted(bucket, load.job, [Rows.from_pairs(part)])
    ]
    assert load.commit(ssts)
    ledger.note(rows)
    ledger.about["transactions"][APP] = batch


def fill(ledger: KvLedger) -> None:
    """Runs, L0, a load, tombstones, two snapshots, SSTs of the WAL."""
    with ledger.open() as db:
        for first in range(0, 60, 20):
            ledger.write(db, kv_rows(first, first + 20, 1))
        ledger.write(db, {b"user/0003": None, b"user/0041": None, b"empty": b"", b"\xff\0": b"\0"})
    Compactor(ledger.bucket()).compact_everything()
    with ledger.open() as db:
        ledger.write(db, kv_rows(10, 20, 2) | {b"user/0005": None, b"never": None})
        ledger.snapshot(db)
        ledger.write(db, {b"user/0006": None, b"user/0003": b"again"})
    Compactor(ledger.bucket(), options=CompactionOptions(wal_count=1)).step()
    bulk_load(ledger, 3, kv_rows(50, 70, 3) | {b"user/0007": None})
    with ledger.open() as db:
        ledger.write(db, {b"user/0060": b"after the load", b"user/0061": None})
        ledger.snapshot(db)
        ledger.write(db, {b"user/0008": None})
        ledger.write(db, kv_rows(100, 103, 4))


def kv_closed(ledger: KvLedger) -> None:
    """Runs, L0, a load, tombstones, two snapshots, SSTs of the WAL; closed."""
    fill(ledger)


def kv_killed(ledger: KvLedger) -> None:
    """As closed; then a writer was killed beside a load that was never committed."""
    fill(ledger)
    db = ledger.open()
    ledger.write(db, {b"user/0009": None, b"user/0200": b"acknowledged"})
    ledger.write(db, {b"user/0201": b"acknowledged too"})
    load = BulkLoad(ledger.bucket(), transaction=(APP, 4))
    write_sorted(ledger.bucket(), load.job, [Rows.from_pairs([(b"user/0300", b"never", 0)])])
    db.put(b"user/0202", b"never flushed")
    ledger.die()


class DyingBucket(DirectoryBucket):
    """A bucket in which the process dies before it copies an object to its name, once armed."""

    die: Callable[[], NoReturn] | None = None

    def copy(self, source: str, destination: str) -> None:
        if self.die is not None:
            self.die()
        super().copy(source, destination)


def kv_half_write(ledger: KvLedger) -> None:
    """Killed in a two-phase write: the record took the name, and the copy was not made."""
    fill(ledger)
    bucket = DyingBucket(STORE)
    records = open_records(ledger.about["cas"].format(directory="."), "")
    db = ledger.open(TwoPhaseBucket(bucket, records))
    ledger.write(db, {b"user/0200": b"acknowledged"})
    ledger.about["recovered"] = {"user/0400": "decided, not copied"}
    bucket.die = ledger.die
    db.put(b"user/0400", b"decided, not copied").result()


# Bars and ticks

OHLCV = ("Open", "High", "Low", "Close", "Volume")
DAY_NS = 86_400 * 10**9
START = {"2023": 1_672_531_200 * 10**9, "2024": 1_704_067_200 * 10**9}


class BarLedger(Ledger):
    """Rows by bucket.  A bar replaces the one of its interval; ticks are kept all."""

    def __init__(self, name: str) -> None:
        super().__init__(name, kind="bars", buckets={}, transactions={}, verify=0, replay=0)
        self.about["undecided"] = []

    def open(self) -> BarStore:
        return open_bars(STORE, pid=NO_PROCESS)

    def write(
        self, store: Any, key: str, rows: dict[int, Sequence[Any]], ticks: bool = False
    ) -> None:
        """To a store or a group; noted when it returns."""
        symbol, timeframe, attributes = key.split("/")
        names = ("Price", "Size") if ticks else OHLCV
        table = {"time": np.array(list(rows), np.int64)}
        for at, name in enumerate(names):
            table[name] = np.array([row[at] for row in rows.values()])
        store.write(table, timeframe, attributes, symbol=symbol, is_variable=ticks)
        self.note(key, rows)

    def note(self, key: str, rows: dict[int, Sequence[Any]], into: str = "buckets") -> None:
        bucket = self.about[into].setdefault(key, [])
        if "TICK" not in key:
            bucket[:] = [row for row in bucket if row[0] not in rows]
        bucket += [[time, *values] for time, values in rows.items()]
        bucket.sort(key=lambda row: row[0])


def candles(
    year: str, first: int, count: int, price: float, step_ns: int = DAY_NS
) -> dict[int, Sequence[Any]]:
    return {
        START[year] + number * step_ns: (price, price + 2, price - 2, price + 0.5, number)
        for number in range(first, first + count)
    }


def ticks(year: str, day: int, count: int, price: float) -> dict[int, Sequence[Any]]:
    start = START[year] + day * DAY_NS + 52_200 * 10**9
    return {
        start + number * 1_500_000_000: (price + number / 4, number + 1) for number in range(count)
    }


def fill_bars(ledger: BarLedger) -> None:
    """Candles of days and hours over two years, ticks, removals: all in the year files."""
    with ledger.open() as store:
        ledger.write(store, "AAPL/1D/OHLCV", candles("2023", 360, 10, 100.0))
        ledger.write(store, "MSFT/1D/OHLCV", candles("2024", 0, 4, 300.0))
        ledger.write(store, "AAPL/1H/OHLCV", candles("2024", 14, 6, 101.0, DAY_NS // 24))
        ledger.write(store, "AAPL/1D/TICK", ticks("2024", 1, 7, 101.5), ticks=True)
    with ledger.open() as store:
        ledger.write(store, "AAPL/1D/OHLCV", candles("2024", 2, 3, 105.0))
        ledger.write(store, "AAPL/1D/TICK", ticks("2024", 1, 3, 202.5), ticks=True)
        gone = START["2024"] + DAY_NS
        assert store.delete("MSFT", "1D", "OHLCV", start=gone, end=gone) == 1
        rows = ledger.about["buckets"]["MSFT/1D/OHLCV"]
        rows[:] = [row for row in rows if row[0] != gone]


def bars_closed(ledger: BarLedger) -> None:
    """Candles of days and hours over two years, ticks, removals; all in the year files."""
    fill_bars(ledger)


def pend(ledger: BarLedger, store: BarStore) -> None:
    """Groups that no year file has yet: rows new and replaced, a new symbol, ticks, a removal."""
    ledger.write(store, "AAPL/1D/OHLCV", candles("2024", 4, 3, 110.0))
    group = store.group()
    ledger.write(group, "IBM/1D/OHLCV", candles("2024", 1, 2, 150.0))
    ledger.write(group, "AAPL/1D/TICK", ticks("2024", 2, 4, 111.0), ticks=True)
    group.commit()
    gone = START["2024"] + 2 * DAY_NS
    assert store.delete("MSFT", "1D", "OHLCV", start=gone, end=gone) == 1
    rows = ledger.about["buckets"]["MSFT/1D/OHLCV"]
    rows[:] = [row for row in rows if row[0] != gone]


def bars_killed(ledger: BarLedger) -> None:
    """Groups pending in the log, and a prepared group that is undecided; killed."""
    fill_bars(ledger)
    store = ledger.open()
    pend(ledger, store)
    group = store.group()
    visible = json.dumps(ledger.about["buckets"])
    ledger.write(group, "AAPL/1D/OHLCV", candles("2024", 6, 3, 500.0))
    ledger.write(group, "NVDA/1D/OHLCV", candles("2024", 6, 2, 700.0))
    ledger.write(group, "AAPL/1D/TICK", ticks("2024", 3, 2, 501.0), ticks=True)
    ledger.about["undecided"] = [group.prepare()]
    ledger.about["if_committed"] = ledger.about["buckets"]
    ledger.about["buckets"] = json.loads(visible)
    ledger.die()


def bars_prepared_closed(ledger: BarLedger) -> None:
    """A prepared group that is undecided; closed."""
    fill_bars(ledger)
    with ledger.open() as store:
        visible = json.dumps(ledger.about["buckets"])
        group = store.group()
        ledger.write(group, "NVDA/1D/OHLCV", candles("2024", 6, 2, 700.0))
        ledger.about["undecided"] = [group.prepare()]
        ledger.about["if_committed"] = ledger.about["buckets"]
        ledger.about["buckets"] = json.loads(visible)


def bars_writing_back(ledger: BarLedger) -> None:
    """Killed when the year files had the groups, ticks among them, and the log did not say so."""
    fill_bars(ledger)
    store = ledger.open()
    pend(ledger, store)
    store._tell = lambda changes: ledger.die()  # type: ignore[method-assign]
    store.write_back()


def bars_torn(ledger: BarLedger) -> None:
    """Groups pending in the log, and half of another; killed."""
    fill_bars(ledger)
    store = ledger.open()
    pend(ledger, store)
    wal = store._logs._active
    assert wal is not None
    wal._file = DyingFile(wal._file, ledger)
    ledger.about |= {"verify": 3, "replay": 3, "cut": True}
    store.write({"time": np.array([START["2024"]]), "Open": [1.0], "High": [1.0], "Low": [1.0],
                 "Close": [1.0], "Volume": [1]}, "1D", "OHLCV", symbol="AAPL")  # fmt: skip


def stage_bars(ledger: BarLedger, version: int) -> tuple[list[bar_staging.Staged], dict[str, Any]]:
    """Ticks of two tasks; and what they bring, by bucket."""
    job = bar_staging.new_job(Transaction(APP, version))
    brought: dict[str, Any] = {}
    parts = []
    for partition, symbol in enumerate(("AAPL", "TSLA")):
        rows = ticks("2024", 10 + version, 3, 10.0 * version + partition)
        brought[f"{symbol}/1D/TICK"] = rows
        batch = pa.record_batch(
            {
                "symbol": [symbol] * len(rows),
                "time": pa.array(list(rows), pa.timestamp("ns")),
                "Price": [row[0] for row in rows.values()],
                "Size": [row[1] for row in rows.values()],
            }
        )
        disk = OsDisk(STORE)
        parts.append(
            bar_staging.stage(disk, job, partition, [batch], "1D", "TICK", is_variable=True)
        )
    return parts, brought


def bars_staged(step: str) -> Callable[[BarLedger], None]:
    """A transaction that ends at this step."""

    def recipe(ledger: BarLedger) -> None:
        fill_bars(ledger)
        store = ledger.open()
        parts, brought = stage_bars(ledger, 6)
        assert bar_staging.commit(store, OsDisk(STORE), parts, Transaction(APP, 6))
        ledger.about["transactions"] = {APP: 6}
        for key, rows in brought.items():
            ledger.note(key, rows)
        if step == "finished":
            store.close()
            return
        parts, brought = stage_bars(ledger, 7)
        ledger.about["staged_files"] = 2
        if step == "staged":
            ledger.die()
        if step == "prepared":  # a note, and groups that were copied to the log
            adopt = store.adopt

            def adopt_and_die(group: Any) -> NoReturn:
                adopt(group)
                ledger.die()

            store.adopt = adopt_and_die  # type: ignore[method-assign]
        elif step != "after the note":
            ledger.about["transactions"] = {APP: 7}
            into = "recovered" if step == "after the intent" else "buckets"
            ledger.about["recovered"] = json.loads(json.dumps(ledger.about["buckets"]))
            for key, rows in brought.items():
                ledger.note(key, rows, into)
            if into == "buckets":
                del ledger.about["recovered"]
        ledger.about["unfinished"] = True
        disk = DyingDisk(STORE, ledger.die, step)
        bar_staging.commit(store, disk, parts, Transaction(APP, 7))

    recipe.__doc__ = STEPS[step]
    return recipe


# A pipeline

PIPELINE = '''
name = "golden"
checkpoint = "state"

[source.ticks]
format = "holdfast-log"
path = "ticks-log"
options = { maxEntriesPerTrigger = 25 }
parse = "json"
schema = "symbol STRING NOT NULL, at TIMESTAMP, price DOUBLE, size BIGINT"

[step.lines]
sql = "SELECT concat_ws(' ', _index, symbol, size) AS payload FROM ticks"

[step.last]
sql = "SELECT concat(symbol, '/', _index) AS key, cast(price AS STRING) AS value FROM ticks"

[step.days]
sql = """
SELECT symbol, window(at, '1 day').start AS time, min_by(price, _index) AS Open,
       max(price) AS High, min(price) AS Low, max_by(price, _index) AS Close, sum(size) AS Volume
FROM ticks GROUP BY symbol, window(at, '1 day')
"""

[sink.lines]
from = "lines"
format = "holdfast-log"
path = "lines"

[sink.prices]
from = "last"
format = "holdfast-kv"
path = "prices"

[sink.bars]
from = "days"
format = "holdfast-bars"
path = "bars"
mode = "update"
options = { timeframe = "1D", attributes = "OHLCV" }

[sink.archive]
from = "ticks"
format = "parquet"
path = "archive"
'''


def tick(index: int) -> dict[str, Any] | None:
    """One row of the source; every seventeenth is bad."""
    if index % 17 == 0:
        return None
    at = f"2024-01-{2 + index // 30:02}T14:30:{index % 60:02}Z"
    return {"symbol": "AB"[index % 2], "at": at, "price": 100 + index / 4, "size": index}


def payload_of(index: int) -> bytes:
    row = tick(index)
    return b"bad %d" % index if row is None else json.dumps(row).encode()


def sum_of(rows: list[dict[str, Any]]) -> int:
    return sum(row["size"] for row in rows)


def sinks_after(last: int) -> dict[str, Any]:
    """What the sinks hold when the pipeline has read so many entries.  Prices rise."""
    rows = {index: row for index in range(1, last + 1) if (row := tick(index)) is not None}
    bars: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for index, row in rows.items():
        day = START["2024"] + (1 + index // 30) * DAY_NS
        bars.setdefault(f"{row['symbol']}/1D/OHLCV", {}).setdefault(day, []).append(row)
    return {
        "lines": [f"{index} {row['symbol']} {row['size']}" for index, row in rows.items()],
        "prices": {f"{row['symbol']}/{i}": str(row["price"]) for i, row in rows.items()},
        "bars": {
            key: [
                [day, *(of_day[at]["price"] for at in (0, -1, 0, -1)), sum_of(of_day)]
                for day, of_day in days.items()
            ]
            for key, days in bars.items()
        },
        "archive": list(rows),
        "dead_letters": [index for index in range(1, last + 1) if index not in rows],
    }


def pipeline(ledger: Ledger) -> None:
    """Run twice to the end: 40 ticks in two batches, then 20; 5 more came after that."""
    Path("pipeline.toml").write_text(PIPELINE)
    command = [sys.executable, "-c", "from holdfast.cli import main; main()"]
    with holdfast.create_log("ticks-log") as log:
        log.append([payload_of(index) for index in range(1, 41)])
    subprocess.run([*command, "pipeline", "run", "pipeline.toml"], check=True)
    with holdfast.open_log("ticks-log") as log:
        log.append([payload_of(index) for index in range(41, 61)])
    subprocess.run([*command, "pipeline", "run", "pipeline.toml"], check=True)
    with holdfast.open_log("ticks-log") as log:
        log.append([payload_of(index) for index in range(61, 66)])
    ledger.about |= {"batch": 2, "rows_read": 20, "behind": 5, "written_at": str(Path.cwd())}
    ledger.about |= {"sinks": sinks_after(60), "sinks_later": sinks_after(65)}


# The driver

TWO_PHASE = "sqlite:{directory}/records.db?scope=golden"


def recipes() -> dict[str, tuple[Callable[[Any], None], Callable[[str], Ledger]]]:
    found: dict[str, tuple[Callable[[Any], None], Callable[[str], Ledger]]] = {}

    def logs(name: str, recipe: Callable[[LogLedger], None], *formats: str) -> None:
        for format in formats or LOG_OPTIONS:
            found[f"{format}-{name}"] = recipe, partial(LogLedger, format=format)

    logs("closed", closed_shanghai, "shanghai")
    logs("closed", closed_raft_wal, "raft-wal")
    logs("closed", closed_file_log, "file-log")
    logs("raft", raft_codec, "raft-wal")
    logs("raft-killed", raft_codec_killed, "raft-wal")
    logs("state-killed", file_log_state_killed, "file-log")
    logs("killed", killed)
    logs("torn", torn)
    logs("torn-slots", torn_slots, "file-log")
    logs("torn-seal", torn_seal, "shanghai")
    logs("sealed", sealed, "raft-wal")
    logs("torn-state", torn_state, "file-log")
    logs("rollback-begun", rollback_begun, "file-log")
    logs("discard-begun", discard_begun, "file-log")
    logs("converted", converted, "shanghai")
    logs("staged", staged("staged"))
    logs("intent", staged("after the intent"))
    logs("half-appended", staged("half of the append"), "shanghai", "file-log")
    logs("appended", staged("before the record"))
    logs("recorded", staged("after the record"))
    logs("transaction", staged("finished"))
    for name, kv_recipe in (("closed", kv_closed), ("killed", kv_killed)):
        found[f"kv-native-{name}"] = kv_recipe, partial(KvLedger, cas=None)
        found[f"kv-two-phase-{name}"] = kv_recipe, partial(KvLedger, cas=TWO_PHASE)
    found["kv-two-phase-half-write"] = kv_half_write, partial(KvLedger, cas=TWO_PHASE)
    for name, bar_recipe in (
        ("closed", bars_closed),
        ("killed", bars_killed),
        ("prepared-closed", bars_prepared_closed),
        ("writing-back", bars_writing_back),
        ("torn", bars_torn),
        ("staged", bars_staged("staged")),
        ("noted", bars_staged("after the note")),
        ("prepared", bars_staged("prepared")),
        ("intent", bars_staged("after the intent")),
        ("decided", bars_staged("before the record")),
        ("recorded", bars_staged("after the record")),
        ("transaction", bars_staged("finished")),
    ):
        found[f"bars-{name}"] = bar_recipe, BarLedger
    found["journal"] = journal, partial(Ledger, kind="journal")
    found["pipeline"] = pipeline, partial(Ledger, kind="pipeline")
    return found


def make(name: str) -> None:
    """Run one recipe.  The driver starts a process for each."""
    recipe, new_ledger = recipes()[name]
    ledger = new_ledger(name)
    recipe(ledger)
    ledger.save()


def archive(directory: Path, target: Path) -> None:
    """Pack a directory: names in order, no owners, one time for all files."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mtime = MODIFIED_S
        return info

    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(directory.rglob("*")):
            tar.add(path, str(path.relative_to(directory)), recursive=False, filter=plain)
    with target.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(data.getvalue())


def main() -> None:
    if sys.argv[1] == "--one":
        make(sys.argv[2])
        return
    work = Path(sys.argv[1])
    chosen = sys.argv[2:] or list(recipes())
    expected_path = HERE / "expected.json"
    expected = json.loads(expected_path.read_text()) if expected_path.exists() else {}
    for name in chosen:
        directory = work / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        command = [sys.executable, str(Path(__file__).resolve()), "--one", name]
        environment = os.environ | {"PYTHONPATH": str(Path("src").resolve())}
        done = subprocess.run(command, cwd=directory, env=environment, check=False)
        assert done.returncode in (0, -signal.SIGKILL), name
        noted = json.loads((work / f"expected-{name}.json").read_text())
        recipe, _ = recipes()[name]
        noted |= {"about": recipe.__doc__, "killed": done.returncode != 0}
        expected[name] = noted
        archive(directory, HERE / f"{name}.tar.gz")
        print(name, (HERE / f"{name}.tar.gz").stat().st_size)
    ordered = {name: expected[name] for name in recipes() if name in expected}
    expected_path.write_text(json.dumps(ordered, indent=1) + "\n")


if __name__ == "__main__":
    main()
