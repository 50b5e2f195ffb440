"""`holdfast log scrub`, `replay` and `stats`: Spark's workers read, this prints."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.console import JsonOption, LogPath, answer, answer_json, progress, remark
from holdfast.cli.log_report import verdict_table
from holdfast.cli.opening import find_log
from holdfast.cli.sparking import MasterOption, spark_session
from holdfast.cli.units import count_of, human_size, human_span, human_time

if TYPE_CHECKING:
    from holdfast.spark.jobs import ReplayReport, StatsReport

_BAR_WIDTH = 40
_LINES_MAX = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"


def scrub(
    paths: Annotated[list[str], typer.Argument(metavar="PATH", help="Directories of logs.")],
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Verify every checksum of one or many logs, on all cores or a cluster.

    Says the same as `verify`, and exits as it does: 0 if all is clean, 2 if any log is corrupt,
    3 if a tail is torn. It may run beside live owners.
    """
    for path in paths:
        find_log(path)
    with spark_session(master, "scrubbing") as spark:
        from holdfast.spark.jobs import scrub as run

        report = run(spark, paths)
    if as_json:
        answer_json(asdict(report))
    else:
        for log in report.logs:
            answer(verdict_table(log))
    raise typer.Exit(report.exit_code)


def replay(
    path: LogPath,
    sink: Annotated[
        str, typer.Option("--to", metavar="FORMAT", help="parquet, json, console, ... any sink.")
    ],
    checkpoint: Annotated[
        str, typer.Option(metavar="DIRECTORY", help="Remembers how far the replay has come.")
    ],
    options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="For the sink, such as path=/out."),
    ] = None,
    start: Annotated[
        str, typer.Option(metavar="INDEX", help="Where a new checkpoint begins.")
    ] = "earliest",
    entries_per_batch: Annotated[
        int | None, typer.Option(min=1, help="Most entries in one micro-batch.")
    ] = None,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a log into any Spark sink, from an index on.

    Ends when it has caught up. The same command again, with the same checkpoint, goes on from
    there, also after a crash.
    """
    find_log(path)
    pairs = [option.partition("=") for option in options or []]
    if wrong := [name for name, equals, _ in pairs if not equals]:
        raise typer.BadParameter(f"write --option NAME=VALUE, not {wrong[0]!r}")
    with (
        spark_session(master, "replaying", bar=False) as spark,
        progress("replayed", unit="entries") as show,
    ):
        from holdfast.spark.jobs import replay as run

        report = run(
            spark,
            path,
            sink,
            {name: value for name, _, value in pairs},
            checkpoint=checkpoint,
            start=start,
            entries_per_batch=entries_per_batch,
            on_progress=show,
        )
    _tell_replay(report, sink, as_json=as_json)


def _tell_replay(report: "ReplayReport", sink: str, *, as_json: bool) -> None:
    if as_json:
        answer_json(asdict(report))
    elif report.first_index is None or report.last_index is None:
        answer("nothing new")
    else:
        span = human_span(report.first_index, report.last_index)
        what = f"{count_of(report.entries, 'entry')} ({span})"
        answer(f"{what} sent to {sink} in {count_of(report.batches, 'micro-batch')}")


def stats(path: LogPath, master: MasterOption = None, as_json: JsonOption = False) -> None:
    """Count entries and bytes over time, and by size, with a plot.

    An entry's time is that of its segment. Exits with 2 if something is lost, which is then
    not counted.
    """
    find_log(path)
    with spark_session(master, "counting") as spark:
        from holdfast.spark.jobs import stats as run

        report = run(spark, path)
    if as_json:
        answer_json(asdict(report))
    else:
        answer("\n".join(_plots(report)))
    for damage in report.damage:
        remark(f"damaged: {damage}", as_json=as_json)
    if report.damage:
        raise typer.Exit(2)


def _plots(report: "StatsReport") -> Iterator[str]:
    mean = report.payload_size // max(1, report.entries)
    yield (
        f"{count_of(report.entries, 'entry')}, {human_size(report.payload_size)} of payload; "
        f"from {report.smallest} to {report.largest} bytes, {mean} on average"
    )
    shown = report.segments[-_LINES_MAX:]
    rows = [(human_time(s.created_ms), s.entries, human_size(s.payload_size)) for s in shown]
    yield from ["", "entries by time of their segment"]
    if len(shown) < len(report.segments):
        yield f"(the last {len(shown)} of {len(report.segments)} segments; --json has all)"
    yield from _bars(rows)
    yield from ["", "entries by size of payload"]
    yield from _bars([(f"{s.least} B to {s.below - 1} B", s.entries, "") for s in report.sizes])


def _bars(rows: Sequence[tuple[str, int, str]]) -> Iterator[str]:
    """A line for each row: label, bar, count, note."""
    most = max((count for _, count, _ in rows), default=0)
    width = max((len(label) for label, _, _ in rows), default=0)
    for label, count, note in rows:
        eighths = round(8 * _BAR_WIDTH * count / max(1, most))
        bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
        yield f"{label:>{width}}  {bar:<{_BAR_WIDTH}}  {count:,}  {note}".rstrip()
