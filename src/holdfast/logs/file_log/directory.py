"""What the directory of a FileLog holds, told from names, sizes and heads.

    log/HHHHH/HH/HH/HHHHHHHHHHHHHH.rlog    index files, named after the first index in each
    snap                                   the snapshot: what the entries up to its index came to
    raft.pers                              the state of a Raft server (holdfast.logs.file_log.state)
    snap-DATE, log-DATE/, raft.pers-DATE   what each of them was before
    holdfast-intent.json                   a change of several files that is under way
    *.cut                                  what recovery or repair took out; never deleted

Nothing in these files has a checksum, so heads are held against names and neighbours.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from holdfast.disk import Disk, File
from holdfast.errors import UnsupportedError
from holdfast.formats import rlog, snapshot_file
from holdfast.formats.flaw import Flaw
from holdfast.formats.rlog_entry import ENTRY_HEADER_SIZE, decode_headers
from holdfast.formats.token_file import Read
from holdfast.logs.log import Damage

LOG, SNAPSHOT, STATE = "log", "snap", "raft.pers"

_WIDTHS = (5, 2, 2)  # of the names of the directories on the way to a file
_WINDOW_SIZE = 192  # what a usual head takes behind its slots


@dataclass(frozen=True, slots=True)
class Found:
    """One index file: its head, or what is wrong with it."""

    name: str
    index: int  # the first, by its name
    size: int
    head: rlog.Head | Flaw


def index_sizes(disk: Disk) -> dict[str, int]:
    """Names and sizes of the index files, in the order of their indexes."""
    return walk(disk)[1]


def walk(disk: Disk) -> tuple[list[str], dict[str, int]]:
    """All directories that may hold index files, those above them included; and the files."""
    level, directories = [LOG], [LOG]
    try:
        for width in _WIDTHS:
            level = [
                f"{d}/{name}" for d in level for name in disk.directories(d) if len(name) == width
            ]
            directories += level
        sizes = {f"{d}/{name}": size for d in level for name, size in disk.list(d).items()}
    except FileNotFoundError:
        if LOG in disk.directories():
            raise  # moved away between two looks
        return [], {}
    known = {n: size for n, size in sizes.items() if rlog.index_of(n[len(LOG) + 1 :]) is not None}
    return directories, known


def index_name(index: int) -> str:
    return f"{LOG}/{rlog.path_of(index)}"


def base_name(name: str) -> str:
    """The last part of a name: .cut files lie beside the log and not in its depths."""
    return name.rpartition("/")[2]


def is_file_log(disk: Disk) -> bool:
    """A log that has lost its snapshot file is one still."""
    if SNAPSHOT in disk.list():
        file = disk.open(SNAPSHOT)
        try:
            if file.read_at(0, 4) == b"SNAP":
                return True
        finally:
            file.close()
    return bool(index_sizes(disk))


def find_files(disk: Disk, sizes: dict[str, int] | None = None) -> list[Found]:
    """All index files, or these.  UnsupportedError if one is of another version."""
    sizes = index_sizes(disk) if sizes is None else sizes
    return [find_file(disk, name, size) for name, size in sizes.items()]


def find_file(disk: Disk, name: str, size: int) -> Found:
    """One index file, by its name."""
    index = rlog.index_of(name[len(LOG) + 1 :])
    assert index is not None, "only such names are listed"
    file = disk.open(name)
    try:
        head = rlog.decode_head(reader(file))
    except UnsupportedError as error:
        raise UnsupportedError(f"{name}: {error}") from error
    finally:
        file.close()
    if isinstance(head, rlog.Head) and head.header.first_index != index:
        head = Flaw(16, f"its first index is {head.header.first_index}, not {index} as its name")
    return Found(name, index, size, head)


def reader(file: File) -> Read:
    """Chunk headers and what they hold are mostly near each other: one read serves them."""
    window_start, window = 0, b""

    def read(offset: int, size: int) -> bytes:
        nonlocal window_start, window
        if not window_start <= offset <= offset + size <= window_start + len(window):
            window_start, window = offset, file.read_at(offset, max(size, _WINDOW_SIZE))
        begin = offset - window_start
        return window[begin : begin + size]

    return read


def read_snapshot_head(disk: Disk, names: Mapping[str, int]) -> snapshot_file.Head | Flaw | None:
    """What the snapshot is of; None if none is among these names."""
    size = names.get(SNAPSHOT)
    if size is None:
        return None
    file = disk.open(SNAPSHOT)
    try:
        return snapshot_file.decode_head(reader(file), size)
    except UnsupportedError as error:
        raise UnsupportedError(f"{SNAPSHOT}: {error}") from error
    finally:
        file.close()


def cross_check(disk: Disk, found: Sequence[Found]) -> Iterator[Damage]:
    """Where index files, all but the last, are not what their neighbours ask for."""
    for one, two in pairwise(found):
        span = one.index, two.index - 1
        if isinstance(one.head, Flaw):
            yield Damage(one.name, one.head.offset, *span, one.head.why)
        elif two.index > one.head.header.stop_index:
            first = one.head.header.stop_index
            why = f"missing: {base_name(one.name)} ends at {first - 1}"
            yield Damage(index_name(first), 0, first, span[1], why)
        elif why := _short(disk, one, one.head, two.index - one.index):
            yield Damage(one.name, rlog.TABLE_START, *span, why)


def _short(disk: Disk, one: Found, head: rlog.Head, count: int) -> str:
    """What is wrong with the last of `count` entries; nothing, mostly."""
    offset = rlog.TABLE_START + rlog.SLOT_SIZE * (count - 1)
    file = disk.open(one.name)
    try:
        end = int.from_bytes(file.read_at(offset, rlog.SLOT_SIZE), "little")
    finally:
        file.close()
    last = one.index + count - 1
    if not end:
        return f"it does not reach entry {last}, behind which the next file begins"
    if head.data_start + end > one.size:
        return f"entry {last} ends at byte {head.data_start + end} of {one.size}"
    return ""


def term_in(disk: Disk, found: Found, index: int) -> int | None:
    """The term of one entry, read with two small reads; None where there is no such entry."""
    head = found.head
    if isinstance(head, Flaw) or not found.index <= index < head.header.stop_index:
        return None
    slot = index - found.index
    file = disk.open(found.name)
    try:
        first = max(slot - 1, 0)
        offset = rlog.TABLE_START + rlog.SLOT_SIZE * first
        ends = rlog.decode_slots(file.read_at(offset, rlog.SLOT_SIZE * (slot + 1 - first)))
        start = int(ends[0]) if slot else 0
        data = file.read_at(head.data_start + start, ENTRY_HEADER_SIZE)
    finally:
        file.close()
    if not ends[-1] or int(ends[-1]) - start < ENTRY_HEADER_SIZE or len(data) < ENTRY_HEADER_SIZE:
        return None
    return int(decode_headers(memoryview(data), np.zeros(1, np.int64)).terms[0])
