"""Damaged bytes for every format: flipped, cut, repeated, moved, and numbers as large as can be.

    Fuzz("raft-wal", seed=7).run(1000)       BrokenPromiseError, or how many were read and refused

The outcome is right data or one of our errors.  It is never another exception, more memory than
MEMORY_MAX, or more time than LIMIT_S.  Where the format has checksums, what is read is what was
written: a payload, a row or a document that no writer wrote is an invention.
"""

import io
import logging
import resource
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import pyarrow as pa

from holdfast.bars import BarReader
from holdfast.bucket.memory import MemoryBucket
from holdfast.doors import open_kv
from holdfast.errors import CorruptError, HoldfastError
from holdfast.formats import bolt
from holdfast.formats.flaw import Flaw
from holdfast.formats.manifest import decode_manifest
from holdfast.formats.raft_entry import RaftEntry, decode_entry, encode_entry
from holdfast.formats.side_file import decode_side_file, encode_side_file
from holdfast.formats.sst import decode_sst
from holdfast.formats.state_file import decode_records
from holdfast.logs.file_log import StateFile
from holdfast.runtime import Runtime
from holdfast.tabular import read_table, write_table
from holdfast.testing.bars import open_store
from holdfast.testing.file_log import FileLogSubject
from holdfast.testing.lives import BrokenPromiseError
from holdfast.testing.logs import Subject
from holdfast.testing.raft_wal import RaftWalSubject
from holdfast.testing.shanghai import ShanghaiSubject
from holdfast.testing.sim_disk import SimDisk

MEMORY_MAX = 256 << 20  # beyond what the process has when a run starts
LIMIT_S = 60  # for one run
_NUMBERS = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
_SIDE = "side.json"
_IMPATIENT = Runtime(sleep_ms=lambda delay_ms: None)  # no owner will come and finish its work
_NAME_SIZE = 20  # smaller files hold only a name

Files = dict[str, bytes]
Read = Callable[[Files], set[bytes]]


@dataclass(frozen=True, slots=True)
class Target:
    """Files of one format, and what reads them: it returns the payloads that it finds."""

    files: Files
    read: Read
    has_checksums: bool = True


def _log(subject: Subject, *, has_checksums: bool = True) -> Target:
    disk = SimDisk()
    with subject.open(disk) as log:
        for number in range(12):
            log.append([b"%d " % number * size for size in (1, 9, 30)])

    def read(files: Files) -> set[bytes]:
        with subject.open_reader(_disk_of(files)) as reader:
            return {p for batch in reader.scan() for p in batch["payload"].to_pylist()}

    return Target(_files_of(disk), read, has_checksums)


def _bars() -> Target:
    disk = SimDisk()
    store = open_store(disk)
    for day in range(1, 9):
        rows = {"Epoch": [1_609_459_200 + 86_400 * day], "Price": [day]}
        store.write(rows, "1D", "BAR", symbol="A")
        store.write(rows, "1D", "TICK", symbol="B", is_variable=True)
        if day == 4:
            store.flush()

    def read(files: Files) -> set[bytes]:
        with BarReader(_disk_of(files), runtime=_IMPATIENT) as reader:
            tables = [reader.query(*bucket.split("/")) for bucket in reader.buckets()]
            reader.verify()
        return {repr(row).encode() for table in tables for row in table.to_pylist()}

    return Target(_files_of(disk), read, has_checksums=False)  # year files have none


def _kv(prefix: str, decode: Callable[[bytes], set[bytes]]) -> Target:
    bucket = MemoryBucket()
    with open_kv(bucket, create=True, flush_ms=None, watch_ms=None, maintain=False) as store:
        for number in range(3):
            rows = {b"key %d" % i: b"value %d" % i * number for i in range(40)}
            store.write(rows).result()
    files = {info.name: bucket.get(info.name) for info in bucket.list(prefix)[-2:]}
    return Target(files, lambda files: {p for data in files.values() for p in decode(data)})


def _rows(data: bytes) -> set[bytes]:
    _, rows = decode_sst(data)
    return {repr(row).encode() for row in zip(rows.keys, rows.values, rows.seqs, strict=True)}


def _manifest(data: bytes) -> set[bytes]:
    return {decode_manifest(data).serialized()}


def _of(value: object) -> set[bytes]:
    """What a codec returns: damage as a value is as good as an error."""
    if isinstance(value, Flaw):
        raise CorruptError("fuzzed", value.offset, value.why)
    return {repr(value).encode()}


def _state_file() -> Target:
    disk = SimDisk()
    with StateFile(disk) as state:
        for term in range(9):
            state.update({"currentTerm": term, "votedFor": "n" * term})
    return _codec("raft.pers", _files_of(disk)["raft.pers"], decode_records, has_checksums=False)


def _codec(
    name: str, data: bytes, decode: Callable[[bytes], object], *, has_checksums: bool = True
) -> Target:
    return Target({name: data}, lambda files: _of(decode(files[name])), has_checksums)


def _bolt() -> Target:
    items: dict[bytes, bytes | bolt.Bucket] = {b"%d" % i: bytes(40) for i in range(300)}
    data = bolt.encode({b"stable": bolt.Bucket(items, 7)})
    return _codec("wal-meta.db", data, lambda data: bolt.decode(data), has_checksums=False)


