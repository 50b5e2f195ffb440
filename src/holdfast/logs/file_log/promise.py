"""What the mark of a FileLog promises, and what of it the directory does not hold.

zmq-raft knows nothing of the mark, and may roll entries back that it covers.  So an owner leaves a
file whose name is that of a temporary snapshot (UNTOUCHED).  zmq-raft removes such files when it
opens a log for writing, and so does version 0.1.0 of Holdfast.

1. The file is there: no other program has changed the log.  The mark holds.
2. It is not, but the last marked entry has the same request id, type and term: the mark holds, as
   in Raft equal entries have equal predecessors.  Others have only appended.
3. It is not, and that entry is missing or another one: others have rolled back, and the mark is
   void.  But without a new snapshot they keep the oldest file.  They never cut a file or write
   zeros in the place of a head or an entry.  Then the mark holds, and finds damage.

A snapshot replaces the entries that it covers, whether Holdfast or zmq-raft installed it.  Both
keep the one before it under a dated name.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from isal.isal_zlib import crc32

from holdfast.disk import Disk
from holdfast.formats import rlog, snapshot_file
from holdfast.formats.flaw import Flaw
from holdfast.formats.mark import Mark, MarkedFile, extend_list
from holdfast.formats.rlog_entry import ENTRY_HEADER_SIZE
from holdfast.formats.rlog_mark import Word, decode_word, file_id
from holdfast.logs.file_log.directory import (
    NAME,
    SNAPSHOT,
    UNTOUCHED,
    IndexFile,
    find_holder,
    read_snapshot_head,
)
from holdfast.logs.file_log.history import kept
from holdfast.logs.log import Damage
from holdfast.logs.mark import MARK, mark_is_damaged, mark_is_missing


@dataclass(frozen=True, slots=True)
class Promise:
    """Entries first..last must be there; none if `first` is after `last`."""

    mark: Mark
    first: int
    last: int
    is_alone: bool  # no other program has opened the log for writing

    @property
    def word(self) -> Word:
        return decode_word(self.mark.word)

    def covers(self, index: int) -> bool:
        return self.first <= self.last and index <= self.last


@dataclass(frozen=True, slots=True)
class _Entry:
    """The last marked entry, as it is in the files now."""

    file: IndexFile
    head: rlog.Head
    ends: rlog.Slots  # of all entries of the file, up to this one
    end: int  # 0 if there is no such entry
    header: bytes


def read_promise(
    disk: Disk,
    names: Mapping[str, int],
    files: Sequence[IndexFile],
    snapshot: snapshot_file.Head | Flaw | None,
    mark: Mark | Flaw | None,
) -> tuple[Promise | None, list[Damage]]:
    """Return what the mark promises, and what is wrong with it or with the snapshot."""
    is_alone = UNTOUCHED in names
    if mark is None:
        return None, [mark_is_missing()] if is_alone else []
    if isinstance(mark, Mark) and mark.format != NAME:
        mark = Flaw(10, f"it is the mark of a {mark.format} log")
    if isinstance(mark, Flaw):
        return None, [mark_is_damaged(mark)]
    snapshot_index = snapshot.index if isinstance(snapshot, snapshot_file.Head) else 0
    first = max(mark.first_index, snapshot_index + 1)
    promise = Promise(mark, first, mark.last_index, is_alone)
    if not mark.files or not (is_alone or _still_holds(disk, files, promise)):
        return None, []
    damage = []
    if snapshot_index + 1 < mark.first_index and not isinstance(snapshot, Flaw):
        what = "missing" if SNAPSHOT not in names else f"it is of entry {snapshot_index}"
        why = f"{what}, but the log had a snapshot of entry {mark.first_index - 1}"
        damage.append(Damage(SNAPSHOT, 0, 0, 0, why))
    return promise, damage


def judge_snapshot(
    disk: Disk,
    names: Mapping[str, int],
    snapshot: snapshot_file.Head | Flaw | None,
    mark: Mark | Flaw | None,
) -> snapshot_file.Head | Flaw | None:
    """Return the snapshot; a flaw if it covers entries and did not replace the marked one.

    Its file has no checksum, and an index with a changed bit would hide all entries of the log.
    """
    if not (isinstance(snapshot, snapshot_file.Head) and isinstance(mark, Mark) and mark.files):
        return snapshot
    if UNTOUCHED not in names or snapshot.index < mark.first_index or mark.format != NAME:
        return snapshot
    for name in reversed(kept(disk, SNAPSHOT)):
        old = read_snapshot_head(disk, names, name)
        if isinstance(old, snapshot_file.Head) and old.index == mark.first_index - 1:
            return snapshot
    why = f"it is of entry {snapshot.index}, but the log had one of entry {mark.first_index - 1}"
    return Flaw(12, why)


def _still_holds(disk: Disk, files: Sequence[IndexFile], promise: Promise) -> bool:
    """Return whether the mark still counts although others have opened the log."""
    mark = promise.mark
    if not promise.covers(promise.first):
        return True  # it speaks of the snapshot only
    entry = _find_entry(disk, files, mark)
    if entry is not None and entry.end and entry.header == promise.word.header:
        return True
    is_oldest = not files or files[0].name >= mark.first.name  # others remove it if it is not
    if promise.first == mark.first_index and is_oldest and _is_replaced(files, mark.first):
        return True
    if _is_replaced(files, mark.last):
        return False
    file = next(file for file in files if file.name == mark.last.name)
    is_blank = entry is not None and entry.file is file and entry.end and not any(entry.header)
    return isinstance(file.head, Flaw) or file.size < mark.size or bool(is_blank)


def _is_replaced(files: Sequence[IndexFile], marked: MarkedFile) -> bool:
    """Return whether a marked file is missing, or another one has its name."""
    head = next((file.head for file in files if file.name == marked.name), None)
    return head is None or (not isinstance(head, Flaw) and file_id(head) != marked.id)


def _find_entry(disk: Disk, files: Sequence[IndexFile], mark: Mark) -> _Entry | None:
    holder = find_holder(files, mark.last_index)
    if holder is None or isinstance(holder.head, Flaw):
        return None
    head, slot = holder.head, mark.last_index - holder.index
    if slot >= head.header.capacity:
        return None
    with closing(disk.open(holder.name)) as file:
        ends = rlog.decode_slots(file.read_at(rlog.TABLE_START, rlog.SLOT_SIZE * (slot + 1)))
        if rlog.count_used(ends) <= slot:
            return _Entry(holder, head, ends[: rlog.count_used(ends)], 0, b"")
        begin = head.data_start + (int(ends[slot - 1]) if slot else 0)
        return _Entry(holder, head, ends, int(ends[slot]), file.read_at(begin, ENTRY_HEADER_SIZE))


def judge_end(promise: Promise, last_index: int) -> Damage | None:
    """Return the damage of a log that ends at `last_index`, if that is before its mark."""
    first, mark = max(promise.first, last_index + 1), promise.mark
    if not promise.covers(first):
        return None
    why = f"missing: the log held entries up to {mark.last_index}"
    return Damage(mark.last.name, mark.size, first, mark.last_index, why)


def judge_list(files: Sequence[IndexFile], promise: Promise) -> Damage | None:
    """Compare the files with those that the mark lists."""
    mark = promise.mark
    listed = [file for file in files if mark.first.name <= file.name <= mark.last.name]
    if not promise.covers(promise.first) or not promise.is_alone:
        return None  # the files held no entries, or others have created files
    if not listed or listed[0].name != mark.first.name:
        return None  # a snapshot covers the first ones
    list_crc = 0
    for file in listed:
        if isinstance(file.head, rlog.Head):
            list_crc = extend_list(list_crc, MarkedFile(file.name, file_id(file.head)))
    if (len(listed), list_crc) == (mark.files, mark.list_crc):
        return None
    return Damage(MARK, 0, 0, 0, "the index files are not those that the log had")


def judge_tail(disk: Disk, files: Sequence[IndexFile], promise: Promise) -> Damage | None:
    """Compare the bytes of the last marked entries with the mark.

    If the slot of the last one is zero, the bytes show whether those before it are valid.
    """
    entry, mark, word = _find_entry(disk, files, promise.mark), promise.mark, promise.word
    if entry is None or not promise.covers(promise.first):
        return None
    name, base, data_start = entry.file.name, entry.file.index, entry.head.data_start
    if name != mark.last.name or file_id(entry.head) != mark.last.id:
        if not promise.is_alone:
            return None  # others have rolled back, and appended the same entries again
        why = f"it is not the file {mark.last.name} that the log had"
        return Damage(name, 0, max(base, promise.first), promise.last, why)
    begin = data_start + word.start
    with closing(disk.open(name)) as file:
        data = file.read_at(begin, max(0, mark.size - begin))
    if entry.end and data_start + entry.end != mark.size:
        why = f"entry {mark.last_index} ends at byte {data_start + entry.end}, not {mark.size}"
    elif crc32(data) != mark.tail_crc and (entry.end or entry.file.size >= mark.size):
        why = f"checksum mismatch in the {mark.size - begin} bytes before byte {mark.size}"
    else:
        return None
    first = max(base + int(np.searchsorted(entry.ends, word.start, "right")), promise.first)
    return Damage(name, begin, min(first, promise.last), promise.last, why)
