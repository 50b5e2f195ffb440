"""Convert a log to another format, or to its own with other segments.

Entries go from `LogReader.scan` to `Log.append` as Arrow batches, for any two formats.
What a log has besides entries is converted too (holdfast.logs.origin).

Invariants:
1. The target is created in TARGET.converting.  It gets its name only after every entry was
   compared with the source.
2. After a crash the same call continues after the last entry that is durable in the target.  The
   result is the same.  If the source was trimmed or rolled back since, the call begins again.
3. Indexes do not change.  The exception are Raft entries whose payload names another index: they
   keep that index.  All are shifted alike, and the report says by how much.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from holdfast.disk import Disk, OsDisk, Path
from holdfast.errors import ChangedError, CorruptError, ExistsError, HoldfastError
from holdfast.logs.comparing import aligned, difference
from holdfast.logs.format import HasBelongings, LogFormat
from holdfast.logs.log import Log, LogReader
from holdfast.logs.opening import FORMATS, format_named, format_of
from holdfast.logs.origin import ORIGIN, Origin, read_origin, write_origin

if TYPE_CHECKING:
    import pyarrow as pa

_SUFFIX = ".converting"
_CHUNK_SIZE_MAX = 2**20  # of one append: large enough for its sync to cost next to nothing
_CHUNKS_PER_SEGMENT_MIN = 8
_ATTEMPTS_MAX = 10  # to convert a log while its owner removes entries

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Conversion:
    """The result of a conversion.  Entry i of the source is entry i + shift of the target."""

    source: str
    target: str
    source_format: str
    target_format: str
    first_index: int  # of the source
    last_index: int
    shift: int
    entries: int
    resumed_after: int  # entries that an interrupted run had copied
    files: int  # that hold entries
    size: int
    verdict: Literal["equal"] = "equal"  # anything else raises


def convert_log(
    source: Path,
    target: Path,
    format: str,
    *,
    on_progress: OnProgress = lambda done, total: None,
    **options: Any,
) -> Conversion:
    """Create `target`, a log of this format with all entries of `source`, and compare the two.

    `options` are those of the format's own class.  `on_progress` gets the number
    of entries copied and compared, and the total of both.  The source may be in use; entries that
    are appended meanwhile are not copied.  If the owner removes some meanwhile, the conversion
    starts again; ChangedError if it has done so too often.  CorruptError at damage: repair the
    source first.
    """
    kind, old, new = format_named(format), OsDisk(source), OsDisk(target)
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        try:
            return _convert(old, new, kind, on_progress, options)
        except ChangedError as error:
            if attempt == _ATTEMPTS_MAX:
                raise ChangedError(
                    f"the owner of {old} has removed entries {attempt} times while they were "
                    "converted; run again, or register a replica first, for which `trim` waits"
                ) from error
    raise AssertionError("the last attempt raises or returns")


def _convert(
    old: OsDisk, new: OsDisk, kind: LogFormat, on_progress: OnProgress, options: dict[str, Any]
) -> Conversion:
    making, old_kind = OsDisk(new.path + _SUFFIX), format_of(old)
    with closing(_open_sound(old, old_kind)) as source_log:
        origin = _origin_of(old, old_kind, source_log)
        is_done = _is_done(new, kind, origin, source_log)
        made = new if is_done else making
        before = _count(source_log)
        if not is_done:
            before = carry_over(source_log, making, kind, origin, on_progress, **options)
            _compare_belongings(making, kind, origin)
        try:
            shift = _compare(source_log, made, kind, on_progress)
        except _UnequalError:
            if is_done or not before:
                raise
            # The source was rolled back since the interrupted run.
            _clear(making, origin)
            before = carry_over(source_log, making, kind, origin, on_progress, **options)
            shift = _compare(source_log, made, kind, on_progress)
        sizes = _segment_sizes(made, kind)
        if not is_done:
            directory, _, name = new.path.rpartition("/")
            OsDisk(directory or "/").rename(name + _SUFFIX, name)
        return Conversion(
            source=old.path,
            target=new.path,
            source_format=old_kind.name,
            target_format=kind.name,
            first_index=source_log.first_index,
            last_index=source_log.last_index,
            shift=shift,
            entries=_count(source_log),
            resumed_after=before,
            files=len(sizes),
            size=sum(sizes),
        )


def carry_over(
    source_log: LogReader,
    disk: Disk,
    kind: LogFormat,
    origin: Origin,
    on_progress: OnProgress = lambda done, total: None,
    **options: Any,
) -> int:
    """Append the entries that the log in `disk` lacks; return how many it had."""
    _refuse_other_logs(disk, kind)
    options = {"first_index": source_log.first_index, **options}
    segment_size = options.get("segment_size_max", _CHUNKS_PER_SEGMENT_MIN * _CHUNK_SIZE_MAX)
    chunk_size = min(segment_size // _CHUNKS_PER_SEGMENT_MIN, _CHUNK_SIZE_MAX)
    begun = read_origin(disk)
    if begun and begun.source == origin.source and begun.first_index != origin.first_index:
        _clear(disk, origin)  # the source was trimmed since, or a run was killed here
    for _ in range(2):
        with closing(_open_target(disk, kind, origin, options)) as log:
            before = _resume(log, disk, origin, source_log)
            if before is not None:
                _copy(source_log, log, kind, disk, origin, before, chunk_size, on_progress)
                return before
        _clear(disk, origin)
    raise AssertionError("a log that was cleared can be filled")


def _copy(
    source_log: LogReader,
    log: Log,
    kind: LogFormat,
    disk: Disk,
    origin: Origin,
    done: int,
    chunk_size: int,
    on_progress: OnProgress,
) -> None:
    write_origin(disk, origin)
    on_progress(done, 2 * _count(source_log))
    for batch in source_log.scan(source_log.first_index + done):
        for payloads in _chunks(batch.column("payload"), chunk_size):
            _append(log, payloads, source_log.first_index + done, kind)
            done += len(payloads)
            on_progress(done, 2 * _count(source_log))


def _clear(disk: Disk, origin: Origin) -> None:
    """Remove the entries that an interrupted run has copied: the source has other ones now."""
    lock = disk.lock()
    try:
        write_origin(disk, replace(origin, first_index=0))  # if this is interrupted, begin with it
        disk.remove(*(name for name in _files_below(disk, "") if name != ORIGIN))
        disk.remove(ORIGIN)
    finally:
        lock.release()


def _files_below(disk: Disk, directory: str) -> Iterator[str]:
    above = f"{directory}/" if directory else ""
    for name in disk.directories(directory):
        yield from _files_below(disk, above + name)
    yield from (above + name for name in disk.list(directory))


# The two ends


def _open_sound(disk: Disk, kind: LogFormat) -> LogReader:
    source_log = kind.open_reader(disk)
    if source_log.damage:
        damage = source_log.damage[0]
        source_log.close()
        raise CorruptError(damage.file, damage.offset, f"{damage.why}; repair the log first")
    return source_log


def _origin_of(disk: Disk, kind: LogFormat, source_log: LogReader) -> Origin:
    earlier = read_origin(disk)
    belongings = dict(earlier.belongings) if earlier else {}
    if isinstance(kind, HasBelongings):
        belongings[kind.name] = kind.belongings(source_log)
    return Origin(str(disk), source_log.first_index, belongings)


def _open_target(disk: Disk, kind: LogFormat, origin: Origin, options: dict[str, Any]) -> Log:
    belongings = origin.belongings.get(kind.name)
    if isinstance(kind, HasBelongings) and belongings is not None:
        return kind.open_with(disk, belongings, **options)
    return kind.open_writer(disk, **options)


def _is_done(disk: Disk, kind: LogFormat, origin: Origin, source_log: LogReader) -> bool:
    """Return whether this conversion was finished before, by a process that was killed then."""
    try:
        disk.list()
    except FileNotFoundError:
        return False
    made = read_origin(disk)
    if made and (made.source, made.first_index) == (origin.source, origin.first_index):
        found = format_of(disk)
        with closing(found.open_reader(disk)) as copy:
            if found is kind and _count(copy) == _count(source_log):
                return True
    raise ExistsError(f"{disk} exists: convert into a new directory")


def _refuse_other_logs(disk: Disk, kind: LogFormat) -> None:
    try:
        found = [other.name for other in FORMATS.values() if other.owns(disk)]
    except FileNotFoundError:
        return
    if found not in ([], [kind.name]):
        raise HoldfastError(f"{disk} holds a {found[0]} log, not a {kind.name} one; remove it")


def _resume(log: Log, disk: Disk, origin: Origin, source_log: LogReader) -> int | None:
    """Return how many entries were copied already; None if the source no longer has them.

    Entries of another conversion are refused.
    """
    count, begun = _count(log), read_origin(disk)
    if count and (begun is None or begun.source != origin.source):
        whose = f"of {begun.source}" if begun else "that no conversion has made"
        raise HoldfastError(f"{disk} holds entries {whose}; remove it, or name another target")
    if count > _count(source_log) or (not count and log.first_index != source_log.first_index):
        return None
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


def _append(log: Log, payloads: "pa.Array", first: int, kind: LogFormat) -> None:
    """Append all; or those before the first that is not valid, and raise an error that names it."""
    try:
        log.append(payloads)
    except ValueError as error:
        if len(payloads) == 1:
            raise ValueError(
                f"entry {first} cannot be stored in a {kind.name} log: {error}"
            ) from error
        half = len(payloads) // 2
        _append(log, payloads.slice(0, half), first, kind)
        _append(log, payloads.slice(half), first + half, kind)


def _compare(source_log: LogReader, disk: Disk, kind: LogFormat, on_progress: OnProgress) -> int:
    """Compare each entry and its index with the source; return the shift of indexes."""
    count = _count(source_log)
    with closing(kind.open_reader(disk)) as copy:
        shift = copy.first_index - source_log.first_index
        if _count(copy) != count:
            raise _unequal(disk, f"{_count(copy)} entries instead of {count}")
        done, last = 0, copy.last_index + 1
        pairs = aligned(source_log.scan(stop=source_log.first_index + count), copy.scan(stop=last))
        for one, two in pairs:
            first, size = source_log.first_index + done, one.num_rows
            indexes = np.arange(first, first + size)
            for batch, offset in ((one, 0), (two, shift)):
                if not np.array_equal(batch.column("index").to_numpy(), indexes + offset):
                    raise _unequal(disk, f"other indexes from {first} on")
            row = difference(one, two)
            if row is not None:
                raise _unequal(disk, f"another payload of entry {first + row}")
            done += size
            on_progress(count + done, 2 * count)
        if done != count:
            raise _unequal(disk, f"only {done} of {count} entries could be scanned")
    return shift


def _segment_sizes(disk: Disk, kind: LogFormat) -> list[int]:
    with closing(kind.open_reader(disk)) as copy:
        return [one.size for one in copy.segments()]


def _compare_belongings(disk: Disk, kind: LogFormat, origin: Origin) -> None:
    wanted = origin.belongings.get(kind.name)
    if wanted is None or not isinstance(kind, HasBelongings):
        return
    with closing(kind.open_reader(disk)) as copy:
        if kind.belongings(copy) != wanted:
            raise _unequal(disk, f"it has {kind.belongings(copy)} instead of {wanted}")


class _UnequalError(CorruptError):
    """The target is not equal to its source."""


def _unequal(disk: Disk, what: str) -> CorruptError:
    return _UnequalError(str(disk), 0, f"not equal to its source: {what}")


def _count(log: LogReader) -> int:
    return log.last_index + 1 - log.first_index
