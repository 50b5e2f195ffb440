"""`holdfast log scrub`, `replay` and `stats`: jobs of Spark."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.errors import exit_code
from holdfast.cli.log.inspect import verdict_table
from holdfast.cli.opening import find_log, tell_damage
from holdfast.cli.options import JsonOption, LogPath, LogPaths, MasterOption, parse_pairs
from holdfast.cli.output import answer, count_of, human_size, human_span, human_time, progress
from holdfast.cli.sparking import spark_session

if TYPE_CHECKING:
    from holdfast.spark.jobs import ReplayReport, StatsReport

_BAR_WIDTH = 40
_LINES_MAX = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"


def scrub(paths: LogPaths, master: MasterOption = None, as_json: JsonOption = False) -> None:
    """Verify every checksum of one or many logs with Spark, on all cores or a cluster.

    Prints the same as `verify` and has the same exit codes. It may run beside live owners.
    """
    for path in paths:
        find_log(path)
    with spark_session(master, "scrubbing") as spark:
        from holdfast.spark.jobs import scrub as run

        report = run(spark, paths)
    answer(map(verdict_table, report.logs), report, as_json=as_json)
    raise typer.Exit(exit_code(log.verdict for log in report.logs))


def replay(
    path: LogPath,
    sink: Annotated[
        str,
        typer.Option("--to", metavar="FORMAT", help="The sink: parquet, json, console or another."),
    ],
    checkpoint: Annotated[
        str, typer.Option(metavar="DIRECTORY", help="Stores the progress of the replay.")
    ],
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--option", metavar="NAME=VALUE", help="An option of the sink, such as path=/out."
        ),
    ] = None,
    start: Annotated[
        str, typer.Option(metavar="INDEX", help="The first entry of a new checkpoint.")
    ] = "earliest",
    entries_per_batch: Annotated[
        int | None, typer.Option(min=1, help="Entries per micro-batch at most. Default: no limit.")
    ] = None,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send the entries of a log to a sink of Spark.

    Ends at the end of the log. The same command with the same checkpoint continues from there,
    also after a crash.
    """
    find_log(path)
    of_sink = parse_pairs(options)
    with (
        spark_session(master, "replaying", bar=False) as spark,
        progress("replayed", unit="entries") as show,
    ):
        from holdfast.spark.jobs import replay as run

        report = run(
            spark,
            path,
            sink,
            of_sink,
            checkpoint=checkpoint,
            start=start,
            entries_per_batch=entries_per_batch,
            on_progress=show,
        )
    answer(_replayed(report, sink), report, as_json=as_json)


def _replayed(report: "ReplayReport", sink: str) -> str:
    if report.first_index is None or report.last_index is None:
        return "nothing new"
    span = human_span(report.first_index, report.last_index)
    what = f"{count_of(report.entries, 'entry')} ({span})"
    return f"{what} sent to {sink} in {count_of(report.batches, 'micro-batch')}"


def stats(path: LogPath, master: MasterOption = None, as_json: JsonOption = False) -> None:
    """Count entries and bytes by time and by size, with a plot.

    The time of an entry is that of its segment. Exits with 2 if the log is damaged; damaged
    entries are not counted.
    """
    find_log(path)
    with spark_session(master, "counting") as spark:
        from holdfast.spark.jobs import stats as run

        report = run(spark, path)
    answer(_plots(report), report, as_json=as_json)
    tell_damage(report.damage, as_json=as_json)


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
    """Draw a line for each row: label, bar, count, note."""
    most = max((count for _, count, _ in rows), default=0)
    width = max((len(label) for label, _, _ in rows), default=0)
    for label, count, note in rows:
        eighths = round(8 * _BAR_WIDTH * count / max(1, most))
        bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
        yield f"{label:>{width}}  {bar:<{_BAR_WIDTH}}  {count:,}  {note}".rstrip()
