"""`holdfast bars query`, `latest` and `symbols`: read as a guest, beside a live owner too."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from holdfast.cli.bars_opening import (
    BucketNames,
    Buckets,
    EndOption,
    RootPath,
    StartOption,
    guest_of,
    parse_buckets,
    parse_end,
    parse_start,
    tell_damage,
)
from holdfast.cli.bars_output import FormatOption, OutputOption, draw, show_rows
from holdfast.cli.console import JsonOption, answer, answer_json, printable

if TYPE_CHECKING:
    from holdfast.bars import BarReader


ColumnsOption = Annotated[
    str | None, typer.Option(metavar="NAMES", help="Only these, with commas between.")
]
FirstOption = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Only the first N rows of a symbol.")
]
LastOption = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Only the last N rows of a symbol.")
]
EveryOption = Annotated[
    str | None,
    typer.Option(metavar="TIMEFRAME", help="Put bars together to longer ones: 5Min, 1H, 1D."),
]
RuleOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=HOW",
        help="For --every, of other columns than open, high, low, close, volume: first, max, "
        "min, last, sum or mean.",
    ),
]
PriceOption = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="With --every: make bars of ticks, by this price."),
]
SizeOption = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="With --price: the sum of it is the bars' Volume."),
]
ChartOption = Annotated[bool, typer.Option("--chart", help="Draw candles.")]


def query(
    root: RootPath,
    buckets: BucketNames,
    start: StartOption = None,
    end: EndOption = None,
    columns: ColumnsOption = None,
    first: FirstOption = None,
    last: LastOption = None,
    every: EveryOption = None,
    rule: RuleOption = None,
    price: PriceOption = None,
    size: SizeOption = None,
    chart: ChartOption = False,
    format: FormatOption = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print rows by symbol and time.

    A bar counts if any of its interval lies between --start and --end.  With --json, one object
    per line.  Symbols that are not there are left out.  If a log is damaged, what can be read is
    printed, and the exit code is 2.
    """
    _refuse_pairs(first, last, price, size)
    if chart and (format or output or as_json):
        raise ValueError("--chart and --format, --output or --json exclude each other")
    where, words = parse_buckets(buckets), columns.split(",") if columns else None
    limit = last if first is None else first
    span: dict[str, Any] = {"start": parse_start(start), "end": parse_end(end)}
    with guest_of(root) as guest:
        if price is not None:
            _refuse_besides_price(every, words, limit, rule)
            table = _candles(guest, where, span, str(every), price, size)
        else:
            table = guest.query(
                *where,
                **span,
                columns=words,
                limit=limit,
                take=_take(first),
                resample=every,
                rules=_rules(rule or ()),
            )
        if chart:
            draw(table)
        else:
            show_rows(table, format, output, as_json=as_json)
        tell_damage(guest, as_json=as_json)


def _refuse_pairs(first: int | None, last: int | None, price: str | None, size: str | None) -> None:
    if first is not None and last is not None:
        raise ValueError("--first and --last exclude each other")
    if size is not None and price is None:
        raise ValueError("--size comes with --price")


def _refuse_besides_price(every: str | None, *others: Any) -> None:
    if every is None or any(other is not None for other in others):
        raise ValueError(
            "--price comes with --every, and without --columns, --first, --last, --rule"
        )


def _candles(
    guest: "BarReader",
    where: Buckets,
    span: dict[str, Any],
    every: str,
    price: str,
    size: str | None,
) -> Any:
    from holdfast.bars.candles import candles
    from holdfast.formats.bar_time import parse_timeframe

    names = list(dict.fromkeys([price, size or price]))
    ticks = guest.query(*where, **span, columns=names)
    return candles(ticks, parse_timeframe(every), price, size)


def latest(
    root: RootPath,
    buckets: BucketNames,
    format: FormatOption = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the last row of each symbol."""
    with guest_of(root) as guest:
        show_rows(guest.latest(*parse_buckets(buckets)), format, output, as_json=as_json)
        tell_damage(guest, as_json=as_json)


def symbols(
    root: RootPath,
    timeframe: Annotated[
        str | None, typer.Option(metavar="TIMEFRAME", help="Only those that have such bars.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Only those that have such a group.")
    ] = None,
    buckets: Annotated[
        bool, typer.Option("--buckets", help="Whole names: SYMBOL/TIMEFRAME/GROUP.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the symbols of a store, one per line."""
    with guest_of(root) as guest:
        names = _buckets(guest, timeframe, group) if buckets else guest.symbols(timeframe, group)
        if as_json:
            answer_json(names)
        elif names:
            answer("\n".join(printable(name.encode()) for name in names))
        tell_damage(guest, as_json=as_json)


def _buckets(guest: "BarReader", timeframe: str | None, group: str | None) -> list[str]:
    found = [name.split("/") for name in guest.buckets()]
    return [
        "/".join(parts)
        for parts in found
        if timeframe in (None, parts[1]) and group in (None, parts[2])
    ]


def _take(first: int | None) -> Literal["first", "last"]:
    return "last" if first is None else "first"


def _rules(texts: Any) -> dict[str, str]:
    rules = {}
    for text in texts:
        name, equals, how = text.partition("=")
        if not equals:
            raise ValueError(f"--rule {text!r}: write COLUMN=HOW, like Vwap=mean")
        rules[name] = how
    return rules
