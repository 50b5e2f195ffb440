"""`holdfast log ls`, `inspect` and `verify`: what holdfast.reports found, printed."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.console import (
    JsonOption,
    LogPath,
    answer,
    answer_json,
    progress,
    remark,
    table,
)
from holdfast.cli.opening import find_log, guest_of
from holdfast.cli.units import count_of, human_size, human_span, human_time

if TYPE_CHECKING:
    from holdfast.logs.log import SegmentInfo
    from holdfast.reports import LogReport, Owner, VerifyReport

_UNREAD = ", as far as headers and the tail tell; `verify` reads the rest"


def ls(path: LogPath, as_json: JsonOption = False) -> None:
    """List the segments of a log, oldest first.

    With --json, one object per line.  Exits with 2 if the log is damaged.
    """
    with guest_of(path) as guest:
        segments, damage = guest.segments(), guest.damage
    if as_json:
        for segment in segments:
            answer_json(asdict(segment), line=True)
    else:
        answer(_segment_table(segments))
    for one in damage:
        remark(f"damaged: {one}", as_json=as_json)
    if damage:
        raise typer.Exit(2)


def inspect(
    path: LogPath,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Answer with gauges that Prometheus reads.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say on one page how a log fares.

    What it holds, who owns it, who follows it, what is wrong with it.  Reads names, headers and
    the last segment; `verify` reads everything.  Exits with 2 if the log is damaged, with 3 if
    its tail is torn.
    """
    from holdfast.reports import EXIT_CODES, inspect_log, prometheus_text

    find_log(path)
    report = inspect_log(path)
    if prometheus:
        labels = {"path": report.path, "format": report.format}
        answer(prometheus_text(report.gauges, "holdfast_log", **labels).rstrip())
    elif as_json:
        answer_json(asdict(report))
    else:
        answer("\n".join(_page(report)))
    raise typer.Exit(EXIT_CODES[report.verdict])


def verify(
    paths: Annotated[list[str], typer.Argument(metavar="PATH", help="Directories of logs.")],
    as_json: JsonOption = False,
) -> None:
    """Verify every checksum of every segment.

    Exits with 0 if all is clean, with 2 if it is corrupt, with 3 if the tail is torn.  It may run
    beside a live owner.  With several logs the gravest verdict is the exit code, and --json
    answers with a list.
    """
    from holdfast.reports import EXIT_CODES, verify_log, worst

    for path in paths:
        find_log(path)
    reports = []
    for path in paths:
        with progress(f"verifying {path}") as on_progress:
            reports.append(verify_log(path, on_progress))
        if not as_json:
            answer(verdict_table(reports[-1]))
    if as_json:
        documents = [asdict(report) for report in reports]
        answer_json(documents if len(documents) > 1 else documents[0])
    raise typer.Exit(EXIT_CODES[worst(report.verdict for report in reports)])


def _segment_table(segments: "Iterable[SegmentInfo]") -> str:
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
    return table(["NAME", "STATE", "FIRST", "LAST", "ENTRIES", "SIZE", "CREATED"], rows)


def _page(report: "LogReport") -> Iterable[str]:
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
        "replicas": str(len(report.replicas) or "none"),
        "torn tail": str(report.torn) if report.torn else "none",
        "damage": str(len(report.damage) or "none"),
        "kept aside": str(len(report.cuts) or "none"),
        **report.facts,
    }
    width = max(map(len, facts))
    details = {
        "replicas": [
            f"{r.name}: {r.acknowledged} acknowledged, {_behind(r.lag)}" for r in report.replicas
        ],
        "damage": map(str, report.damage),
        "kept aside": [f"{cut.name}, {human_size(cut.size)}" for cut in report.cuts],
    }
    for name, value in facts.items():
        yield f"{name:<{width}}  {value}"
        yield from (f"{'':<{width}}  - {line}" for line in details.get(name, []))


def _owner(owner: "Owner | None") -> str:
    if owner is None:
        return "none"
    return f"process {owner.pid} (alive)" if owner.alive else f"none (it was process {owner.pid})"


def verdict_table(report: "VerifyReport") -> str:
    """One log: what each segment is like, what is wrong, and the verdict on all of it."""
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


def _behind(lag: int) -> str:
    return f"{lag:,} behind" if lag >= 0 else f"{-lag:,} ahead of the log: one of them lost entries"
