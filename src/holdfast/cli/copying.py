"""`holdfast copy`: rows of any store into any other, by Spark.  The page: docs/jobs.md"""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.console import JsonOption, answer, answer_json
from holdfast.cli.sparking import MasterOption, need_spark, spark_session
from holdfast.cli.units import count_of

if TYPE_CHECKING:
    from holdfast.spark.jobs import Place

_PLACE = "KIND:PATH, where KIND is log, kv, bars, parquet, csv or json."


def copy(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=f"From where: {_PLACE}")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help=f"Where to: {_PLACE}")],
    sql: Annotated[
        str | None,
        typer.Option(
            metavar="SELECT", help="What becomes what: SELECT ... FROM source. See docs/jobs.md."
        ),
    ] = None,
    read: Annotated[
        list[str] | None,
        typer.Option("--read", metavar="NAME=VALUE", help="For the source, as Spark's reader has."),
    ] = None,
    write: Annotated[
        list[str] | None,
        typer.Option("--write", metavar="NAME=VALUE", help="For the target: timeframe=1Min, ..."),
    ] = None,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the rows of a store, or of files, into another store or files.

    A store takes all rows as one commit, or none. Between kinds with other columns, --sql says what
    becomes what; for some pairs there is a default.
    """
    need_spark()
    from holdfast.spark.jobs.copying import check_places

    places = _place(source, read, "--read"), _place(target, write, "--write")
    check_places(*places)
    with spark_session(master, "copying") as spark:
        from holdfast.spark.jobs import copy as run

        report = run(spark, *places, sql=sql)
    if as_json:
        answer_json(asdict(report))
    else:
        answer(f"{report.target}: {count_of(report.rows, 'row')} from {report.source}")


def _place(words: str, options: list[str] | None, option: str) -> "Place":
    from holdfast.spark.jobs import Place

    kind, found, path = words.partition(":")
    if not found or not path:
        raise ValueError(f"{words!r} is no place: write {_PLACE}")
    pairs: list[Any] = [option.partition("=") for option in options or ()]
    for name, equals, _ in pairs:
        if not equals:
            raise ValueError(f"{name!r} is no option: write NAME=VALUE")
    values = {name: value for name, _, value in pairs}
    if kind == "bars" and not {"timeframe", "attributes"} <= set(map(str.lower, values)):
        example = f"{option} timeframe=1Min {option} attributes=OHLCV"
        raise ValueError(f"{words} is many buckets: say which, such as {example}")
    return Place(kind, path, values)  # type: ignore[arg-type]
