"""What the mark of a Shanghai log promises, and what of it the directory does not keep.

metadata.json remembers that the log has a mark.  Version 0.1.0 kept its own mark there: of the
active segment alone.  It is held to as far as it goes until the first owner writes a new one.
The files: docs/formats/mark.md and docs/formats/shanghai.md
"""

import json
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from uuid import UUID
from zlib import crc32

from holdfast.disk import Disk, File
from holdfast.formats import shanghai as fmt
from holdfast.formats.flaw import Flaw
from holdfast.formats.mark import Mark, MarkedFile
from holdfast.logs.log import Damage
from holdfast.logs.mark import MARK, Recalled, marked_files, read_mark, recalled
from holdfast.logs.shanghai.directory import Found, segment_number
from holdfast.logs.shanghai.view import Active, Sealed

NAME = "shanghai"
NO_WORD = bytes(24)  # no other program writes these logs

_METADATA = "metadata.json"
_REMEMBERED = {"format": NAME, "mark": MARK}
_OLD_KEYS = "name", "id", "size", "last_lsn"


def recall(disk: Disk, read: Callable[[Disk], Mark | Flaw | None] = read_mark) -> Recalled:
    """Return the mark of a log.  `read` is `recall_mark` for the next owner."""
    stored, metadata = read(disk), _read_metadata(disk)
    if (old := _mark_of_0_1_0(metadata)) is not None:  # such an owner ignores a newer mark
        return Recalled(stored, old)
    return recalled(stored, is_expected=metadata == _REMEMBERED)


def remember_mark(disk: Disk) -> None:
    """Record durably that the log has a mark, unless it is recorded already."""
    if _read_metadata(disk) != _REMEMBERED:
        disk.create(_METADATA, json.dumps(_REMEMBERED).encode(), replace=True)


def has_mark(disk: Disk) -> bool:
    """Return whether a directory without segments once held a Shanghai log."""
    stored, metadata = read_mark(disk), _read_metadata(disk)
    is_ours = isinstance(stored, Mark) and stored.format == NAME
    return is_ours or metadata == _REMEMBERED or _mark_of_0_1_0(metadata) is not None


def mark_of(segments: Sequence[Sealed | Active]) -> Mark:
    """Return the mark of a complete log, whose last segment is the active one."""
    active = segments[-1]
    assert isinstance(active, Active)
    mark = Mark(
        NAME,
        first_index=segments[0].first_index,
        base_index=active.first_index,
        size=active.size,
        last_index=active.stop_index - 1,
        tail_crc=_crc_before(active.file, active.bounds, len(active.bounds) - 1),
    )
    return marked_files(mark, (_marked(s.name, s.header) for s in segments))


def missing_files(mark: Mark, found: Sequence[Found], first_lsn: int | None) -> list[Damage]:
    """Return which files at either end of the mark are missing, or are others than they were.

    `first_lsn` is the first one that is there.
    """
    if not mark.files:
        return []
    if not found:
        lost = _span(mark.first_index or 1, mark.last_index)
        return [Damage(mark.last.name, 0, *lost, "missing, with all segments")]
    damage, here = [], {one.name: one.header for one in found}
    is_first_missing = found[0].number > segment_number(mark.first.name)
    if is_first_missing and not _is_of_0_1_0(mark):
        stop = mark.last_index + 1 if first_lsn is None else first_lsn
        lost = _span(mark.first_index, min(stop - 1, mark.last_index))
        damage.append(Damage(mark.first.name, 0, *lost, f"missing: the log had {mark.files} files"))
    for file in (mark.first, mark.last):
        header = here.get(file.name)
        if isinstance(header, fmt.Header) and file.id != header.id.bytes:
            why = "another segment than the one that had this name"
            damage.append(Damage(file.name, 8, 0, 0, why))
    return [*dict.fromkeys(damage)]


