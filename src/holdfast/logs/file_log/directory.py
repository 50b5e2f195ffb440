"""The directory of a FileLog: names, sizes and heads of its files.

    log/HHHHH/HH/HH/HHHHHHHHHHHHHH.rlog    index files, named after the first index in each
    snap                                   the snapshot: the state after the entries up to its index
    raft.pers                              the state of a Raft server (holdfast.logs.file_log.state)
    snap-DATE, log-DATE/, raft.pers-DATE   what each of them was before
    holdfast-intent.json                   a change of several files that is under way
    holdfast.mark                          how far the log was complete (holdfast.logs.mark)
    snap.tmp-0-mark                        no other program has opened the log for writing
    *.cut                                  bytes that recovery or repair removed; never deleted

These files have no checksums, so heads are checked against names and neighbours.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from holdfast.disk import Disk, File
from holdfast.errors import UnsupportedError
from holdfast.formats import rlog, snapshot_file
from holdfast.formats.flaw import Flaw
from holdfast.formats.mark import Mark
from holdfast.formats.rlog_entry import ENTRY_HEADER_SIZE, decode_headers
from holdfast.formats.token_file import Meta, Read
from holdfast.logs.log import Damage
from holdfast.logs.mark import MARK, read_mark

NAME = "file-log"
LOG, SNAPSHOT, STATE = "log", "snap", "raft.pers"
UNTOUCHED = f"{SNAPSHOT}.tmp-0-mark"

_WIDTHS = (5, 2, 2)  # of the names of the directories on the way to a file
_WINDOW_SIZE = 192  # what a usual head takes after its slots


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One index file that was found: its head, or what is wrong with it."""

    name: str
    index: int  # the first, by its name
    size: int
    head: rlog.Head | Flaw


def index_sizes(disk: Disk) -> dict[str, int]:
    """Return names and sizes of the index files, in the order of their indexes."""
    return walk(disk)[1]


def walk(disk: Disk) -> tuple[list[str], dict[str, int]]:
    """Return the directories that may hold index files, with those above; and the files."""
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
            raise  # it was moved away meanwhile
        return [], {}
    known = {n: size for n, size in sizes.items() if rlog.index_of(n[len(LOG) + 1 :]) is not None}
    return directories, known


def index_name(index: int) -> str:
    return f"{LOG}/{rlog.path_of(index)}"


def base_name(name: str) -> str:
    """Return the last part of a name: .cut files are beside the log, not inside."""
    return name.rpartition("/")[2]


def is_file_log(disk: Disk) -> bool:
    """Return whether this directory holds a FileLog, or did so when it was marked."""
    names = disk.list()
    if UNTOUCHED in names or (MARK in names and _is_marked(disk)):
        return True
    if SNAPSHOT in names:
        with closing(disk.open(SNAPSHOT)) as file:
            if file.read_at(0, 4) == b"SNAP":
                return True
    return bool(index_sizes(disk))


def _is_marked(disk: Disk) -> bool:
    mark = read_mark(disk)
    return isinstance(mark, Mark) and mark.format == NAME


def create_file(disk: Disk, index: int, nominal: int, meta: Meta) -> IndexFile:
    """Create the empty index file that begins at `index`, durably."""
    header = rlog.Header(index, rlog.capacity_for(index, nominal))
    data = rlog.encode_file(header, meta)
    disk.create(index_name(index), data)
    head = rlog.decode_head(lambda offset, size: data[offset : offset + size])
    return IndexFile(index_name(index), index, len(data), head)


def find_files(disk: Disk, sizes: dict[str, int] | None = None) -> list[IndexFile]:
    """Return all index files, or these.  UnsupportedError if one is of another version."""
    sizes = index_sizes(disk) if sizes is None else sizes
    return [find_file(disk, name, size) for name, size in sizes.items()]


def find_file(disk: Disk, name: str, size: int) -> IndexFile:
    """Return one index file, by its name."""
    index = rlog.index_of(name[len(LOG) + 1 :])
    if index is None:
        raise ValueError(f"{name} is not the name of an index file")
    with closing(disk.open(name)) as file:
        try:
            head = rlog.decode_head(reader(file))
        except UnsupportedError as error:
            raise UnsupportedError(f"{name}: {error}") from error
    if isinstance(head, rlog.Head) and head.header.first_index != index:
        head = Flaw(16, f"first index {head.header.first_index}, but its name says {index}")
    return IndexFile(name, index, size, head)


def find_holder(files: Sequence[IndexFile], index: int) -> IndexFile | None:
    """Return the file that holds an entry, if any does."""
    return next((file for file in reversed(files) if file.index <= index), None)


def reader(file: File) -> Read:
    """Read through a window: chunk headers and chunks are mostly near each other."""
    window_start, window = 0, b""

    def read(offset: int, size: int) -> bytes:
        nonlocal window_start, window
        if not window_start <= offset <= offset + size <= window_start + len(window):
            window_start, window = offset, file.read_at(offset, max(size, _WINDOW_SIZE))
        begin = offset - window_start
        return window[begin : begin + size]

    return read


def read_snapshot_head(
    disk: Disk, names: Mapping[str, int], name: str = SNAPSHOT
) -> snapshot_file.Head | Flaw | None:
    """Return the head of a snapshot; None if it is not among these names."""
    size = names.get(name)
    if size is None:
        return None
    with closing(disk.open(name)) as file:
        try:
            return snapshot_file.decode_head(reader(file), size)
        except UnsupportedError as error:
            raise UnsupportedError(f"{name}: {error}") from error


def cross_check(disk: Disk, found: Sequence[IndexFile]) -> Iterator[Damage]:
    """Yield what names, heads and neighbours contradict, for all index files but the last."""
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


def _short(disk: Disk, one: IndexFile, head: rlog.Head, count: int) -> str:
    """Say what is wrong with the last of `count` entries; mostly nothing."""
    offset = rlog.TABLE_START + rlog.SLOT_SIZE * (count - 1)
    with closing(disk.open(one.name)) as file:
        end = int.from_bytes(file.read_at(offset, rlog.SLOT_SIZE), "little")
    last = one.index + count - 1
    if not end:
        return f"it ends before entry {last}, after which the next file begins"
    if head.data_start + end > one.size:
        return f"entry {last} ends at byte {head.data_start + end} of {one.size}"
    return ""


def term_in(disk: Disk, found: IndexFile, index: int) -> int | None:
    """Read the term of one entry, with two small reads; None if there is no such entry."""
    head = found.head
    if isinstance(head, Flaw) or not found.index <= index < head.header.stop_index:
        return None
    slot = index - found.index
    with closing(disk.open(found.name)) as file:
        first = max(slot - 1, 0)
        offset = rlog.TABLE_START + rlog.SLOT_SIZE * first
        ends = rlog.decode_slots(file.read_at(offset, rlog.SLOT_SIZE * (slot + 1 - first)))
        start = int(ends[0]) if slot else 0
        data = file.read_at(head.data_start + start, ENTRY_HEADER_SIZE)
    if not ends[-1] or int(ends[-1]) - start < ENTRY_HEADER_SIZE or len(data) < ENTRY_HEADER_SIZE:
        return None
    return int(decode_headers(memoryview(data), np.zeros(1, np.int64)).terms[0])
