"""The demo, act by act, shown on a console while it happens.

1. The writer of a log is killed with -9 again and again, while Spark starts.
2. Spark streams the log into a bar store and a kv store; one of its workers is killed.
3. Spark compacts the kv store and rolls the bars up; garbage is deleted.
4. A writer of the kv store is frozen, replaced, and fenced when it wakes.
5. Every checksum of every store is verified.
6. The day in numbers; the report has its candles.

Every figure is measured in the run.  Without Spark, acts 1, 5 and 6 take place with the log.
"""

import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import holdfast
from holdfast.demo import market
from holdfast.demo.acts import Act, Measured, Promise, Run, judge_kills
from holdfast.demo.ledger import Ledger, Line
from holdfast.errors import MissingError, UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TICKS_PER_SECOND = 30_000
_COLUMNS = "{:>4}{:>8}{:>14}{:>11}{:>10}{:>6}{:>10}"


def tell(work: Path, seed: int, seconds: float, console: Console) -> Run:
    """Run all acts in an empty directory.  Broken promises are in the result.

    Raise HoldfastError if an act cannot take place.
    """
    began = time.monotonic()
    stage = _Stage(console)
    count = int(seconds * TICKS_PER_SECOND)
    console.print(f"[bold]holdfast demo[/]  [dim]seed {seed}  {count:,} ticks in {seconds:g} s[/]")
    starting = _start_spark()
    ledger = Ledger(work / "log", seed, count, seconds)
    stage.play("killing", "A writer is killed while Spark starts", lambda: _kill(stage, ledger))
    ticks = ledger.ticks[: ledger.lines[-1].found]
    spark, missing = None, None
    try:
        with console.status("waiting for Spark"):
            spark = starting.result()
    except (MissingError, UnsupportedError) as error:
        missing = str(error)
        stage.print(f"Spark's acts are left out: {error}")
    bars = _use_spark(stage, spark, work, ticks) if spark else market.make_bars(ticks, 5)
    stage.play("verified", "Every checksum is verified", lambda: verify(work))
    _show_day(stage, bars)
    total_seconds, facts = time.monotonic() - began, _facts(work, spark)
    return Run(seed, seconds, ledger.lines, stage.acts, bars, missing, total_seconds, facts)


class _Stage:
    """A console, and the acts that were played on it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.acts: list[Act] = []

    def play(self, name: str, title: str, act: Callable[[], Measured]) -> None:
        self.title(title)
        with self.console.status("at work"):
            self.acts.append(Act(name, title, *act()))
        for held, words in self.acts[-1].promises:
            self.print(Text.assemble(("✓ ", "green") if held else ("✗ ", "red"), words))

    def title(self, words: str) -> None:
        self.console.print(f"\n[bold cyan]{len(self.acts) + 1}[/]  [bold]{words}[/]")

    def print(self, content: str | Text | Table) -> None:
        text = Text(content) if isinstance(content, str) else content
        self.console.print(Padding(text, (0, 0, 0, 3)))


def _kill(stage: _Stage, ledger: Ledger) -> Measured:
    def show(line: Line) -> None:
        counts = (line.acknowledged, line.in_flight, line.found, line.lost, line.invented)
        cells = (f"{line.at_seconds:.1f} s", *(f"{count:,}" for count in counts))
        stage.print(_COLUMNS.format(line.kill, *cells))

    stage.print(_COLUMNS.format(*Line.TITLES))
    ledger.run(show)
    return judge_kills(ledger.lines, ledger.heard.latencies_us)


def _use_spark(stage: _Stage, spark: "SparkSession", work: Path, ticks: market.Ticks) -> pa.Table:
    from holdfast.demo.fencing import freeze_and_fence
    from holdfast.demo.pipeline import Pipeline

    pipeline = Pipeline(spark, work, ticks)
    stage.play("streaming", "Spark streams the log into bars and prices", pipeline.stream)
    stage.play("maintenance", "Spark compacts prices and rolls up bars", pipeline.maintain)
    fence = partial(freeze_and_fence, pipeline.prices)
    stage.play("fencing", "A frozen writer wakes up and is fenced", fence)
    return pipeline.read_bars("5Min")


def verify(work: Path) -> Measured:
    """Verify every checksum of the stores that the run has made."""
    doors: Any = {"log": holdfast.read_log, "prices": holdfast.read_kv, "bars": holdfast.read_bars}
    verdicts: dict[str, str] = {}
    for name, read in doors.items():
        if (work / name).exists():
            with read(work / name) as store:
                verdicts[name] = store.verify().verdict
    return verdicts, [Promise(v == "clean", f"{name}: {v}") for name, v in verdicts.items()]


def _start_spark() -> "Future[SparkSession]":
    """Start a session in a daemon thread, which does not keep an interrupted demo alive."""
    future: Future[SparkSession] = Future()

    def start() -> None:
        try:
            from holdfast.spark import session

            spark = session(app_name="holdfast demo")
            spark.conf.set("spark.sql.shuffle.partitions", "2")
            spark.range(2).mapInArrow(_unchanged, "id long").count()  # starts the Python workers
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(spark)

    threading.Thread(target=start, name="holdfast-demo-spark", daemon=True).start()
    return future


def _unchanged(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def _show_day(stage: _Stage, bars: pa.Table) -> None:
    stage.title("The day")
    table = Table("symbol", box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("open", "high", "low", "close", "change", "volume", "trades"):
        table.add_column(title, justify="right")
    for day in market.summary(bars):
        prices = (f"{day[name]:,.2f}" for name in ("Open", "High", "Low", "Close"))
        change = Text(f"{day['move']:+.2%}", "green" if day["move"] >= 0 else "red")
        table.add_row(day["symbol"], *prices, change, f"{day['Volume']:,}", f"{day['Count']:,}")
    stage.print(table)


def _facts(work: Path, spark: "SparkSession | None") -> dict[str, str]:
    """Return versions and the machine, for a reader of the report."""
    mounts = [  # those that hold the directory: the one with the longest path counts
        (len(point), kind)
        for _, point, kind, *_ in map(str.split, Path("/proc/self/mounts").read_text().splitlines())
        if work.resolve().is_relative_to(point)
    ]
    return {
        "run at": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "holdfast": version("holdfast"),
        "Python": platform.python_version(),
        **({"Spark": f"{spark.version}, {spark.sparkContext.master}"} if spark else {}),
        "system": f"{platform.system()} {platform.release()}, {os.cpu_count()} processors",
        "file system": max(mounts)[1],
    }
