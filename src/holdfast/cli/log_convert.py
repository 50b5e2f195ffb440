"""`holdfast log convert`."""

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from holdfast.cli.console import JsonOption, answer, answer_json
from holdfast.cli.opening import SegmentSize, writer_options
from holdfast.cli.sparking import MasterOption, spark_session
from holdfast.cli.units import count_of, human_size, human_span


class Kind(StrEnum):
    LOG = "log"
    PARQUET = "parquet"
    JSONL = "jsonl"


def convert(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The directory to read.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The directory to make.")],
    source_kind: Annotated[Kind, typer.Option("--from", help="What SOURCE is.")] = Kind.LOG,
    target_kind: Annotated[Kind, typer.Option("--to", help="What TARGET is to be.")] = Kind.LOG,
    text: Annotated[
        bool, typer.Option("--text", help="JSON lines hold text instead of base64.")
    ] = False,
    segment_size: SegmentSize = None,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a log of other segments, Parquet or JSON lines of a log; or a log of those.

    Entries keep their indexes. TARGET appears whole when all is done, or not at all. Damage is
    not converted: repair the log first.
    """
    with spark_session(master, "converting") as spark:
        from holdfast.spark.jobs import convert as run

        report = run(
            spark,
            source,
            target,
            source_kind=source_kind.value,
            target_kind=target_kind.value,
            text=text,
            **writer_options(segment_size, None),
        )
    if as_json:
        answer_json(asdict(report))
        return
    span = human_span(report.first_index, report.last_index)
    made = f"{count_of(report.files, 'file')}, {human_size(report.size)}"
    answer(f"{report.target}: {count_of(report.entries, 'entry')} ({span}) in {made}")
