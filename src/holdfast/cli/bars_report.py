"""`holdfast bars inspect` and `verify`: what holdfast.reports found, printed."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.bars_opening import find_root
from holdfast.cli.bars_replay import wal_table
from holdfast.cli.console import JsonOption, answer, answer_json, printable, progress, table
from holdfast.cli.units import count_of, human_size

if TYPE_CHECKING:
    from holdfast.reports.bar_files import WalContent, YearFileReport
    from holdfast.reports.bars import BarsReport, BarsVerdict, BucketReport, FileVerdict


def inspect(
    path: Annotated[
        str,
        typer.Argument(metavar="PATH", help="A store's directory; or one log or year file."),
    ],
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Answer with gauges that Prometheus reads.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say on one page how a store fares, or what is in one of its files.

    Of a store: its buckets, years and columns, its logs and their groups, who owns it, what is
    wrong; from names, headers and logs, `verify` reads everything.  Of a log: its messages.  Of a
    year file: its header and how much it holds.  Exits with 2 if there is damage, with 3 if a
    log's tail is torn.
    """
    if prometheus and (as_json or Path(path).is_file()):
        raise ValueError("--prometheus is for a store, and without --json")
    if Path(path).is_file():
        _inspect_file(path, as_json=as_json)
        return
    from holdfast.reports import EXIT_CODES, prometheus_text
    from holdfast.reports.bars import gauges, inspect_bars

    find_root(path)
    report = inspect_bars(path)
    if as_json:
        answer_json(asdict(report))
    elif prometheus:
        answer(prometheus_text(gauges(report), "holdfast_bars", path=path).rstrip())
    else:
        answer("\n".join(_page(report)))
    raise typer.Exit(EXIT_CODES[report.verdict])


def _inspect_file(path: str, *, as_json: bool) -> None:
    from holdfast.reports import bar_files

    if "walfile" in Path(path).name.lower():
        log = bar_files.read_wal(path)
        told, code = "\n".join(_log_lines(log)), 2 if log.damage else 3 if log.torn else 0
        answer(told) if not as_json else answer_json(asdict(log))
    else:
        year = bar_files.read_year_file(path)
        told, code = "\n".join(_year_lines(year)), 2 if year.damage else 0
        answer(told) if not as_json else answer_json(asdict(year))
    raise typer.Exit(code)


def verify(
    paths: Annotated[list[str], typer.Argument(metavar="ROOT", help="Directories of stores.")],
    as_json: JsonOption = False,
) -> None:
    """Verify every group in every log, and every record of every year file.

    Exits with 0 if all is clean, with 2 if it is corrupt, with 3 if a log's tail is torn.  It may
    run beside a live owner.  Year files have no checksums: a header, an index or a payload that
    cannot be is found, a price that rotted is not.
    """
    from holdfast.reports import EXIT_CODES, worst
    from holdfast.reports.bars import verify_bars

    for path in paths:
        find_root(path)
    reports = []
    for path in paths:
        with progress(f"verifying {path}", unit="files") as on_progress:
            reports.append(verify_bars(path, on_progress))
        if not as_json:
            answer("\n".join(_verdict_lines(reports[-1])))
    if as_json:
        documents = [asdict(report) for report in reports]
        answer_json(documents if len(documents) > 1 else documents[0])
    raise typer.Exit(EXIT_CODES[worst(report.verdict for report in reports)])


def _facts(facts: dict[str, str], details: dict[str, Iterable[str]]) -> Iterable[str]:
    width = max(map(len, facts))
    for name, value in facts.items():
        yield f"{name:<{width}}  {value}"
        yield from (f"{'':<{width}}  - {line}" for line in details.get(name, []))


def _page(report: "BarsReport") -> Iterable[str]:
    owner = report.owner
    alive = owner is not None and owner.alive
    facts = {
        "path": report.path,
        "verdict": report.verdict,
        "symbols": f"{report.symbols:,}",
        "buckets": f"{len(report.buckets):,}",
        "year files": f"{report.year_files:,}, {human_size(report.allocated)} on disk",
        "logs": str(len(report.logs) or "none"),
        "groups to write back": f"{report.waiting:,}",
        "undecided groups": str(len(report.undecided) or "none"),
        "owner": f"process {owner.pid} (alive)" if owner and alive else "none",
        "torn tail": str(len(report.torn) or "none"),
        "damage": str(len(report.damage) or "none"),
        "kept aside": str(len(report.cuts) or "none"),
    }
    details: dict[str, Iterable[str]] = {
        "buckets": _kinds(report.buckets),
        "logs": wal_table(report.logs).splitlines() if report.logs else [],
        "undecided groups": map(str, report.undecided),
        "torn tail": map(str, report.torn),
        "damage": map(str, report.damage),
        "kept aside": [f"{cut.name}, {human_size(cut.size)}" for cut in report.cuts],
    }
    return _facts(facts, details)


def _kinds(buckets: "Iterable[BucketReport]") -> list[str]:
    """Thousands of symbols have the same few kinds of buckets: a line for each kind."""
    found: dict[tuple[str, str, str], list[BucketReport]] = {}
    for bucket in buckets:
        kind = bucket.key.partition("/")[2], bucket.kind, _columns(bucket.columns)
        found.setdefault(kind, []).append(bucket)
    lines = []
    for (name, told, columns), own in sorted(found.items()):
        years = [year for bucket in own for year in bucket.years]
        span = f"{min(years)}..{max(years)}"
        lines.append(f"{name}: {told} of {count_of(len(own), 'symbol')}, {span}; {columns}")
    return lines


def _shown(text: str) -> str:
    return printable(text.encode())


def _columns(columns: dict[str, str]) -> str:
    return ", ".join(f"{_shown(name)} {kind}" for name, kind in columns.items())


def _log_lines(log: "WalContent") -> Iterable[str]:
    owner = "" if log.owner is None else f", process {log.owner}"
    yield f"{log.name}: {log.dialect} dialect, {log.state}{owner}, {human_size(log.size)}"
    rows: list[tuple[Any, ...]] = []
    for message in log.messages:
        tgid = "" if message.tgid is None else str(message.tgid)
        rows.append((message.offset, message.kind, tgid, message.text))
        rows += [
            ("", "", "", f"  {_shown(one.path)}: {one.rows} {one.kind}") for one in message.sets
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
        "description": _shown(year.description),
        "record": f"{year.record_size} bytes",
        "intervals": f"{year.intervals:,}",
        "rows": f"{year.rows:,}",
        "size": f"{human_size(year.size)}, {human_size(year.allocated)} on disk",
        "damage": str(len(year.damage) or "none"),
    }
    return _facts(facts, {"damage": map(str, year.damage)})


def _verdict_lines(report: "BarsVerdict") -> Iterable[str]:
    """The logs, what is wrong, and the verdict on all of it; sound year files are only counted."""
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
    what = (
        f"{files}, {rows}; {count_of(len(report.logs), 'log')}, {count_of(report.groups, 'group')}"
    )
    yield f"{report.path}: {report.verdict} ({what})"


def _verdict_row(log: "FileVerdict") -> tuple[str, ...]:
    return log.name, log.verdict, count_of(log.rows, "group"), human_size(log.size)


def _year_row(file: "FileVerdict") -> tuple[str, ...]:
    return file.name, file.verdict, count_of(file.rows, "row"), human_size(file.size)
