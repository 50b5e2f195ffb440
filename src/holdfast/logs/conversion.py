"""A log made into one of another format, or of its own with other segments.

Entries go from `Guest.scan` to `Log.append` as Arrow batches, whatever the two formats are; what a
log has besides them goes along (holdfast.logs.origin).

Invariants:
1. The target is made in TARGET.converting, and gets its name only when every entry of it was
   compared with the source.
2. Killed at any moment and called again, a conversion goes on behind the last entry that is durable
   in the target.  The result is the same.
3. Indexes stay what they are.  Only Raft entries that name another index than they have keep the
   one they name: all are shifted alike, and the report tells.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from holdfast.disk import Disk, OsDisk, Path
from holdfast.errors import CorruptError, HoldfastError
from holdfast.logs.log import Guest, Inspectable, Log
from holdfast.logs.open import FORMATS, Format, format_of
from holdfast.logs.origin import Origin, read_origin, write_origin

if TYPE_CHECKING:
    import pyarrow as pa

_SUFFIX = ".converting"
_CHUNK_SIZE_MAX = 2**20  # of one append: large enough for its sync to cost next to nothing
_CHUNKS_PER_SEGMENT_MIN = 8

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Conversion:
    """What was made of what.  Entry i of the source is entry i + shift of the target."""

    source: str
    target: str
    source_format: str
    target_format: str
    first_index: int  # of the source
    last_index: int
    shift: int
    entries: int
    resumed_after: int  # entries that an earlier run had made before it was interrupted
    files: int  # that hold entries
    size: int
    verdict: Literal["equal"] = "equal"  # whatever else would be an error


def convert_log(
    source: Path,
    target: Path,
    format: str,
    *,
    on_progress: OnProgress = lambda done, total: None,
    **options: Any,
) -> Conversion:
    """Make `target` a log of this format with all entries of `source`, and compare the two.

    `options` are those of the format's own class.  `on_progress` is told how many entries were
    copied and compared, and how often that is to be done in all.  The source may be in use; what
    is appended to it meanwhile is not copied.  CorruptError at damage: repair the source first.
    """
    if format not in FORMATS:
        raise ValueError(f"no log format {format!r}; there are {', '.join(FORMATS)}")
    kind, old, new = FORMATS[format], OsDisk(source), OsDisk(target)
    making = OsDisk(new.path + _SUFFIX)
    old_kind = format_of(old)
    with closing(_open_sound(old, old_kind)) as guest:
        origin = _origin_of(old, old_kind, guest)
        is_done = _is_done(new, kind, origin, guest)
        made = new if is_done else making
        before = _count(guest)
        if not is_done:
            before = carry_over(guest, making, kind, origin, on_progress, **options)
            _compare_belongings(making, kind, origin)
        shift = _compare(guest, made, kind, on_progress)
        sizes = _segment_sizes(made, kind)
        if not is_done:
            directory, _, name = new.path.rpartition("/")
            OsDisk(directory or "/").rename(name + _SUFFIX, name)
        return Conversion(
            source=old.path,
            target=new.path,
            source_format=old_kind.name,
            target_format=kind.name,
            first_index=guest.first_index,
            last_index=guest.last_index,
            shift=shift,
            entries=_count(guest),
            resumed_after=before,
            files=len(sizes),
            size=sum(sizes),
        )


def carry_over(
    guest: Guest,
    disk: Disk,
    kind: Format,
    origin: Origin,
    on_progress: OnProgress = lambda done, total: None,
    **options: Any,
) -> int:
    """Append what the log in `disk` has not yet of a guest's entries; return how many it had."""
    _refuse_strangers(disk, kind)
    options = {"first_index": guest.first_index, **options}
    segment_size = options.get("segment_size_max", _CHUNKS_PER_SEGMENT_MIN * _CHUNK_SIZE_MAX)
    chunk_size = min(segment_size // _CHUNKS_PER_SEGMENT_MIN, _CHUNK_SIZE_MAX)
    with closing(_open_target(disk, kind, origin, options)) as log:
        before = done = _resume(log, disk, origin, guest)
        write_origin(disk, origin)
        on_progress(done, 2 * _count(guest))
        for batch in guest.scan(guest.first_index + done):
            for payloads in _chunks(batch.column("payload"), chunk_size):
                _append(log, payloads, guest.first_index + done, kind)
                done += len(payloads)
                on_progress(done, 2 * _count(guest))
    return before


# The two ends


def _open_sound(disk: Disk, kind: Format) -> Guest:
    guest = kind.open_read_only(disk)
    if isinstance(guest, Inspectable) and guest.damage:
        damage = guest.damage[0]
        guest.close()
        raise CorruptError(damage.file, damage.offset, f"{damage.why}; repair the log first")
    return guest


def _origin_of(disk: Disk, kind: Format, guest: Guest) -> Origin:
    earlier = read_origin(disk)
    belongings = dict(earlier.belongings) if earlier else {}
    if kind.belongings is not None:
        belongings[kind.name] = kind.belongings(guest)
    return Origin(str(disk), guest.first_index, belongings)


def _open_target(disk: Disk, kind: Format, origin: Origin, options: dict[str, Any]) -> Log:
    belongings = origin.belongings.get(kind.name)
    if kind.open_with is None or belongings is None:
        return kind.open(disk, **options)
    return kind.open_with(disk, belongings, **options)


def _is_done(disk: Disk, kind: Format, origin: Origin, guest: Guest) -> bool:
    """Was this very conversion finished before, by one that could not say so any more?"""
    try:
        disk.list()
    except FileNotFoundError:
        return False
    made = read_origin(disk)
    if made and (made.source, made.first_index) == (origin.source, origin.first_index):
        found = format_of(disk)
        with closing(found.open_read_only(disk)) as copy:
            if found is kind and _count(copy) == _count(guest):
                return True
    raise FileExistsError(f"{disk} exists: convert into a new directory")


def _refuse_strangers(disk: Disk, kind: Format) -> None:
    try:
        found = [other.name for other in FORMATS.values() if other.owns(disk)]
    except FileNotFoundError:
        return
    if found not in ([], [kind.name]):
        raise HoldfastError(f"{disk} holds a {found[0]} log, not a {kind.name} one; remove it")


def _resume(log: Log, disk: Disk, origin: Origin, guest: Guest) -> int:
    """How many entries are there already; those of another conversion are refused."""
    count, begun = _count(log), read_origin(disk)
    if begun is None and not count:
        return 0
    if begun is None or begun.source != origin.source:
        whose = f"of {begun.source}" if begun else "that no conversion has made"
        raise HoldfastError(f"{disk} holds entries {whose}; remove it, or name another target")
    if begun.first_index != origin.first_index or count > _count(guest):
        raise HoldfastError(
            f"{origin.source} holds {guest.first_index}..{guest.last_index}, but when it was being "
            f"converted it began at {begun.first_index}, and {count} entries are copied; remove "
            f"{disk} to begin anew"
        )
    return count


# The entries


def _chunks(payloads: "pa.Array", size_max: int) -> "Iterator[pa.Array]":
    import pyarrow as pa
    import pyarrow.compute as pc

    payloads = payloads.cast(pa.large_binary())
    bounds = np.append(0, np.cumsum(pc.binary_length(payloads).to_numpy()))
    start = 0
    while start < len(payloads):
        stop = int(np.searchsorted(bounds, bounds[start] + size_max, "right")) - 1
        stop = max(stop, start + 1)
        yield payloads.slice(start, stop - start)
        start = stop


def _append(log: Log, payloads: "pa.Array", first: int, kind: Format) -> None:
    """All of them; or all before the first that does not fit, and an error that names that one."""
    try:
        log.append(payloads)
    except ValueError as error:
        if len(payloads) == 1:
            raise ValueError(f"entry {first} has no place in a {kind.name} log: {error}") from error
        half = len(payloads) // 2
        _append(log, payloads.slice(0, half), first, kind)
        _append(log, payloads.slice(half), first + half, kind)


def _compare(guest: Guest, disk: Disk, kind: Format, on_progress: OnProgress) -> int:
    """Hold each entry and its index to the source; return by how much indexes are shifted."""
    count = _count(guest)
    with closing(kind.open_read_only(disk)) as copy:
        shift = copy.first_index - guest.first_index
        if _count(copy) != count:
            raise _unequal(disk, f"{_count(copy)} entries instead of {count}")
        done, last = 0, copy.last_index + 1
        pairs = _aligned(guest.scan(stop=guest.first_index + count), copy.scan(stop=last))
        for one, two in pairs:
            first, size = guest.first_index + done, one.num_rows
            indexes = np.arange(first, first + size)
            for batch, offset in ((one, 0), (two, shift)):
                if not np.array_equal(batch.column("index").to_numpy(), indexes + offset):
                    raise _unequal(disk, f"other indexes from {first} on")
            if not one.column("payload").equals(two.column("payload")):
                raise _unequal(disk, f"another payload of entry {first + _difference(one, two)}")
            done += size
            on_progress(count + done, 2 * count)
        if done != count:
            raise _unequal(disk, f"only {done} of {count} entries could be scanned")
    return shift


def _segment_sizes(disk: Disk, kind: Format) -> list[int]:
    with closing(kind.open_read_only(disk)) as copy:
        return [one.size for one in copy.segments()] if isinstance(copy, Inspectable) else []


def _compare_belongings(disk: Disk, kind: Format, origin: Origin) -> None:
    wanted = origin.belongings.get(kind.name)
    if wanted is None or kind.belongings is None:
        return
    with closing(kind.open_read_only(disk)) as copy:
        if kind.belongings(copy) != wanted:
            raise _unequal(disk, f"it has {kind.belongings(copy)} instead of {wanted}")


def _aligned(
    ones: "Iterable[pa.RecordBatch]", twos: "Iterable[pa.RecordBatch]"
) -> "Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]":
    """Two scans as pairs of batches of one length, as far as both go."""
    rest, others = iter(ones), iter(twos)
    one, two = next(rest, None), next(others, None)
    while one is not None and two is not None:
        size = min(one.num_rows, two.num_rows)
        yield one.slice(0, size), two.slice(0, size)
        one = one.slice(size) if size < one.num_rows else next(rest, None)
        two = two.slice(size) if size < two.num_rows else next(others, None)


def _difference(one: "pa.RecordBatch", two: "pa.RecordBatch") -> int:
    import pyarrow.compute as pc

    equal = pc.equal(one.column("payload"), two.column("payload"))
    return int(np.argmin(equal.to_numpy(zero_copy_only=False)))


def _unequal(disk: Disk, what: str) -> CorruptError:
    return CorruptError(str(disk), 0, f"not equal to what it was made of: {what}")


def _count(log: Guest) -> int:
    return log.last_index + 1 - log.first_index
