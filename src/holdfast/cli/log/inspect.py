"""`holdfast log ls`, `inspect` and `verify`."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from holdfast.cli.errors import VERDICTS
from holdfast.cli.opening import find_log, log_reader, tell_damage
from holdfast.cli.options import JsonOption, LogPath, LogPaths, PrometheusOption
from holdfast.cli.output import (
    answer,
    answer_rows,
    count_of,
    human_size,
    human_span,
    human_time,
    page,
    table,
)
from holdfast.cli.verifying import verify_all, verify_read

if TYPE_CHECKING:
    from holdfast.logs.status import LogStatus
    from holdfast.logs.verify import VerifyReport
    from holdfast.verdicts import Owner

_UNREAD = ", by headers and the tail; `verify` reads the rest"


def ls(path: LogPath, as_json: JsonOption = False) -> None:
    """List the segments of a log, oldest first.

    Exits with 2 if the log is damaged.
    """
    with log_reader(path) as reader:
        segments, damage = reader.segments(), reader.damage
    rows = [
        (
            s.name,
            s.state,
            s.first_index,
            s.last_index,
            s.last_index + 1 - s.first_index,
            human_size(s.size),
            human_time(s.created_ms),
        )
        for s in segments
    ]
    titles = ["NAME", "STATE", "FIRST", "LAST", "ENTRIES", "SIZE", "CREATED"]
    answer_rows(titles, rows, segments, as_json=as_json)
    tell_damage(damage, as_json=as_json)


def inspect(
    path: LogPath, prometheus: PrometheusOption = False, as_json: JsonOption = False
) -> None:
    """Show a status summary of a log.

    Its entries, owner, replicas and damage.  Reads names, headers and the last segment; `verify`
    reads everything.  Exits with 2 if the log is damaged, with 3 if its tail is torn.
    """
    from holdfast.metrics import prometheus_text

    with log_reader(path) as reader:
        report = reader.status()
    if prometheus:
        labels = {"path": report.path, "format": report.format}
        answer(prometheus_text(report.metrics(), "holdfast_log", **labels).rstrip())
    else:
        answer(_page(report), report, as_json=as_json)
    raise typer.Exit(VERDICTS[report.verdict])


def verify(paths: LogPaths, as_json: JsonOption = False) -> None:
    """Verify every checksum of every segment.

    Exits with 0 if all is clean, with 2 if a log is corrupt, with 3 if a tail is torn, with 5 if a
    log cannot be read.  It may run beside a live owner.
    """
    verify_all(paths, find_log, verify_read(log_reader), verdict_table, as_json=as_json)


def _page(report: "LogStatus") -> Iterable[str]:
    states = ", ".join(f"{count} {state}" for state, count in sorted(report.states.items()))
    span = human_span(report.first_index, report.last_index)
    facts = {
        "path": report.path,
        "format": report.format,
        "verdict": report.verdict + _UNREAD if report.verdict == "clean" else report.verdict,
        "entries": f"{report.entries:,}",
        "indexes": span if report.entries else f"none; the next is {report.last_index + 1}",
        "size": human_size(report.size),
        "segments": states or "none",
        "owner": _owner(report.owner),
        "replicas": len(report.replicas) or "none",
        "torn tail": report.torn or "none",
        "damage": len(report.damage) or "none",
        "cut files": len(report.cuts) or "none",
        **report.facts,
    }
    details = {
        "replicas": [
            f"{r.name}: {r.acknowledged} acknowledged, {r.lag:,} behind" for r in report.replicas
        ],
        "damage": report.damage,
        "cut files": [f"{cut.name}, {human_size(cut.size)}" for cut in report.cuts],
    }
    return page(facts, details)


def _owner(owner: "Owner | None") -> str:
    if owner is None:
        return "none"
    return f"process {owner.pid} (alive)" if owner.alive else f"none (it was process {owner.pid})"


def verdict_table(report: "VerifyReport") -> str:
    """Return a line for each segment, the damage, and the verdict on the log."""
    rows = [
        (
            s.name,
            s.verdict,
            human_span(s.first_index, s.last_index) if s.first_index else "unknown",
            human_size(s.size),
        )
        for s in report.segments
    ]
    lines = [table(["SEGMENT", "VERDICT", "ENTRIES", "SIZE"], rows)]
    lines += [f"{d}" for segment in report.segments for d in segment.damage]
    what = f"{count_of(report.entries, 'entry')}, {human_size(report.size)}"
    lines.append(f"{report.path}: {report.verdict} ({what})")
    return "\n".join(lines)
