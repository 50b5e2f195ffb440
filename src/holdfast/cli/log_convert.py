"""`holdfast log convert`."""

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.console import JsonOption, answer, answer_json, progress
from holdfast.cli.opening import SegmentSize, find_log, writer_options
from holdfast.cli.sparking import MasterOption, need_spark, spark_session
from holdfast.cli.units import count_of, human_size, human_span

if TYPE_CHECKING:
    from holdfast.logs.conversion import Conversion
    from holdfast.spark.jobs import ConvertReport


class Kind(StrEnum):
    LOG = "log"
    PARQUET = "parquet"
    JSONL = "jsonl"


def convert(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The directory to read.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The directory to make.")],
    source_kind: Annotated[Kind, typer.Option("--from", help="What SOURCE is.")] = Kind.LOG,
    target_kind: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="KIND",
            help="What TARGET is to be: shanghai or raft-wal, a log of that format; log, one of "
            "SOURCE's own; parquet; jsonl.",
        ),
    ] = Kind.LOG,
    text: Annotated[
        bool, typer.Option("--text", help="JSON lines hold text instead of base64.")
    ] = False,
    segment_size: SegmentSize = None,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a log of another format or other segments of a log; or Parquet, JSON lines, and back.

    Entries keep their indexes. TARGET appears whole when all is done, or not at all. Damage is
    not converted: repair the log first. A log of a named format is made in this process and
    compared with SOURCE, entry by entry; killed and run again, it goes on where it was. The rest
    is done by Spark.
    """
    options = writer_options(segment_size, None)
    format = _format_of(source, source_kind, target_kind)
    if format is None:
        _with_spark(source, target, source_kind, target_kind, text, master, options, as_json)
        return
    if text or master:
        raise ValueError("--text and --master say nothing about a log of another format")
    from holdfast.logs.conversion import convert_log

    with progress(f"converting {source}", unit="entries") as show:
        done = convert_log(source, target, format, on_progress=show, **options)
    if as_json:
        answer_json(asdict(done))
    else:
        answer("\n".join(_told(done)))


def _format_of(source: str, source_kind: Kind, target_kind: str) -> str | None:
    """The format of the log that is to be made here; None if Spark makes what is wanted."""
    from holdfast.logs.open import FORMATS

    if target_kind not in (*Kind, *FORMATS):
        raise ValueError(f"--to is one of {', '.join((*FORMATS, *Kind))}, not {target_kind!r}")
    if source_kind is Kind.LOG:
        _, own = find_log(source)
        if target_kind == Kind.LOG and own.copy_segments is None:
            return own.name
    elif target_kind in FORMATS:
        raise ValueError(f"make a log of it first, with --to log, and that one a {target_kind} log")
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
    if as_json:
        answer_json(asdict(report))
    else:
        answer(_summary(report, report.first_index, report.last_index))


def _told(done: "Conversion") -> list[str]:
    first, last = done.first_index + done.shift, done.last_index + done.shift
    lines = [_summary(done, first, last)]
    if done.resumed_after:
        lines.append(f"{count_of(done.resumed_after, 'entry')} of them by an earlier run")
    if done.shift:
        was, now = done.first_index, done.first_index + done.shift
        lines.append(f"indexes are shifted: entry {was} of {done.source} is entry {now} here")
    lines.append(f"{done.verdict}: every entry was compared with {done.source}")
    return lines


def _summary(report: "Conversion | ConvertReport", first: int, last: int) -> str:
    made = f"{count_of(report.files, 'file')}, {human_size(report.size)}"
    entries = f"{count_of(report.entries, 'entry')} ({human_span(first, last)})"
    return f"{report.target}: {entries} in {made}"
