"""What an operator asks of a bar store, as dataclasses: printed by the command line, or as JSON.

Everything here is a guest: it takes no lock, changes nothing, and may run beside a live owner.
An owner at work can look like damage or a torn tail.  So what looks wrong is looked at twice, a
moment apart, and is told only if it is the same both times and no log is about to write it again.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.bars.catalog import Catalog, find_header, split_path, year_path
from holdfast.bars.checking import WHOLE, YearCheck, check_year_file, rewritten
from holdfast.bars.wal import Damage
from holdfast.disk import OsDisk
from holdfast.formats.flaw import Flaw
from holdfast.formats.year_file import TYPES, Schema
from holdfast.logs.log import Metric
from holdfast.reports.bar_logs import SECOND_LOOK_SECONDS, WalReport, look, settled, wals_of
from holdfast.reports.logs import CutFile, Owner, Pause, Verdict, find_owner, worst


@dataclass(frozen=True, slots=True)
class BucketReport:
    key: str
    kind: str  # "bars", one row per interval, or "ticks", many
    columns: dict[str, str]  # names and types
    years: tuple[int, ...]
    allocated: int  # bytes on the disk; holes take none


@dataclass(frozen=True, slots=True)
class BarsReport:
    """One root at a glance, from names, headers and logs; verify_bars reads the rest."""

    path: str
    verdict: Verdict
    symbols: int
    buckets: tuple[BucketReport, ...]
    year_files: int
    allocated: int
    logs: tuple[WalReport, ...]
    waiting: int
    undecided: tuple[int, ...]
    torn: tuple[Damage, ...]
    damage: tuple[Damage, ...]
    cuts: tuple[CutFile, ...]
    owner: Owner | None


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
    path: str
    verdict: Verdict
    rows: int  # in the year files
    groups: int  # in the logs
    logs: tuple[FileVerdict, ...]
    year_files: tuple[FileVerdict, ...]
    damage: tuple[Damage, ...]  # of the logs together: what one says and another denies


# A root at a glance


def inspect_bars(path: str, *, pause: Pause = time.sleep) -> BarsReport:
    """Say what a root holds and how it fares, without reading its records."""
    disk = OsDisk(path)
    found = settled(disk, pause)
    buckets, flaws = _buckets(disk, rewritten(found.changes()))
    if flaws:  # a file that an owner has begun to make since the logs were read looks so too
        pause(SECOND_LOOK_SECONDS)
        found = settled(disk, pause)
        buckets, flaws = _buckets(disk, rewritten(found.changes()))
    logs = wals_of(disk, found)
    damage = (*found.damage, *flaws)
    torn = tuple(log.torn for log in logs if log.torn)
    return BarsReport(
        path=path,
        verdict=_judge(damage, torn),
        symbols=len({bucket.key.split("/")[0] for bucket in buckets}),
        buckets=tuple(buckets),
        year_files=sum(len(bucket.years) for bucket in buckets),
        allocated=sum(bucket.allocated for bucket in buckets),
        logs=logs,
        waiting=sum(log.waiting for log in logs),
        undecided=tuple(found.undecided()),
        torn=torn,
        damage=damage,
        cuts=tuple(CutFile(n, size) for n, size in disk.list().items() if n.endswith(".cut")),
        owner=find_owner(disk),
    )


def gauges(report: BarsReport) -> list[Metric]:
    """What can be watched from outside; prometheus_text prints it."""
    values = {
        "symbols": (report.symbols, "symbols that have year files"),
        "buckets": (len(report.buckets), "symbols times timeframes times attribute groups"),
        "year_files": (report.year_files, "files of one bucket and year"),
        "allocated_bytes": (report.allocated, "bytes that year files take on the disk"),
        "logs": (len(report.logs), "write-ahead logs"),
        "log_bytes": (sum(log.size for log in report.logs), "bytes in write-ahead logs"),
        "waiting_groups": (report.waiting, "groups that are not yet in the year files"),
        "undecided_groups": (len(report.undecided), "groups that are prepared, and no more"),
        "damaged": (len(report.damage), "damage found, torn tails not counted"),
        "torn_tail": (int(bool(report.torn)), "1 if a write to a log was cut short"),
    }
    return [Metric(name, "gauge", value, about) for name, (value, about) in values.items()]


def _judge(damage: Iterable[Damage], torn: Iterable[Damage]) -> Verdict:
    if any(True for _ in damage):
        return "corrupt"
    return "torn tail" if any(True for _ in torn) else "clean"


def _buckets(disk: OsDisk, cover: dict[str, set[int]]) -> tuple[list[BucketReport], list[Damage]]:
    catalog, found, damage = Catalog(disk), list[BucketReport](), list[Damage]()
    for symbol in catalog.symbols():
        for key in catalog.buckets(symbol):
            years = sorted(catalog.years(key))
            paths = [year_path(key, year) for year in years]
            schema: Schema | None = None
            for path in paths[:1]:
                header = _header(disk, path)
                if not isinstance(header, Damage):
                    schema = header
                elif WHOLE not in cover.get(path, ()):
                    damage.append(header)
            allocated = sum(map(allocated_by, (Path(disk.path, path) for path in paths)))
            if years:
                found.append(_bucket(key, schema, years, allocated))
    return found, damage


def _bucket(key: str, schema: Schema | None, years: list[int], allocated: int) -> BucketReport:
    columns = {} if schema is None else type_names(schema)
    kind = "unknown" if schema is None else "ticks" if schema.is_variable else "bars"
    return BucketReport(key, kind, columns, tuple(years), allocated)


def type_names(schema: Schema) -> dict[str, str]:
    """Names of columns, and their types as the command line writes them."""
    return {name: TYPES[code].lstrip("<|") for name, code in schema.columns}


def _header(disk: OsDisk, path: str) -> Schema | Damage:
    file = disk.open(path)
    try:
        header = find_header(file, path)
    finally:
        file.close()
    if isinstance(header, Flaw):
        return Damage(path, header.offset, header.why)
    return header.schema


def allocated_by(path: Path) -> int:
    """Bytes that a file takes on the disk."""
    return path.lstat().st_blocks * 512


# Everything


CheckFiles = Callable[[OsDisk, Sequence[str]], Iterable[YearCheck]]


def check_here(disk: OsDisk, names: Sequence[str]) -> Iterable[YearCheck]:
    """One year file after the other."""
    return (check_year_file(disk, name) for name in names)


def verify_bars(
    path: str,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    check: CheckFiles = check_here,
    pause: Pause = time.sleep,
) -> BarsVerdict:
    """Verify every group and every year file; `on_progress` is told files done, files in all.

    `check` reads the year files, here or elsewhere.
    """
    disk = OsDisk(path)
    before = look(disk)
    names = _year_files(disk)
    checks: dict[str, YearCheck] = {}
    for done, one in enumerate(check(disk, names)):
        on_progress(done, len(names))
        checks[one.path] = one
    on_progress(len(names), len(names))
    found = settled(disk, pause)
    cover = rewritten([*before.changes(), *found.changes()])
    _look_again(disk, checks, cover, pause)
    _compare_years(checks)
    _excuse(checks, cover)
    logs = [_log_verdict(log) for log in wals_of(disk, found)]
    files = [_file_verdict(check) for check in checks.values()]
    named = {log.name for log in logs}
    others = tuple(damage for damage in found.damage if damage.file not in named)
    return BarsVerdict(
        path=path,
        verdict=worst([*(one.verdict for one in (*logs, *files)), _judge(others, ())]),
        rows=sum(check.rows for check in checks.values()),
        groups=sum(log.rows for log in logs),
        logs=tuple(logs),
        year_files=tuple(files),
        damage=others,
    )


def _year_files(disk: OsDisk) -> list[str]:
    catalog = Catalog(disk)
    keys = [key for symbol in catalog.symbols() for key in catalog.buckets(symbol)]
    return [year_path(key, year) for key in keys for year in sorted(catalog.years(key))]


def _compare_years(checks: dict[str, YearCheck]) -> None:
    """All years of a bucket have the same columns."""
    schemas: dict[str, Schema] = {}
    for name, check in checks.items():
        named = split_path(name)
        if check.schema is None or named is None:
            continue
        if check.schema is not schemas.setdefault(named.key, check.schema):
            check.add(WHOLE, 312, "other columns than an earlier year of this bucket")


def _look_again(
    disk: OsDisk, checks: dict[str, YearCheck], cover: dict[str, set[int]], pause: Pause
) -> None:
    """Drop what a second look at a file does not find: the owner was at work on it."""
    flawed = [name for name, check in checks.items() if _uncovered(check, cover)]
    if flawed:
        pause(SECOND_LOOK_SECONDS)
    for name in flawed:
        again = check_year_file(disk, name)
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


def _log_verdict(log: WalReport) -> FileVerdict:
    torn = (log.torn,) if log.torn else ()
    found = (*log.damage, *torn)
    return FileVerdict(log.name, _judge(log.damage, torn), log.committed, log.size, found)


def _file_verdict(check: YearCheck) -> FileVerdict:
    damage = tuple(check.flaws.values())
    return FileVerdict(check.path, _judge(damage, ()), check.rows, check.size, damage)
