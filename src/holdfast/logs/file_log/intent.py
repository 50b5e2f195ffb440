"""Changes of several files that must happen whole: written down first, then carried out.

    holdfast-intent.json    {"crc32": ..., "intent": {"kind": "rollback" or "discard", ...}}

Once it is durable the change happens, whatever crashes: the next owner carries it out before it
looks at anything else.  Another program knows nothing of it; if one has written since, which shows
in the bytes that were to go, the intent is given up.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from isal.isal_zlib import crc32

from holdfast.disk import Disk, File
from holdfast.errors import CorruptError
from holdfast.formats import rlog
from holdfast.formats.flaw import Flaw
from holdfast.logs.file_log.directory import (
    LOG,
    SNAPSHOT,
    find_files,
    index_name,
    index_sizes,
    read_snapshot_head,
    reader,
)
from holdfast.logs.file_log.history import Stamps, replace
from holdfast.logs.file_log.tail import judge_tail, read_commit

INTENT = "holdfast-intent.json"
_WITNESS_SIZE = 65_536


@dataclass(frozen=True, slots=True)
class Rollback:
    """Entries from `index` on go."""

    index: int
    file_index: int  # where the file begins that has it
    keeps_file: bool  # something is left in it, or it is the only one
    witness: int  # crc32 of the first bytes that go
    kind: str = "rollback"


@dataclass(frozen=True, slots=True)
class Discard:
    """The whole log goes, and a snapshot takes its place."""

    index: int
    term: int
    temporary: str  # the snapshot, whole and synced
    snapshot: str  # the name that the old snapshot gets
    log: str  # the name that the old log gets
    last_index: int  # of the old log
    capacity: int
    kind: str = "discard"


Intent: TypeAlias = Rollback | Discard


def write_intent(disk: Disk, intent: Intent) -> None:
    fields = asdict(intent)
    document = {"crc32": _crc_of(fields), "intent": fields}
    disk.create(INTENT, json.dumps(document).encode(), replace=True)


def read_intent(disk: Disk) -> Intent | None:
    """What is under way, if anything.  CorruptError if that cannot be told."""
    try:
        file = disk.open(INTENT)
    except FileNotFoundError:
        return None
    try:
        data = file.read_at(0, 2**16)
    finally:
        file.close()
    try:
        document = json.loads(data)
        fields = document["intent"]
        if document["crc32"] != _crc_of(fields):
            raise CorruptError(INTENT, 0, "checksum mismatch")
        return Rollback(**fields) if fields["kind"] == "rollback" else Discard(**fields)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(INTENT, 0, f"not an intent: {error!r}") from error


def _crc_of(fields: dict[str, Any]) -> int:
    return int(crc32(json.dumps(fields, sort_keys=True).encode()))


def plan_rollback(disk: Disk, index: int, file_index: int, *, keeps_file: bool) -> Rollback:
    file = disk.open(index_name(file_index))
    try:
        witness = _witness(disk, file, index, file_index)
    finally:
        file.close()
    return Rollback(index, file_index, keeps_file, witness)


def carry_out(disk: Disk, intent: Intent, stamps: Stamps) -> str:
    """Do what is due, however much of it is done already; return what was done."""
    if isinstance(intent, Rollback):
        told = _roll_back(disk, intent)
    else:
        told = _discard(disk, intent, stamps)
    disk.remove(INTENT)
    return told


def _roll_back(disk: Disk, intent: Rollback) -> str:
    name, sizes = index_name(intent.file_index), index_sizes(disk)
    if name in sizes:
        file = disk.open(name, writable=True)
        try:
            if _witness(disk, file, intent.index, intent.file_index) != intent.witness:
                return f"a rollback to {intent.index} is given up: others have written since"
            _cut_slots(file, intent, sizes[name])
        finally:
            file.close()
    # The slots are zero, so nobody sees what is in the files behind; newest first, as no gap.
    for later in reversed(sizes):
        if later > name or (later == name and not intent.keeps_file):
            disk.remove(later)
    return f"rolled back to before entry {intent.index}"


def _cut_slots(file: File, intent: Rollback, size: int) -> None:
    head = rlog.decode_head(reader(file))
    assert isinstance(head, rlog.Head), "judged when it was planned"
    commit = read_commit(file, head, size)  # it must not bring back what goes now
    if commit is not None:
        file.resize(size - commit.size)
    slot = intent.index - intent.file_index
    offset = rlog.TABLE_START + rlog.SLOT_SIZE * slot
    file.write_at(offset, bytes(head.header.table_stop - offset))
    file.sync()


def _witness(disk: Disk, file: File, index: int, file_index: int) -> int:
    """The first bytes that a rollback to `index` gives free."""
    head = rlog.decode_head(reader(file))
    if isinstance(head, Flaw):
        return -1
    slot = index - file_index
    start = 0
    if slot:
        offset = rlog.TABLE_START + rlog.SLOT_SIZE * (slot - 1)
        start = int.from_bytes(file.read_at(offset, rlog.SLOT_SIZE), "little")
    size = disk.list(_parent(index_name(file_index)))[f"{file_index:014x}.rlog"]
    commit = read_commit(file, head, size)
    stop = size - (commit.size if commit else 0)
    begin = head.data_start + start
    return int(crc32(file.read_at(begin, max(0, min(_WITNESS_SIZE, stop - begin)))))


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _discard(disk: Disk, intent: Discard, stamps: Stamps) -> str:
    if intent.temporary in disk.list():
        replace(disk, intent.temporary, SNAPSHOT, intent.snapshot)
    head = read_snapshot_head(disk, disk.list())
    if not isinstance(head, Flaw | None) and (head.index, head.term) == (intent.index, intent.term):
        directories = disk.directories()
        if intent.log not in directories and LOG in directories:
            if _last_index(disk) != intent.last_index:
                return f"a discard at {intent.index} is given up: others have written since"
            disk.rename(LOG, intent.log)
        begin_log(disk, intent.index + 1, intent.capacity, stamps)
        return f"began anew at entry {intent.index + 1}, behind the snapshot; {intent.log} is kept"
    return f"a discard at {intent.index} is given up: the snapshot is another by now"


def begin_log(disk: Disk, index: int, capacity: int, stamps: Stamps) -> None:
    """Make an empty index file, unless it is there."""
    name = index_name(index)
    if name not in index_sizes(disk):
        header = rlog.Header(index, rlog.capacity_for(index, capacity))
        disk.create(name, rlog.encode_file(header, stamps.meta()))


def _last_index(disk: Disk) -> int:
    found = find_files(disk)
    if not found or isinstance(found[-1].head, Flaw):
        return -1
    last, head = found[-1], found[-1].head
    file = disk.open(last.name)
    try:
        return last.index + judge_tail(file, head, last.size).count - 1
    finally:
        file.close()
