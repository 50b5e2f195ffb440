"""Pipelines for the tests here, and what their sinks hold."""

import json
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from holdfast.disk import OsDisk
from holdfast.doors import read_log
from holdfast.logs.shanghai import ShanghaiLog
from holdfast.spark.pipelines.status import committed_files

SCHEMA = "symbol STRING NOT NULL, at TIMESTAMP, price DOUBLE, size BIGINT"

FOUR_SINKS = f'''
name = "ticks"
checkpoint = "state"

[source.ticks]
format = "holdfast-log"
path = "ticks-log"
options = {{ maxEntriesPerTrigger = 50 }}
parse = "json"
schema = "{SCHEMA}"

[step.lines]
sql = "SELECT concat_ws(' ', _index, symbol, size) AS payload FROM ticks"

[step.last]
sql = "SELECT concat(symbol, '/', _index) AS key, cast(price AS STRING) AS value FROM ticks"

[sink.lines]
from = "lines"
format = "holdfast-log"
path = "lines"

[sink.prices]
from = "last"
format = "holdfast-kv"
path = "prices"

[step.minutes]
sql = """
SELECT symbol, window(at, '1 minute').start AS time, min_by(price, _index) AS Open,
       max(price) AS High, min(price) AS Low, max_by(price, _index) AS Close, sum(size) AS Volume
FROM ticks GROUP BY symbol, window(at, '1 minute')
"""

[sink.bars]
from = "minutes"
format = "holdfast-bars"
path = "bars"
mode = "update"
options = {{ timeframe = "1Min", attributes = "OHLCV" }}

[sink.archive]
from = "ticks"
format = "parquet"
path = "archive"
'''


def tick(index: int) -> bytes:
    """Every seventeenth is bad."""
    if index % 17 == 0:
        return b"bad %d" % index
    symbol, minute = "AB"[index % 2], index // 60 % 60
    at = f"2026-01-05T14:{minute:02}:{index % 60:02}Z"
    row = {"symbol": symbol, "at": at, "price": price(index), "size": index}
    return json.dumps(row).encode()


def is_bad(index: int) -> bool:
    return index % 17 == 0


def write_ticks(path: Path, first: int, last: int) -> None:
    with closing(ShanghaiLog(OsDisk(str(path)))) as log:
        log.append([tick(index) for index in range(first, last + 1)])


def entries(path: Path) -> list[bytes]:
    with read_log(path) as log:
        return [value for batch in log.scan() for value in batch["payload"].to_pylist()]


def parquet_rows(path: Path) -> list[dict[str, Any]]:
    """Of the files that Spark has committed."""
    return [row for file in committed_files(path) for row in pq.read_table(file).to_pylist()]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def price(index: int) -> float:
    return 100 + index / 4


def expected_bars(good: list[int]) -> list[tuple[Any, ...]]:
    """symbol, time, open, high, low, close and volume of what `minutes` makes of good ticks."""
    groups: dict[tuple[str, datetime], list[int]] = {}
    for index in good:
        time = datetime(2026, 1, 5, 14, index // 60 % 60, tzinfo=UTC)
        groups.setdefault(("AB"[index % 2], time), []).append(index)
    return sorted(
        (*key, price(first), price(last), price(first), price(last), sum(found))
        for key, found in groups.items()
        for first, last in [(found[0], found[-1])]  # prices rise
    )
