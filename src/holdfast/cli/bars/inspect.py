"""`holdfast bars inspect` and `verify`."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.bars.replay import wal_table
from holdfast.cli.errors import VERDICTS
from holdfast.cli.opening import bar_reader, find_root
from holdfast.cli.options import JsonOption, PrometheusOption
from holdfast.cli.output import answer, count_of, human_size, page, printable, table
from holdfast.cli.verifying import verify_all, verify_read

if TYPE_CHECKING:
    from holdfast.bars.files import WalContent, YearFileReport
    from holdfast.bars.status import BarsStatus, BucketStatus
    from holdfast.bars.verify import BarsVerdict, FileVerdict


def inspect(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="The directory of a store; or one WAL file or year file."
        ),
    ],
    prometheus: PrometheusOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show a status summary of a store, or of one of its files.

    For a store: buckets, years, columns, WAL files, owner and damage, by names, headers and WAL
    files; `verify` reads everything.  For a WAL file: its messages.  For a year file: its header
    and its size.  Exits with 2 if there is damage, with 3 if the tail of a WAL file is torn.
    """
    if prometheus and (as_json or Path(path).is_file()):
        raise ValueError("--prometheus needs a store, and excludes --json")
    if Path(path).is_file():
        _inspect_file(path, as_json=as_json)
        return
    from holdfast.metrics import prometheus_text

    with bar_reader(path) as reader:
        report = reader.status()
    if prometheus:
        answer(prometheus_text(report.metrics(), "holdfast_bars", path=path).rstrip())
    else:
        answer(_page(report), report, as_json=as_json)
    raise typer.Exit(VERDICTS[report.verdict])


def _inspect_file(path: str, *, as_json: bool) -> None:
    from holdfast.doors.bars import WalContent, read_bar_file

    file = read_bar_file(path)
    torn = isinstance(file, WalContent) and file.torn
    lines = _log_lines(file) if isinstance(file, WalContent) else _year_lines(file)
    answer(lines, file, as_json=as_json)
    raise typer.Exit(2 if file.damage else 3 if torn else 0)


def verify(
    paths: Annotated[list[str], typer.Argument(metavar="ROOT", help="Directories of stores.")],
    as_json: JsonOption = False,
) -> None:
    """Verify every group in every WAL file, and every record of every year file.

    Exits with 0 if all is clean, with 2 if a store is corrupt, with 3 if a tail is torn, with 5 if
    a store cannot be read.  It may run beside a live owner.  Year files have no checksums: invalid
    headers, indexes and payloads are found, changed prices are not.
    """

    def text_of(report: "BarsVerdict") -> str:
        return "\n".join(_verdict_lines(report))

    verify_all(paths, find_root, verify_read(bar_reader), text_of, as_json=as_json, unit="files")


def _page(report: "BarsStatus") -> Iterable[str]:
    owner = report.owner
    alive = owner is not None and owner.alive
    facts = {
        "path": report.path,
        "verdict": report.verdict,
        "symbols": f"{report.symbols:,}",
        "buckets": f"{len(report.buckets):,}",
        "year files": f"{report.year_files:,}, {human_size(report.allocated)} on disk",
        "WAL files": len(report.logs) or "none",
        "groups to write back": f"{report.waiting:,}",
        "undecided groups": str(len(report.undecided) or "none"),
        "owner": f"process {owner.pid} (alive)" if owner and alive else "none",
        "torn tail": str(len(report.torn) or "none"),
        "damage": str(len(report.damage) or "none"),
        "cut files": str(len(report.cuts) or "none"),
    }
    details: dict[str, Iterable[str]] = {
        "buckets": _kinds(report.buckets),
        "WAL files": wal_table(report.logs).splitlines() if report.logs else [],
        "undecided groups": map(str, report.undecided),
        "torn tail": map(str, report.torn),
        "damage": map(str, report.damage),
        "cut files": [f"{cut.name}, {human_size(cut.size)}" for cut in report.cuts],
    }
    return page(facts, details)


def _kinds(buckets: "Iterable[BucketStatus]") -> list[str]:
    """Return a line for each kind of bucket: many symbols have the same few kinds."""
    found: dict[tuple[str, str, str], list[BucketStatus]] = {}
    for bucket in buckets:
        key = bucket.key.partition("/")[2], bucket.kind, _columns(bucket.columns)
        found.setdefault(key, []).append(bucket)
    lines = []
    for (name, kind, columns), own in sorted(found.items()):
        years = [year for bucket in own for year in bucket.years]
        span = f"{min(years)}..{max(years)}"
        lines.append(f"{name}: {kind} of {count_of(len(own), 'symbol')}, {span}; {columns}")
    return lines


def _columns(columns: dict[str, str]) -> str:
    return ", ".join(f"{printable(name)} {kind}" for name, kind in columns.items())


def _log_lines(log: "WalContent") -> Iterable[str]:
    owner = "" if log.owner is None else f", process {log.owner}"
    yield f"{log.name}: {log.dialect} dialect, {log.state}{owner}, {human_size(log.size)}"
    rows: list[tuple[Any, ...]] = []
    for message in log.messages:
        tgid = "" if message.tgid is None else str(message.tgid)
        rows.append((message.offset, message.kind, tgid, message.text))
        rows += [
            ("", "", "", f"  {printable(one.path)}: {one.rows} {one.kind}") for one in message.sets
        ]
    if rows:
        yield table(["OFFSET", "MESSAGE", "TGID", "WHAT"], rows)
    if log.torn:
        yield f"{log.torn}"


def _year_lines(year: "YearFileReport") -> Iterable[str]:
    facts = {
        "path": year.path,
        "year": str(year.year),
        "timeframe": f"{year.timeframe_ns / 10**9:g} s",
        "kind": year.kind,
        "columns": _columns(year.columns),
        "description": printable(year.description),
        "record": f"{year.record_size} bytes",
        "intervals": f"{year.intervals:,}",
        "rows": f"{year.rows:,}",
        "size": f"{human_size(year.size)}, {human_size(year.allocated)} on disk",
        "damage": str(len(year.damage) or "none"),
    }
    return page(facts, {"damage": year.damage})


def _verdict_lines(report: "BarsVerdict") -> Iterable[str]:
    """Yield lines: the WAL files, the damage and the verdict; clean year files are only counted."""
    wrong = [one for one in report.year_files if one.verdict != "clean"]
    if report.logs or wrong:
        yield table(
            ["FILE", "VERDICT", "HOLDS", "SIZE"],
            [*map(_verdict_row, report.logs), *map(_year_row, wrong)],
        )
    for one in (*report.logs, *wrong):
        yield from map(str, one.damage)
    yield from map(str, report.damage)
    files, rows = count_of(len(report.year_files), "year file"), count_of(report.rows, "row")
    wals, groups = count_of(len(report.logs), "WAL file"), count_of(report.groups, "group")
    what = f"{files}, {rows}; {wals}, {groups}"
    yield f"{report.path}: {report.verdict} ({what})"


def _verdict_row(log: "FileVerdict") -> tuple[str, ...]:
    return log.name, log.verdict, count_of(log.rows, "group"), human_size(log.size)


def _year_row(file: "FileVerdict") -> tuple[str, ...]:
    return file.name, file.verdict, count_of(file.rows, "row"), human_size(file.size)
