"""`holdfast pipeline`: sources, steps and sinks from one file, run by Spark."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.options import JsonOption, MasterOption, parse_duration_ms
from holdfast.cli.output import answer, count_of, human_time, remark, table
from holdfast.cli.pipeline_progress import shown
from holdfast.cli.sparking import spark_session

if TYPE_CHECKING:
    from holdfast.spark.pipelines import Declared, InvalidError, RunReport, Status, Trigger

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Run pipelines that a file declares: sources, SQL or functions, sinks.",
)

FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="The pipeline: TOML, or a Python module.")
]


@app.command()
def run(
    file: FileArgument,
    once: Annotated[bool, typer.Option("--once", help="Run one micro-batch, then stop.")] = False,
    available_now: Annotated[
        bool,
        typer.Option(
            "--available-now", help="Process all rows that exist now, then stop (default)."
        ),
    ] = False,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Run until Ctrl-C or SIGTERM.")
    ] = False,
    every: Annotated[
        str,
        typer.Option(metavar="DURATION", help="With --continuous: the time between two batches."),
    ] = "5s",
    accept_changes: Annotated[
        bool,
        typer.Option(
            "--accept-changes",
            help="Continue although the file differs from that of the checkpoint.",
        ),
    ] = False,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a pipeline: every row exactly once in every sink.

    The same command continues where the previous run ended or was killed. --json prints a line
    for every batch, and one at the end.
    """
    from holdfast.spark.pipelines import InvalidError, Trigger, read

    if once + available_now + continuous > 1:
        raise typer.BadParameter("choose one of --once, --available-now and --continuous")
    trigger: Trigger | None = None
    if once or available_now:
        trigger = Trigger("once" if once else "available-now")
    elif continuous:
        trigger = Trigger("continuous", parse_duration_ms(every))
    try:
        report = _run(read(file), trigger, accept_changes, master, as_json)
    except InvalidError as error:
        _tell_problems(error, as_json=as_json)
        raise typer.Exit(1) from None
    answer(_summary(report), report, as_json=as_json)


def _run(
    declared: "Declared",
    trigger: "Trigger | None",
    accept_changes: bool,
    master: str | None,
    as_json: bool,
) -> "RunReport":
    with spark_session(master, f"running {declared.name}", bar=False) as spark:
        from holdfast.spark.pipelines import run as run_pipeline

        sinks = [sink.name for sink in declared.sinks]
        with shown(sinks, as_json=as_json) as on_batch, _ended_by_sigterm():
            return run_pipeline(
                spark,
                declared,
                trigger=trigger,
                accept_changes=accept_changes,
                on_batch=on_batch,
            )


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C.  The next run repeats the interrupted batch."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _summary(report: "RunReport") -> str:
    letters = ""
    if report.dead_letters:
        bad = count_of(report.dead_letters, "bad row")
        log, here = Path(report.dead_letter_log), Path.cwd()
        log = log.relative_to(here) if log.is_relative_to(here) else log
        letters = f"\n{bad} kept in {log}; `holdfast log tail` shows them"
    if not report.batches:
        return f"{report.pipeline}: nothing new"
    rows = [(name, report.rows[name], count) for name, count in report.batches.items()]
    return table(("sink", "rows read", "batches"), rows) + letters


@app.command()
def validate(file: FileArgument, master: MasterOption = None, as_json: JsonOption = False) -> None:
    """List the problems of a pipeline, without running it.

    Keys, paths, formats and options; then Spark analyses the schemas, the SQL and the output
    modes, without reading a row. Exits with 1 if anything is wrong.
    """
    with spark_session(master, "validating", bar=False) as spark:
        from holdfast.spark.pipelines import InvalidError
        from holdfast.spark.pipelines import validate as find_problems

        problems = find_problems(spark, file)
    if problems:
        _tell_problems(InvalidError(problems), as_json=as_json)
        raise typer.Exit(1)
    answer(f"{file} is valid", {"problems": []}, as_json=as_json)


def _tell_problems(error: "InvalidError", *, as_json: bool) -> None:
    document = {"problems": [asdict(problem) for problem in error.problems]}
    answer(map(str, error.problems), document, as_json=as_json)
    if not as_json:
        remark(f"{count_of(len(error.problems), 'problem')} in the pipeline; nothing was run")


@app.command()
def status(file: FileArgument, as_json: JsonOption = False) -> None:
    """Show the progress of a pipeline, without Spark.

    For each sink: the last committed batch, its time and its rows; the rows that the sink holds,
    where they are known without reading; and its distance to the end of its sources.
    """
    from holdfast.spark.pipelines import InvalidError, read
    from holdfast.spark.pipelines import status as find_status

    try:
        found = find_status(read(file))
    except InvalidError as error:
        _tell_problems(error, as_json=as_json)
        raise typer.Exit(1) from None
    answer(_status_text(found), found, as_json=as_json)


def _status_text(found: "Status") -> str:
    state = f"running as process {found.running}" if found.running else "not running"
    rows = [
        (
            sink.name,
            "none" if sink.batch is None else sink.batch,
            "never" if sink.committed_ms is None else human_time(sink.committed_ms),
            *("?" if count is None else count for count in (sink.rows_read, sink.rows)),
            ", ".join(
                f"{lag.source} {'?' if lag.behind is None else count_of(lag.behind, lag.unit)}"
                for lag in sink.lags
            ),
        )
        for sink in found.sinks
    ]
    head = f"{found.pipeline}: {state}; {count_of(found.dead_letters, 'dead letter')}"
    titles = ("sink", "batch", "committed", "rows read", "rows held", "behind")
    return f"{head}\n\n" + table(titles, rows)


@app.command()
def init(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The file to create.")
    ] = "pipeline.toml",
    as_json: JsonOption = False,
) -> None:
    """Create an example pipeline that runs without changes.

    It also creates an inbox with rows, unless there is one.
    """
    from holdfast.spark.pipelines import write_template

    made = write_template(file)
    text = f"{' and '.join(made)} written; next: holdfast pipeline run {file}"
    answer(text, {"made": made}, as_json=as_json)
