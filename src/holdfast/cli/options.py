"""Arguments and options that several verbs share, and how sizes and durations are parsed."""

import re
from collections.abc import Iterable
from typing import Annotated
from uuid import UUID

import typer

_SIZES = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
DURATIONS_MS = {
    **{"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
}
_NUMBER_AND_UNIT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def parse_size(text: str) -> int:
    """Return the bytes in `64MB`, `1.5GiB`, `4096`.  A KB is 1024 bytes, with or without the i."""
    number, unit = _split(text)
    unit = unit if unit == "b" else re.sub("i?b$", "", unit)
    if number is None or unit not in _SIZES:
        raise typer.BadParameter(f"{text!r} is not a size: write 4096, 512KB, 64MB or 10GB")
    return int(number * _SIZES[unit])


def parse_duration_ms(text: str) -> int:
    """Return the milliseconds in `200ms`, `30s`, `5m`, `12h`, `7d`, `2w`."""
    number, unit = _split(text)
    if number is None or unit not in DURATIONS_MS:
        raise typer.BadParameter(f"{text!r} is not a duration: write 200ms, 30s, 5m, 12h or 7d")
    return int(number * DURATIONS_MS[unit])


def parse_pairs(texts: Iterable[str] | None) -> dict[str, str]:
    """Parse NAME=VALUE, as often as it is given."""
    pairs = [text.partition("=") for text in texts or ()]
    for name, equals, _ in pairs:
        if not equals:
            raise ValueError(f"cannot parse {name!r}; expected NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _split(text: str) -> tuple[float | None, str]:
    match = _NUMBER_AND_UNIT.fullmatch(text.strip())
    return (float(match[1]), match[2].lower()) if match else (None, "")


# Every noun

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ApplyOption = Annotated[
    bool, typer.Option("--apply", help="Carry out the plan. Default: print it, change nothing.")
]
PrometheusOption = Annotated[
    bool, typer.Option("--prometheus", help="Print metrics in the text format of Prometheus.")
]
SparkOption = Annotated[bool, typer.Option("--spark", help="Use the workers of Spark.")]
MasterOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The Spark master: local[*,4] (default: all cores of this machine) or "
        "spark://HOST:PORT, whose workers must see the same directories.",
    ),
]
HexOption = Annotated[
    bool, typer.Option("--hex", help="Read and print keys, values and payloads in hexadecimal.")
]
Base64Option = Annotated[
    bool, typer.Option("--base64", help="Read and print keys, values and payloads in base64.")
]
LimitOption = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Print at most N rows. Default: all."),
]
IntervalOption = Annotated[
    int,
    typer.Option(
        parser=parse_duration_ms, metavar="DURATION", help="With --follow: time between two reads."
    ),
]
FollowOption = Annotated[
    bool, typer.Option("-f", "--follow", help="Continue as the log grows, until Ctrl-C.")
]

FileFormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="csv, jsonl, parquet or arrow. Default: what the suffix of FILE names.",
    ),
]

# Logs

LogPath = Annotated[str, typer.Argument(metavar="PATH", help="The directory of the log.")]
FormatOption = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT",
        help="The format of the log: raft-wal (the default), shanghai or file-log.",
    ),
]
LogPaths = Annotated[list[str], typer.Argument(metavar="PATH", help="Directories of logs.")]
SegmentSize = Annotated[
    int | None,
    typer.Option(
        parser=parse_size,
        metavar="SIZE",
        help="Seal a segment at this size: 512KB, 64MB (the default), 1GB. "
        "The log does not store it: pass it to each command that writes.",
    ),
]
SegmentAge = Annotated[
    int | None,
    typer.Option(
        parser=parse_duration_ms,
        metavar="DURATION",
        help="Seal a segment at this age: 30m, 12h, 7d. Default: never. "
        "The log does not store it either.",
    ),
]

# Key-value stores

StoreUrl = Annotated[
    str,
    typer.Argument(metavar="URL", help="The store: a path, s3://BUCKET/PREFIX, gs:// or az://."),
]
TakeOverOption = Annotated[
    bool,
    typer.Option(
        "--take-over", help="Fence a writer that has the store open; its next write fails."
    ),
]
CasOption = Annotated[
    str | None,
    typer.Option(
        "--cas",
        metavar="RECORDS",
        envvar="HOLDFAST_CAS",
        help="For a bucket without create-if-absent: where the records of two-phase writes are, "
        "the same for all writers. sqlite:FILE, postgresql://, mysql:// or dynamodb://; "
        "or `native`, which skips the test of the bucket. Default: the bucket is tested.",
    ),
]
CreateOption = Annotated[bool, typer.Option("--create", help="Create the store if it is missing.")]
AtOption = Annotated[
    int | None,
    typer.Option("--at", min=1, metavar="ID", help="The manifest to read. Default: the newest."),
]
SnapshotOption = Annotated[
    UUID | None,
    typer.Option("--snapshot", metavar="ID", help="The snapshot to read. Default: none."),
]
PinOption = Annotated[
    bool,
    typer.Option(
        "--pin",
        help="Hold a snapshot while this runs, which writes two manifests; for reads that take "
        "longer than the garbage collector waits.",
    ),
]

# Bar stores

RootPath = Annotated[str, typer.Argument(metavar="ROOT", help="The directory of the store.")]
BucketName = Annotated[
    str, typer.Argument(metavar="BUCKET", help="SYMBOL/TIMEFRAME/GROUP, like AAPL/1Min/OHLCV.")
]
BucketNames = Annotated[
    str,
    typer.Argument(
        metavar="BUCKETS",
        help="SYMBOLS/TIMEFRAME/GROUP, like AAPL,MSFT/1Min/OHLCV; '*' for all symbols.",
    ),
]
StartOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Only rows from this time on, like 2026-11-16T09:30; UTC if no zone."
    ),
]
StopOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Only rows before this time, like 2026-11-17, which is its midnight."
    ),
]
DayOption = Annotated[
    str | None,
    typer.Option(metavar="DATE", help="Only rows of this day in UTC, like 2026-11-16."),
]
ColumnsOption = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="Only these columns, separated by commas. Default: all."),
]
TimeUnit = Annotated[
    str, typer.Option(metavar="UNIT", help="The unit of times that are numbers: s, ms, us or ns.")
]
TicksOption = Annotated[
    bool, typer.Option("--ticks", help="Many rows per interval, each with a time of its own.")
]