def _side_file() -> Target:
    fields = {"app": str, "version": int}
    data = encode_side_file(_SIDE, {"app": "load", "version": 7})
    return _codec(_SIDE, data, lambda data: decode_side_file(_SIDE, data, fields))


def _raft_entry() -> Target:
    data = encode_entry(RaftEntry(7, term=3, data=b"payload" * 9))
    return _codec("entry", data, decode_entry, has_checksums=False)


def _table(format: str) -> Target:
    rows = pa.table({"key": [f"key {i}" for i in range(40)], "value": list(range(40))})
    file = io.BytesIO()
    write_table(rows, file, format)

    def read(files: Files) -> set[bytes]:
        try:
            with read_table(io.BytesIO(files[format]), format) as reader:
                return {str(batch.num_rows).encode() for batch in reader}
        except ValueError as error:  # an invalid argument: the file is not ours
            raise CorruptError(format, 0, str(error)) from error

    return Target({format: file.getvalue()}, read, has_checksums=False)


TARGETS: dict[str, Callable[[], Target]] = {
    "shanghai": lambda: _log(ShanghaiSubject()),
    "raft-wal": lambda: _log(RaftWalSubject()),
    "file-log": lambda: _log(FileLogSubject(), has_checksums=False),
    "bars": _bars,
    "sst": lambda: _kv("wal/", _rows),
    "manifest": lambda: _kv("manifest/", _manifest),
    "bolt": _bolt,
    "state file": _state_file,
    "side file": _side_file,
    "raft entry": _raft_entry,
    **{name: partial(_table, name) for name in ("arrow", "parquet", "csv", "jsonl")},
}


class Fuzz:
    """Mutants of one format's files, by a seed."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self._seed = name, seed
        self._target = TARGETS[name]()
        self._written = self._target.read(self._target.files)

    def run(self, count: int) -> Counter[str]:
        """Read so many mutants.  BrokenPromiseError names the first that is read wrongly."""
        found: Counter[str] = Counter()
        with _bounded():
            for number in range(count):
                try:
                    found[self.one(number)] += 1
                except BrokenPromiseError as error:
                    error.add_note(f"again: Fuzz({self.name!r}, {self._seed}).one({number})")
                    raise
        return found

    def one(self, number: int) -> str:
        """Read one mutant: "read" or "refused"."""
        files = dict(self._target.files)
        random = Random(f"{self.name}/{self._seed}/{number}")
        name = random.choice(sorted(name for name, data in files.items() if len(data) > _NAME_SIZE))
        files[name] = mutate(files[name], random)
        try:
            payloads = self._target.read(files)
        except (HoldfastError, OSError):
            return "refused"
        except Exception as error:
            raise BrokenPromiseError("broken", f"{name}: {error!r}") from error
        if self._target.has_checksums and not payloads <= self._written:
            raise BrokenPromiseError("invented", f"{name}: {min(payloads - self._written)!r}")
        return "read"


def mutate(data: bytes, random: Random) -> bytes:
    """Change bytes in one to three ways."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 3))):
        random.choice(_CHANGES)(changed, random)
    return bytes(changed)


def _at(data: bytearray, random: Random) -> slice:
    start = random.randrange(len(data) + 1)
    return slice(start, start + 1 + int(random.expovariate(1 / 12)))


def _flip(data: bytearray, random: Random) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _number(data: bytearray, random: Random) -> None:
    size, order = random.choice((1, 2, 4, 8)), random.choice(("big", "little"))
    number = random.choice(_NUMBERS) & (256**size - 1)
    start = random.randrange(len(data) + 1)
    data[start : start + size] = number.to_bytes(size, "big" if order == "big" else "little")


def _cut(data: bytearray, random: Random) -> None:
    del data[random.randrange(len(data) + 1) :]


def _delete(data: bytearray, random: Random) -> None:
    del data[_at(data, random)]


def _repeat(data: bytearray, random: Random) -> None:
    start = random.randrange(len(data) + 1)
    data[start:start] = data[_at(data, random)]


def _noise(data: bytearray, random: Random) -> None:
    where = _at(data, random)
    data[where] = random.randbytes(len(data[where]))


def _zeros(data: bytearray, random: Random) -> None:
    where = _at(data, random)
    data[where] = bytes(len(data[where]))


_CHANGES = (_flip, _flip, _number, _number, _cut, _delete, _repeat, _noise, _zeros)


def _files_of(disk: SimDisk) -> Files:
    """The files of a store that are data, and not empty."""
    return {name: data for name, data in disk.files().items() if data and name != "LOCK"}


def _disk_of(files: Files) -> SimDisk:
    disk = SimDisk()
    for name, data in files.items():
        disk.create(name, data)
    return disk


@contextmanager
def _bounded() -> Iterator[None]:
    """Too much memory is a MemoryError, which is not ours; too much time is a broken promise."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    logger = logging.getLogger("holdfast")
    level, pages = logger.level, int(Path("/proc/self/statm").read_text().split()[0])

    def stop(signal: int, frame: object) -> None:
        raise BrokenPromiseError("hidden", f"a run took more than {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT_S)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY_MAX, hard))
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        logger.setLevel(level)
