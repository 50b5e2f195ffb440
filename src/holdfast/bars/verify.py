"""Verify a bar store: every group of every log, and every record of every year file.

Year files have no checksums: an impossible header, index, slot or payload is found, a damaged price
is not.  A write-back that a crash interrupted is found too; it is excused if the logs will write
those intervals again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from holdfast.bars.catalog import Catalog, find_header, split_path, year_path
from holdfast.bars.status import (
    SECOND_LOOK_MS,
    WHOLE,
    WalStatus,
    damaged_records,
    judge,
    look,
    rewritten,
    settled,
    wals_of,
)
from holdfast.bars.wal import Damage
from holdfast.disk import Disk, File
from holdfast.formats import year_file
from holdfast.formats.flaw import Flaw
from holdfast.formats.year_file import INDEX_FIELD, SLOT, Header, Schema
from holdfast.runtime import Runtime
from holdfast.verdicts import Verdict, worst

_CHUNK = 1 << 22  # bytes of records that are read at once
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FileVerdict:
    """What reading one log or year file from end to end found."""

    name: str
    verdict: Verdict
    rows: int  # of a log: its groups
    size: int
    damage: tuple[Damage, ...]


@dataclass(frozen=True, slots=True)
class BarsVerdict:
    """What reading a whole root found."""

    path: str
    verdict: Verdict
    rows: int  # in the year files
    groups: int  # in the logs
    logs: tuple[FileVerdict, ...]
    year_files: tuple[FileVerdict, ...]
    damage: tuple[Damage, ...]  # of the logs together, and of records of transactions


@dataclass(slots=True)
class YearCheck:
    """What reading one year file from end to end found."""

    path: str
    rows: int = 0
    size: int = 0
    schema: Schema | None = None
    flaws: dict[int, Damage] = field(default_factory=dict)  # by interval
    unread: str = ""  # why it could not be read to its end, if so

    def add(self, interval: int, offset: int, why: str) -> None:
        self.flaws.setdefault(interval, Damage(self.path, offset, why))


def check_year_file(disk: Disk, path: str) -> YearCheck:
    """Read one year file from end to end; an error of the disk is part of the result."""
    try:
        return read_year_file(disk, path)
    except FileNotFoundError:
        raise
    except OSError as error:
        return YearCheck(path, unread=error.strerror or str(error))


def read_year_file(disk: Disk, path: str, known: Header | None = None) -> YearCheck:
    """Read one year file from end to end.  In a root its header must agree with its path."""
    found = YearCheck(path)
    with closing(disk.open(path)) as file:
        found.size = file.size()
        header = known or find_header(file, path)
        if isinstance(header, Flaw):
            found.add(WHOLE, header.offset, header.why)
        else:
            found.schema = header.schema
            _check_shape(found, header)
            check = _check_ticks if header.schema.is_variable else _check_bars
            check(file, header, found)
    return found


def _check_shape(found: YearCheck, header: Header) -> None:
    if found.size < header.stop:
        found.add(WHOLE, found.size, f"cut to {found.size} bytes of at least {header.stop}")
    elif found.size > header.stop and not header.schema.is_variable:
        found.add(WHOLE, header.stop, f"{found.size - header.stop} bytes after the last record")


def _records(file: File, header: Header) -> Iterator[tuple[Ints, npt.NDArray[np.void]]]:
    """Yield intervals, and their records or slots, in chunks; holes are skipped."""
    schema, done = header.schema, 0
    size = schema.record_size
    for start, end in file.extents(year_file.HEADER_SIZE, header.stop):
        low = max(done, (start - year_file.HEADER_SIZE) // size)
        done = (end - 1 - year_file.HEADER_SIZE) // size + 1
        for first in range(low, done, _CHUNK // size):
            stop = min(done, first + _CHUNK // size)
            data = file.read_at(year_file.HEADER_SIZE + first * size, (stop - first) * size)
            records = np.frombuffer(data, schema.record, len(data) // size)
            yield np.arange(first + 1, first + 1 + len(records), dtype=np.int64), records


def _check_bars(file: File, header: Header, found: YearCheck) -> None:
    schema = header.schema
    if year_file.has_new_year(header):
        found.rows += any(file.read_at(schema.offset_of(0), schema.record_size))
    for intervals, records in _records(file, header):
        index = records[INDEX_FIELD]
        found.rows += int(np.count_nonzero(index))
        _find_strangers(found, header, intervals, index)


def _find_strangers(found: YearCheck, header: Header, intervals: Ints, index: Ints) -> None:
    for at in np.flatnonzero((index != 0) & (index != intervals)).tolist():
        why = f"the record of interval {intervals[at]} says it is that of {index[at]}"
        found.add(int(intervals[at]), header.schema.offset_of(int(intervals[at])), why)


def _check_ticks(file: File, header: Header, found: YearCheck) -> None:
    held: list[npt.NDArray[np.void]] = []
    for intervals, slots in _records(file, header):
        _find_strangers(found, header, intervals, slots["index"])
        own = slots[slots["index"] == intervals]
        for interval, offset, length in own.tolist():
            _check_payload(file, header, found, interval, offset, length)
        held.append(own[~np.isin(own["index"], list(found.flaws))])
    slots = np.concatenate([np.empty(0, SLOT), *held])
    slots = slots[np.argsort(slots["offset"], kind="stable")]
    stops = slots["offset"] + slots["length"]
    for at in np.flatnonzero(stops[:-1] > slots["offset"][1:]).tolist():
        one, other = slots["index"][at].item(), slots["index"][at + 1].item()
        why = f"the payloads of intervals {one} and {other} overlap"
        found.add(other, header.schema.offset_of(other), why)


def _check_payload(
    file: File, header: Header, found: YearCheck, interval: int, offset: int, length: int
) -> None:
    at, size = header.schema.offset_of(interval), header.schema.stored.itemsize
    if not (header.stop <= offset <= offset + length <= found.size and length > 0):
        found.add(interval, at, f"a slot points to {length} bytes at {offset}")
        return
    rows = year_file.decode_payload(file.read_at(offset, length), size)
    if isinstance(rows, Flaw):
        found.add(interval, at, f"the payload of its slot: {rows.why}")
    else:
        found.rows += len(rows[0]) // size


CheckFiles = Callable[[Disk, Sequence[str]], Iterable[YearCheck]]


def check_here(disk: Disk, names: Sequence[str]) -> Iterable[YearCheck]:
    """Check one year file after the other."""
    return (check_year_file(disk, name) for name in names)


def verify_bars(
    disk: Disk,
    runtime: Runtime,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    check: CheckFiles = check_here,
) -> BarsVerdict:
    """Verify every group and every year file; `on_progress` gets files done, and files in all.

    `check` reads the year files, here or elsewhere.
    """
    before = look(disk)
    names = _year_files(disk)
    checks: dict[str, YearCheck] = {}
    for done, one in enumerate(check(disk, names)):
        on_progress(done, len(names))
        checks[one.path] = one
    on_progress(len(names), len(names))
    found = settled(disk, runtime)
    cover = rewritten([*before.changes(), *found.changes()])
    _look_again(disk, checks, cover, runtime)
    _compare_years(checks)
    _excuse(checks, cover)
    logs = [_log_verdict(log) for log in wals_of(disk, found, runtime)]
    files = [_file_verdict(check) for check in checks.values()]
    named = {log.name for log in logs}
    others = tuple(damage for damage in found.damage if damage.file not in named)
    others += damaged_records(disk)
    return BarsVerdict(
        path=str(disk),
        verdict=worst([*(one.verdict for one in (*logs, *files)), judge(others, ())]),
        rows=sum(check.rows for check in checks.values()),
        groups=sum(log.rows for log in logs),
        logs=tuple(logs),
        year_files=tuple(files),
        damage=others,
    )


def _year_files(disk: Disk) -> list[str]:
    catalog = Catalog(disk)
    keys = [key for symbol in catalog.symbols() for key in catalog.buckets(symbol)]
    return [year_path(key, year) for key in keys for year in sorted(catalog.years(key))]


def _compare_years(checks: dict[str, YearCheck]) -> None:
    """Report years of a bucket whose columns differ."""
    schemas: dict[str, Schema] = {}
    for name, check in checks.items():
        named = split_path(name)
        if check.schema is None or named is None:
            continue
        if check.schema is not schemas.setdefault(named.key, check.schema):
            check.add(WHOLE, 312, "other columns than an earlier year of this bucket")


def _look_again(
    disk: Disk, checks: dict[str, YearCheck], cover: dict[str, set[int]], runtime: Runtime
) -> None:
    """Drop what a second look at a file does not find: the owner was at work on it."""
    flawed = [name for name, check in checks.items() if _uncovered(check, cover)]
    if flawed:
        runtime.sleep_ms(SECOND_LOOK_MS)
    for name in flawed:
        again = check_year_file(disk, name)
        if again.unread:
            continue
        if WHOLE in checks[name].flaws:  # nothing else of the file was looked at
            checks[name] = again
        for interval in checks[name].flaws.keys() - again.flaws.keys():
            del checks[name].flaws[interval]


def _excuse(checks: dict[str, YearCheck], cover: dict[str, set[int]]) -> None:
    """Drop what the logs will write again."""
    for check in checks.values():
        for interval in check.flaws.keys() - _uncovered(check, cover):
            del check.flaws[interval]


def _uncovered(check: YearCheck, cover: dict[str, set[int]]) -> set[int]:
    covered = cover.get(check.path, set())
    return set() if WHOLE in covered else check.flaws.keys() - covered


def _log_verdict(log: WalStatus) -> FileVerdict:
    torn = (log.torn,) if log.torn else ()
    found = (*log.damage, *torn)
    return FileVerdict(log.name, judge(log.damage, torn), log.committed, log.size, found)


def _file_verdict(check: YearCheck) -> FileVerdict:
    damage = tuple(check.flaws.values())
    verdict = judge(damage, ())
    if check.unread:
        verdict = worst([verdict, "unreadable"])
        damage = (*damage, Damage(check.path, 0, f"cannot be read: {check.unread}"))
    return FileVerdict(check.path, verdict, check.rows, check.size, damage)
