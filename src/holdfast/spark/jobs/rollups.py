"""`rollup`: aggregate ticks or bars of all symbols to longer bars, in a bar store.

    ticks, or 1Min        →  1Min, 5Min, 1H, 1D

From a store, each task aggregates the year files that it reads, without a shuffle: no bar of a day
or less spans two years.  From a DataFrame, Spark brings the rows of each symbol together and sorts
them.  In both cases numpy aggregates the rows, tasks stage the bars, and the driver commits all
timeframes at once.  A new bar replaces the old one, so a rollup can be repeated.  Whole days are
read, so that no bar is computed from a part of its rows.
"""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from holdfast.bars import staging
from holdfast.bars.intake import take_in
from holdfast.bars.pinned import Pin, read_pinned
from holdfast.bars.query import Rows
from holdfast.bars.tables import resampled
from holdfast.disk import OsDisk
from holdfast.formats.bar_time import DAY_NS, parse_timeframe
from holdfast.spark.bar_columns import EPOCH_NS, SYMBOL, TIME
from holdfast.spark.bar_options import BarOptions
from holdfast.spark.bar_reader import pin_bars, share_out, stamps_of
from holdfast.spark.bar_sink import commit_staged
from holdfast.spark.jobs.tasks import run_tasks
from holdfast.spark.workers import freeze_imports

# From the name of a new column to its source column, and first, max, min, last or sum.
Recipe: TypeAlias = Mapping[str, tuple[str, str]]
_RULES = {"Open": "first", "High": "max", "Low": "min", "Close": "last", "Volume": "sum"}
_TASK_ROWS = 1 << 16  # in a staged batch


@dataclass(frozen=True, slots=True)
class RollupReport:
    path: str
    rows_read: int
    rows_written: dict[str, int]  # by timeframe
    committed: bool  # false: this version of the transaction was committed before


@dataclass(frozen=True, slots=True)
class _Goal:
    """What to compute, and where to write it."""

    path: str
    timeframes: tuple[str, ...]
    attributes: str
    recipe: tuple[tuple[str, str, str], ...]
    job: str

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column for _, column, _ in self.recipe))


@dataclass(frozen=True, slots=True)
class _Made:
    rows_read: int
    staged: tuple[staging.Staged, ...]


def rollup(
    spark: SparkSession,
    source: str,
    timeframe: str,
    attributes: str,
    timeframes: Sequence[str],
    *,
    target: str | None = None,
    target_attributes: str = "OHLCV",
    recipe: Recipe | None = None,
    transaction: staging.Transaction | None = None,
    **options: Any,
) -> RollupReport:
    """Aggregate the bars of a store to these timeframes; write them to `target`, or to the same
    store.

    recipe   by default Open, High, Low, Close and Volume from columns of the same names, or from
             Price and Size
    options  symbols, years, startingTime and endingTime, as of a read
    """
    chosen = _whole_days(BarOptions.of_bucket(source, timeframe, attributes, options))
    pin = pin_bars(chosen)
    own_ns = 1 if pin.is_variable else parse_timeframe(timeframe)
    goal = _goal(
        target or source, timeframes, target_attributes, recipe, pin.schema.names, transaction
    )
    _refuse(timeframes, own_ns)
    parts = [
        (goal, chosen.path, number, part)
        for number, part in enumerate(share_out(pin, chosen.max_partition_bytes))
    ]
    return _committed(goal, run_tasks(spark, parts, _roll_files), transaction)


def rollup_frame(
    frame: DataFrame,
    target: str,
    timeframes: Sequence[str],
    *,
    target_attributes: str = "OHLCV",
    recipe: Recipe | None = None,
    transaction: staging.Transaction | None = None,
) -> RollupReport:
    """Aggregate a frame with the columns `symbol`, and `epoch_ns` or `time`, to bars.

    Rows with equal times, which have no order in Spark, are sorted by value.
    """
    moment = F.col(EPOCH_NS) if EPOCH_NS in frame.columns else F.unix_micros(TIME) * 1000
    names = [name for name in frame.columns if name not in (SYMBOL, EPOCH_NS, TIME)]
    goal = _goal(target, timeframes, target_attributes, recipe, names, transaction)
    _refuse(timeframes, 1)
    rows = frame.select(SYMBOL, moment.alias(TIME), *goal.sources)
    rows = rows.repartition(SYMBOL).sortWithinPartitions(SYMBOL, TIME, *goal.sources)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        table = pa.Table.from_batches(batches)
        task = TaskContext.get()
        assert task is not None
        made = _roll(goal, task.partitionId(), _by_symbol(table)) if len(table) else _Made(0, ())
        yield pa.record_batch({"made": [pickle.dumps(made)]})

    found = rows.mapInArrow(work, "made BINARY").collect()
    return _committed(goal, [pickle.loads(row["made"]) for row in found], transaction)


def _goal(
    path: str,
    timeframes: Sequence[str],
    attributes: str,
    recipe: Recipe | None,
    names: Sequence[str],
    transaction: staging.Transaction | None,
) -> _Goal:
    recipe = recipe or _usual(names)
    missing = [column for column, _ in recipe.values() if column not in names]
    if missing:
        raise ValueError(f"the recipe needs a column {missing[0]!r}; there are {', '.join(names)}")
    steps = tuple((name, column, rule) for name, (column, rule) in recipe.items())
    job = staging.new_job(transaction)
    return _Goal(OsDisk(path).path, tuple(timeframes), attributes, steps, job)


