"""`holdfast copy`: copy the rows of any store to any other, with Spark.  The page: docs/jobs.md"""

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import JsonOption, MasterOption, parse_pairs
from holdfast.cli.output import answer, count_of
from holdfast.cli.sparking import need_spark, spark_session

if TYPE_CHECKING:
    from holdfast.spark.jobs import Place

_PLACE = "KIND:PATH, where KIND is log, kv, bars, parquet, csv or json."


def copy(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=f"The source: {_PLACE}")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help=f"The target: {_PLACE}")],
    sql: Annotated[
        str | None,
        typer.Option(
            metavar="SELECT",
            help="SELECT ... FROM source, which maps the columns. Default: see docs/jobs.md.",
        ),
    ] = None,
    read: Annotated[
        list[str] | None,
        typer.Option("--read", metavar="NAME=VALUE", help="An option of the source."),
    ] = None,
    write: Annotated[
        list[str] | None,
        typer.Option(
            "--write", metavar="NAME=VALUE", help="An option of the target, like timeframe=1Min."
        ),
    ] = None,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the rows of a store, or of files, into another store or files.

    A store takes all rows in one atomic commit. --sql maps the columns between kinds; some pairs
    have a default.
    """
    need_spark()
    from holdfast.spark.jobs.copying import check_places

    places = _place(source, read, "--read"), _place(target, write, "--write")
    check_places(*places)
    with spark_session(master, "copying") as spark:
        from holdfast.spark.jobs import copy as run

        report = run(spark, *places, sql=sql)
    text = f"{report.target}: {count_of(report.rows, 'row')} from {report.source}"
    answer(text, report, as_json=as_json)


def _place(words: str, options: list[str] | None, option: str) -> "Place":
    from holdfast.spark.jobs import Place

    kind, found, path = words.partition(":")
    if not found or not path:
        raise ValueError(f"cannot parse {words!r}; expected {_PLACE}")
    values = parse_pairs(options)
    if kind == "bars" and not {"timeframe", "attributes"} <= set(map(str.lower, values)):
        example = f"{option} timeframe=1Min {option} attributes=OHLCV"
        raise ValueError(f"{words} has many buckets; name one, such as {example}")
    return Place(kind, path, values)  # type: ignore[arg-type]
