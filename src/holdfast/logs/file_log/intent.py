"""Changes of several files that must be complete: recorded first, then carried out.

    holdfast-intent.json    {"crc32": ..., "intent": {"kind": "rollback" or "discard", ...}}

Once the record is durable the change will be completed, whatever crashes: the next owner carries it
out before it reads anything else.  Other programs do not know of it.  If one has written since,
which is visible in the bytes that were to be removed, the change is abandoned.
"""

import json
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from isal.isal_zlib import crc32

from holdfast.disk import Disk, File
from holdfast.errors import CorruptError
from holdfast.formats import rlog
from holdfast.formats.flaw import Flaw
from holdfast.logs.file_log.active import judge, read_commit
from holdfast.logs.file_log.directory import (
    LOG,
    SNAPSHOT,
    create_file,
    find_files,
    index_name,
    index_sizes,
    read_snapshot_head,
    reader,
)
from holdfast.logs.file_log.history import Stamps, replace

INTENT = "holdfast-intent.json"
_WITNESS_SIZE = 65_536


@dataclass(frozen=True, slots=True)
class Rollback:
    """Remove the entries from `index` on."""

    index: int
    file_index: int  # the first index of the file that holds it
    keeps_file: bool  # entries remain in that file, or it is the only one
    witness: int  # crc32 of the first bytes that are removed
    kind: str = "rollback"


@dataclass(frozen=True, slots=True)
class Discard:
    """Replace the whole log by a snapshot."""

    index: int
    term: int
    temporary: str  # the snapshot, complete and synced
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
    """Return the recorded change, if there is one.  CorruptError if it cannot be read."""
    try:
        file = disk.open(INTENT)
    except FileNotFoundError:
        return None
    with closing(file):
        data = file.read_at(0, 2**16)
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
    with closing(disk.open(index_name(file_index))) as file:
        return Rollback(index, file_index, keeps_file, _witness(file, index, file_index))


def carry_out(disk: Disk, intent: Intent, stamps: Stamps) -> str:
    """Complete a change, however much of it is done already; return what was done."""
    if isinstance(intent, Rollback):
        done = _roll_back(disk, intent)
    else:
        done = _discard(disk, intent, stamps)
    disk.remove(INTENT)
    return done


def _roll_back(disk: Disk, intent: Rollback) -> str:
    name, sizes = index_name(intent.file_index), index_sizes(disk)
    if name in sizes:
        with closing(disk.open(name, writable=True)) as file:
            if _witness(file, intent.index, intent.file_index) != intent.witness:
                return f"a rollback to {intent.index} is abandoned: others have written since"
            _cut_slots(file, intent, sizes[name])
    # The slots are zero, so later files are not visible; newest first, so that no gap appears.
    for later in reversed(sizes):
        if later > name or (later == name and not intent.keeps_file):
            disk.remove(later)
    return f"removed the entries from {intent.index} on"


def _cut_slots(file: File, intent: Rollback, size: int) -> None:
    head = rlog.decode_head(reader(file))
    assert isinstance(head, rlog.Head), "judged when it was planned"
    commit = read_commit(file, head, size)  # it must not restore the removed entries
    if commit is not None:
        file.resize(size - commit.size)
    slot = intent.index - intent.file_index
    offset = rlog.TABLE_START + rlog.SLOT_SIZE * slot
    file.write_at(offset, bytes(head.header.table_stop - offset))
    file.sync()


def _witness(file: File, index: int, file_index: int) -> int:
    """Return the crc32 of the first bytes that a rollback to `index` removes."""
    head = rlog.decode_head(reader(file))
    if isinstance(head, Flaw):
        return -1
    slot, start, size = index - file_index, 0, file.size()
    if slot:
        offset = rlog.TABLE_START + rlog.SLOT_SIZE * (slot - 1)
        start = int.from_bytes(file.read_at(offset, rlog.SLOT_SIZE), "little")
    commit = read_commit(file, head, size)
    stop = size - (commit.size if commit else 0)
    begin = head.data_start + start
    return int(crc32(file.read_at(begin, max(0, min(_WITNESS_SIZE, stop - begin)))))


def _discard(disk: Disk, intent: Discard, stamps: Stamps) -> str:
    if intent.temporary in disk.list():
        replace(disk, intent.temporary, SNAPSHOT, intent.snapshot)
    head = read_snapshot_head(disk, disk.list())
    if isinstance(head, Flaw | None) or (head.index, head.term) != (intent.index, intent.term):
        return f"a discard at {intent.index} is abandoned: the snapshot is another by now"
    directories = disk.directories()
    if intent.log not in directories and LOG in directories:
        if _last_index(disk) != intent.last_index:
            return f"a discard at {intent.index} is abandoned: others have written since"
        disk.rename(LOG, intent.log)
    begin_log(disk, intent.index + 1, intent.capacity, stamps)
    return f"began at entry {intent.index + 1}, after the snapshot; kept {intent.log}"


def begin_log(disk: Disk, index: int, capacity: int, stamps: Stamps) -> None:
    """Create an empty index file, unless it exists."""
    if index_name(index) not in index_sizes(disk):
        create_file(disk, index, capacity, stamps.meta())


def _last_index(disk: Disk) -> int:
    found = find_files(disk)
    if not found or isinstance(found[-1].head, Flaw):
        return -1
    return found[-1].index + judge(disk, found[-1], found[-1].head).count - 1
