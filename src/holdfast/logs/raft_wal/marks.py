"""What the mark of a raft-wal log promises, and what of it the directory does not keep.

Go programs write such logs too, and do not know the mark.  They change the list of segments only in
a transaction of the meta store, and the mark holds the number of the last one that its writer saw.

- The same number: nothing was removed since.  The active segment can only have grown.
- A newer one: another program was there.  What the meta store does not name any more was removed by
  it.  The segment of the mark can only have grown if it is still active: a truncation seals it.
- An older one: the meta store was replaced by an older copy.

So a transaction is what lowers this mark, and it needs no other.  The file: docs/formats/mark.md
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from holdfast.disk import Disk, File
from holdfast.formats import raft_wal as fmt
from holdfast.formats.flaw import Flaw
from holdfast.formats.mark import WORD_SIZE, Mark, MarkedFile, extend_list
from holdfast.formats.raft_meta import SegmentMeta, State
from holdfast.logs.log import Damage
from holdfast.logs.mark import Recalled, is_remembered, marked_files, read_mark, recalled
from holdfast.logs.raft_wal.directory import name_of
from holdfast.logs.raft_wal.meta_store import META_STORE

NAME = "raft-wal"
NO_MARK = Mark(NAME)  # promises nothing


def recall(disk: Disk, read: Callable[[Disk], Mark | Flaw | None] = read_mark) -> Recalled:
    """Return the mark of a log.  `read` is `recall_mark` for the next owner."""
    stored = read(disk)
    return recalled(stored, is_expected=stored is None and is_remembered(disk))


def word_of(txid: int) -> bytes:
    """Return what the mark stores of the meta store: the number of its last transaction."""
    return txid.to_bytes(8, "little").ljust(WORD_SIZE, b"\0")


def mark_of(
    segments: Sequence[SegmentMeta],
    size: int,
    count: int,
    crc: int,
    txid: int,
    before: Mark | None = None,
) -> Mark:
    """Return the mark of a complete log: its active segment has `count` entries in `size` bytes.

    `before` is the previous mark: if only one segment was added since, the others are not read.
    """
    active = segments[-1]
    mark = Mark(
        NAME,
        first_index=segments[0].min_index,
        base_index=active.base_index,
        size=size,
        last_index=active.base_index + count - 1,
        tail_crc=crc,
        word=word_of(txid),
    )
    if before and len(segments) == before.files + 1 and _marked(segments[0]) == before.first:
        last = _marked(active)
        list_crc = extend_list(before.list_crc, last)
        files = len(segments)
        return replace(mark, files=files, list_crc=list_crc, first=before.first, last=last)
    return marked_files(mark, map(_marked, segments))


def tail_crc(file: File, stop: int) -> int:
    """Return the checksum in the commit frame that ends at a byte; 0 if there is none."""
    return int.from_bytes(file.read_at(stop - 4, 4), "little") if stop else 0


def check_store(mark: Mark, state: State, txid: int) -> list[Damage]:
    """Return whether the meta store is not the one that the mark speaks of."""
    if not mark.files:
        return []
    marked = int.from_bytes(mark.word[:8], "little")
    if txid < marked:
        why = f"older than the log: its last transaction is {txid}, and was {marked}"
        return [Damage(META_STORE, 0, 0, 0, why)]
    now = marked_files(mark, map(_marked, state.segments))
    if txid == marked and (now.files, now.list_crc) != (mark.files, mark.list_crc):
        why = f"it names other segments than it did in transaction {txid}"
        return [Damage(META_STORE, 0, 0, 0, why)]
    return []


def missing_file(mark: Mark, active: SegmentMeta) -> Damage | None:
    """Return whether the file of the active segment, which is not there, existed once."""
    if not mark.files or mark.last.name != name_of(active):
        return None
    why = f"missing: the log was complete up to {mark.last_index}"
    return Damage(name_of(active), 0, *_span(active.min_index, mark.last_index), why)


def vouches(mark: Mark, active: SegmentMeta, found: fmt.Scan, bad: Sequence[int]) -> bool:
    """Return whether the mark confirms the indexes of all entries, though a batch below it is bad.

    In a bad batch a length may be wrong, and an entry skipped.  But if the frames lead to the end
    of the mark with the count of the mark, and no other batch is bad, then none was skipped.
    """
    return (
        bool(mark.files)
        and mark.last.name == name_of(active)
        and len(bad) == 1
        and found.begins[bad[0]] < mark.size <= found.stop
        and _count_before(found, mark.size) == mark.last_index + 1 - active.base_index
    )


def missing_tail(
    mark: Mark,
    active: SegmentMeta,
    file: File,
    found: fmt.Scan,
    bad: Sequence[int],
    flaw: Flaw | None,
) -> Damage | None:
    """Return which entries the active segment lacks below the mark, or has others."""
    if not mark.files or mark.last.name != name_of(active):
        return None
    name, stop_index = name_of(active), active.base_index + len(found.starts)
    if found.stop < mark.size:
        why = f"{flaw.why if flaw else 'it ends too early'}; it was complete up to"
        lost = _span(max(stop_index, active.min_index), mark.last_index)
        return Damage(name, found.stop, *lost, f"{why} {mark.last_index}")
    if vouches(mark, active, found, bad):
        return None  # the bad batch is reported by itself
    if mark.size and (
        _count_before(found, mark.size) != mark.last_index + 1 - active.base_index
        or tail_crc(file, mark.size) != mark.tail_crc
    ):
        why = "other entries than it held"
        return Damage(name, 0, *_span(active.min_index, mark.last_index), why)
    return None


def _count_before(found: fmt.Scan, stop: int) -> int:
    """Return how many entries come before the end of a batch; -1 if no batch ends there."""
    k = int(np.searchsorted(found.commits, stop - fmt.COMMIT_SIZE))
    return int(found.counts[k]) if found.commits[k] == stop - fmt.COMMIT_SIZE else -1


def _span(first: int, last: int) -> tuple[int, int]:
    return (first, last) if first <= last else (0, 0)


def _marked(meta: SegmentMeta) -> MarkedFile:
    return MarkedFile(name_of(meta), meta.id.to_bytes(8, "little").ljust(16, b"\0"))