def _usual(names: Sequence[str]) -> Recipe:
    own = {name: (name, rule) for name, rule in _RULES.items() if name in names}
    if own:
        return own
    if "Price" not in names:
        raise ValueError(f"pass a `recipe` for the columns {', '.join(names)}")
    found = {name: ("Price", rule) for name, rule in _RULES.items() if name != "Volume"}
    return found | ({"Volume": ("Size", "sum")} if "Size" in names else {})


def _refuse(timeframes: Sequence[str], own_ns: int) -> None:
    if not timeframes:
        raise ValueError("pass the timeframes to compute, such as 5Min, 1H and 1D")
    for timeframe in timeframes:
        step_ns = parse_timeframe(timeframe)
        if DAY_NS % step_ns or step_ns % own_ns or step_ns == own_ns:
            raise ValueError(
                f"cannot compute {timeframe}: it must divide a day, and be a longer multiple "
                "of the timeframe that is read"
            )


def _whole_days(options: BarOptions) -> BarOptions:
    start, stop = options.starting_time, options.ending_time
    return replace(
        options,
        starting_time=None if start is None else start // DAY_NS * DAY_NS,
        ending_time=None if stop is None else -(-stop // DAY_NS) * DAY_NS,
    )


def _roll_files(work: tuple[_Goal, str, int, Pin]) -> _Made:
    """Roll up some year files of the store, in a worker."""
    goal, path, number, pin = work
    disk, stamps = OsDisk(path), stamps_of(path)
    years = (
        (file.key.split("/")[0], read_pinned(disk, pin, file, goal.sources, stamps))
        for file in pin.files
    )
    return _roll(goal, number, years)


def _by_symbol(table: pa.Table) -> Iterator[tuple[str, Rows]]:
    """Yield the rows of each symbol of a sorted table."""
    rows = take_in(table, None)
    codes, columns = rows.codes, list(rows.columns.values())
    starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
    for start, stop in zip(starts, [*starts[1:], len(codes)], strict=True):
        cut = slice(int(start), int(stop))
        yield rows.symbols[codes[start]], Rows(rows.times_ns[cut], [one[cut] for one in columns])


def _roll(goal: _Goal, number: int, parts: Iterable[tuple[str, Rows]]) -> _Made:
    names = tuple(name for name, _, _ in goal.recipe)
    rules = {name: rule for name, _, rule in goal.recipe}
    made: dict[str, list[tuple[str, Rows]]] = {timeframe: [] for timeframe in goal.timeframes}
    count = 0
    for symbol, rows in parts:
        count += len(rows.times_ns)
        given = dict(zip(goal.sources, rows.columns, strict=True))
        wide = {symbol: Rows(rows.times_ns, [given[column] for _, column, _ in goal.recipe])}
        for timeframe, found in made.items():
            step_ns = parse_timeframe(timeframe)
            found += resampled(wide, names, 1, step_ns, rules, None, "last").items()
    disk = OsDisk(goal.path)
    staged = [
        staging.stage(disk, goal.job, number, _batches(found, names), timeframe, goal.attributes)
        for timeframe, found in made.items()
    ]
    return _Made(count, tuple(staged))


def _batches(found: Sequence[tuple[str, Rows]], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield batches; small symbols share one."""
    gathered: list[tuple[str, Rows]] = []
    for one in found:
        gathered.append(one)
        if sum(len(rows.times_ns) for _, rows in gathered) >= _TASK_ROWS:
            yield _batch(gathered, names)
            gathered = []
    if any(len(rows.times_ns) for _, rows in gathered):
        yield _batch(gathered, names)


def _batch(found: Sequence[tuple[str, Rows]], names: Sequence[str]) -> pa.RecordBatch:
    counts = [len(rows.times_ns) for _, rows in found]
    codes = np.repeat(np.arange(len(found), dtype=np.int32), counts)
    symbols = pa.DictionaryArray.from_arrays(codes, [symbol for symbol, _ in found])
    columns = [
        pa.array(np.concatenate([rows.columns[at] for _, rows in found]))
        for at in range(len(names))
    ]
    times = pa.array(np.concatenate([rows.times_ns for _, rows in found]))
    arrays = [symbols.dictionary_decode(), times, *columns]
    return pa.RecordBatch.from_arrays(arrays, names=[SYMBOL, TIME, *names])


def _committed(
    goal: _Goal, made: Sequence[_Made], transaction: staging.Transaction | None
) -> RollupReport:
    staged = [one for part in made for one in part.staged]
    try:
        committed = commit_staged(goal.path, staged, transaction)
    finally:
        staging.area(OsDisk(goal.path)).sweep(goal.job)
    written = dict.fromkeys(goal.timeframes, 0)
    for one in staged:
        written[one.timeframe] += one.rows if committed else 0
    return RollupReport(goal.path, sum(part.rows_read for part in made), written, committed)