def other_files(mark: Mark, found: Sequence[Found]) -> list[Damage]:
    """Return whether a segment between the two ends is another than it was."""
    first, last = segment_number(mark.first.name), segment_number(mark.last.name)
    between = [one for one in found if first <= one.number <= last]
    listed = [
        _marked(one.name, one.header) for one in between if isinstance(one.header, fmt.Header)
    ]
    now = marked_files(mark, listed)
    if (
        not mark.files
        or _is_of_0_1_0(mark)
        or (now.files, now.list_crc) == (mark.files, mark.list_crc)
    ):
        return []
    why = f"{mark.first.name} to {mark.last.name} are not the {mark.files} segments of the mark"
    return [Damage(MARK, 0, 0, 0, why)]


def missing_tail(
    mark: Mark, last: Found, header: fmt.Header, bounds: "array[int]", flaw: Flaw | None
) -> Damage | None:
    """Return which entries of the mark the last segment lacks."""
    stop_lsn, stop = header.first_lsn + len(bounds) - 1, bounds[-1]
    if mark.files and last.number < segment_number(mark.last.name):
        lost = _span(stop_lsn, mark.last_index)
        return Damage(mark.last.name, 0, *lost, f"missing: it held LSN {mark.last_index}")
    if mark.files and mark.last.name == last.name and mark.last_index >= stop_lsn:
        why = f"{flaw.why if flaw else 'the file ends too early'}; it was complete up to LSN"
        return Damage(last.name, stop, stop_lsn, mark.last_index, f"{why} {mark.last_index}")
    return None


def changed_tail(
    mark: Mark, file: File, last: Found, header: fmt.Header, bounds: "array[int]"
) -> Damage | None:
    """Return whether the entry that ended at the mark is another one, or ends elsewhere."""
    if not mark.files or mark.last.name != last.name or bounds[-1] < mark.size:
        return None
    at = bisect_left(bounds, mark.size)
    if bounds[at] != mark.size or header.first_lsn + at - 1 != mark.last_index:
        why = f"LSN {mark.last_index} does not end at byte {mark.size}, where it did"
        return Damage(last.name, 32, *_span(header.first_lsn, mark.last_index), why)
    if not _is_of_0_1_0(mark) and _crc_before(file, bounds, at) != mark.tail_crc:
        lost = _span(mark.base_index, mark.last_index)
        return Damage(last.name, bounds[at - 1], *lost, "other entries than it held")
    return None


def _span(first: int, last: int) -> tuple[int, int]:
    return (first, last) if 0 < first <= last else (0, 0)


def _crc_before(file: File, bounds: "array[int]", at: int) -> int:
    """Return the checksum of the entry that ends at a bound; 0 if there is none."""
    return int.from_bytes(file.read_at(bounds[at - 1] + 4, 4), "big") if at else 0


def _marked(name: str, header: fmt.Header) -> MarkedFile:
    return MarkedFile(name, header.id.bytes)


def _read_metadata(disk: Disk) -> object:
    """Return what metadata.json holds; None if it is missing or not valid."""
    try:
        file = disk.open(_METADATA)
    except FileNotFoundError:
        return None
    try:
        data = file.read_at(0, 2**16)
    finally:
        file.close()
    with suppress(ValueError):
        found: object = json.loads(data)
        return found
    return None


def _is_of_0_1_0(mark: Mark) -> bool:
    """Return whether a mark speaks of one segment alone.

    Version 0.1.0 wrote it when the log was opened or closed, and may have trimmed that segment
    since.
    """
    return mark.first_index == 0


def _mark_of_0_1_0(metadata: object) -> Mark | None:
    """Return the mark that version 0.1.0 left: of its last segment, whose first LSN is unknown."""
    if not isinstance(metadata, dict):
        return None
    try:
        name, id, size, last_lsn = (metadata["complete"][key] for key in _OLD_KEYS)
        if metadata["crc32"] != crc32(f"{name} {id} {size} {last_lsn}".encode()):
            return None
        mark = Mark(NAME, first_index=0, base_index=0, size=size, last_index=last_lsn)
        return marked_files(mark, [MarkedFile(name, UUID(id).bytes)])
    except (KeyError, TypeError, ValueError):
        return None
