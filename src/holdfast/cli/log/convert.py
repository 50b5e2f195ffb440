"""`holdfast log convert`."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.opening import find_log, given
from holdfast.cli.options import JsonOption, MasterOption, SegmentSize
from holdfast.cli.output import answer, count_of, human_size, human_span, progress
from holdfast.cli.sparking import need_spark, spark_session

if TYPE_CHECKING:
    from holdfast.logs.conversion import Conversion
    from holdfast.spark.jobs import ConvertReport


class Kind(StrEnum):
    LOG = "log"
    PARQUET = "parquet"
    JSONL = "jsonl"


CodecOption = Annotated[
    int | None,
    typer.Option(
        help="What the payloads of a raft-wal TARGET are: 1 for Raft entries. Default: what "
        "the log was before it was converted to SOURCE, else plain payloads."
    ),
]


def convert(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The directory to read.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The directory to create.")],
    source_kind: Annotated[Kind, typer.Option("--from", help="The kind of SOURCE.")] = Kind.LOG,
    target_kind: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="KIND",
            help="The kind of TARGET: raft-wal, shanghai or file-log, a log of that format; log, "
            "the format of SOURCE; parquet; jsonl.",
        ),
    ] = Kind.LOG,
    text: Annotated[
        bool, typer.Option("--text", help="Payloads in JSON lines are text. Default: base64.")
    ] = False,
    segment_size: SegmentSize = None,
    codec: CodecOption = None,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Convert a log to another format, to other segment sizes, to Parquet or JSON lines, or back.

    Entries keep their indexes. TARGET appears when it is complete. A damaged log is refused:
    repair it first. A log of a named format is written by this process and compared with SOURCE,
    entry by entry; after a crash, the same command continues. Spark does the rest.
    """
    options = given(segment_size_max=segment_size)
    format = _format_of(source, source_kind, target_kind)
    if codec is not None:
        if format != "raft-wal":
            raise ValueError("--codec is for a raft-wal TARGET: add --to raft-wal")
        options["codec"] = codec
    if format is None:
        _with_spark(source, target, source_kind, target_kind, text, master, options, as_json)
        return
    if text or master:
        raise ValueError("--text and --master do not apply to a log of another format")
    from holdfast.doors import convert_log

    with progress(f"converting {source}", unit="entries") as show:
        done = convert_log(source, target, format, on_progress=show, **options)
    answer(_lines(done), done, as_json=as_json)


def _format_of(source: str, source_kind: Kind, target_kind: str) -> str | None:
    """Return the format of a log that this process writes; None if Spark writes TARGET."""
    from holdfast.doors.logs import FORMATS
    from holdfast.logs.format import CopiesSegments

    if target_kind not in (*Kind, *FORMATS):
        raise ValueError(f"--to must be one of {', '.join((*FORMATS, *Kind))}, not {target_kind!r}")
    if source_kind is Kind.LOG:
        own = find_log(source)
        if target_kind == Kind.LOG and not isinstance(own, CopiesSegments):
            return own.name
    elif target_kind in FORMATS:
        raise ValueError(
            f"convert it with --to log first, and then that log with --to {target_kind}"
        )
    return target_kind if target_kind in FORMATS else None


def _with_spark(
    source: str,
    target: str,
    source_kind: Kind,
    target_kind: str,
    text: bool,
    master: str | None,
    options: dict[str, Any],
    as_json: bool,
) -> None:
    need_spark()
    from holdfast.spark.jobs.making import refuse_taken

    refuse_taken(target, "convert")  # before Spark is started for nothing
    with spark_session(master, "converting") as spark:
        from holdfast.spark.jobs import convert as run

        report = run(
            spark,
            source,
            target,
            source_kind=source_kind.value,
            target_kind=Kind(target_kind).value,
            text=text,
            **options,
        )
    summary = _summary(report, report.first_index, report.last_index)
    answer(summary, report, as_json=as_json)


def _lines(done: "Conversion") -> list[str]:
    first, last = done.first_index + done.shift, done.last_index + done.shift
    lines = [_summary(done, first, last)]
    if done.resumed_after:
        lines.append(f"{count_of(done.resumed_after, 'entry')} of them by a previous run")
    if done.shift:
        was, now = done.first_index, done.first_index + done.shift
        lines.append(f"indexes are shifted: entry {was} of {done.source} is entry {now} here")
    lines.append(f"{done.verdict}: every entry was compared with {done.source}")
    return lines


def _summary(report: "Conversion | ConvertReport", first: int, last: int) -> str:
    made = f"{count_of(report.files, 'file')}, {human_size(report.size)}"
    entries = f"{count_of(report.entries, 'entry')} ({human_span(first, last)})"
    return f"{report.target}: {entries} in {made}"
