"""The demo's acts, in order, told on a console while they happen.

1. A writer is killed with -9 again and again, while Spark starts.
2. Spark streams the log into one-minute bars, and one of its workers is killed.
3. Every checksum of the log is verified, by Spark.
4. The day: a table and candles here, and the data for the report.

Everything is measured in the run itself.  Without Spark, acts 1 and 3 take place all the same.
"""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from holdfast.demo import bars, machine, terminal
from holdfast.demo.results import Run, Streaming
from holdfast.demo.rounds import FeedRounds, Reckoning
from holdfast.demo.ticks import SYMBOLS
from holdfast.errors import MissingError, UnsupportedError
from holdfast.reports import VerifyReport, inspect_log, verify_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TICKS_PER_SECOND = 30_000
_CHART_WIDTH_MAX = 140
_INDENT = (0, 0, 0, 3)


class Story:
    """One run in a directory of its own."""

    def __init__(self, work: Path, seed: int, seconds: float, console: Console) -> None:
        self._work, self._seed, self._seconds = work, seed, seconds
        self._console = console
        self._began = time.monotonic()
        self._rounds = FeedRounds(work / "log", seed, int(seconds * TICKS_PER_SECOND), seconds)

    def run(self) -> Run:
        """All acts.  HoldfastError if one cannot take place; broken promises are in the result."""
        count = f"{len(self._rounds.market):,} ticks, one market day in {self._seconds:g} seconds"
        self._console.print(f"[bold]holdfast demo[/]  [dim]seed {self._seed}  {count}[/]")
        starting = _start_spark()
        self._killing()
        spark, missing = self._wait_for_spark(starting)
        streaming, made = self._streaming(spark) if spark else (None, None)
        scrub, scrub_seconds = self._scrub(spark)
        drawn = bars.make_bars(self._acknowledged()) if made is None else made
        self._day(drawn)
        return Run(
            seed=self._seed,
            seconds=self._seconds,
            ticks=len(self._rounds.market),
            ledger=tuple(self._rounds.ledger),
            acks=tuple(self._rounds.heard.acks),
            arrived=self._rounds.arrived(),
            log=inspect_log(str(self._rounds.path)),
            scrub=scrub,
            scrub_seconds=scrub_seconds,
            streaming=streaming,
            missing=missing,
            bars=drawn,
            total_seconds=time.monotonic() - self._began,
            facts=machine.facts(self._work, spark),
        )

    def _killing(self) -> None:
        self._title(1, "A writer is killed while Spark starts")
        total = len(self._rounds.market)
        self._say("kill      at   acknowledged   in flight       found   lost   invented", "dim")
        with self._progress() as progress:
            task = progress.add_task("appending", total=total)

            def tell(line: Reckoning) -> None:
                self._say(_ledger_line(line))
                progress.update(task, completed=line.found)

            self._rounds.run(tell)
        lost = sum(line.lost for line in self._rounds.ledger)
        invented = sum(line.invented for line in self._rounds.ledger)
        acknowledged = self._rounds.ledger[-1].acknowledged
        self._verdict(
            not lost and not invented,
            f"killed {len(self._rounds.ledger)} times: acknowledged {acknowledged:,}, "
            f"lost {lost:,}, invented {invented:,}",
        )

    def _wait_for_spark(
        self, starting: "Future[SparkSession]"
    ) -> "tuple[SparkSession | None, str | None]":
        self._title(2, "Spark turns the log into one-minute bars")
        try:
            with self._console.status("waiting for Spark"):
                return starting.result(), None
        except (MissingError, UnsupportedError) as error:
            self._say(f"left out: {error}", "yellow")
            return None, str(error)

    def _streaming(self, spark: "SparkSession") -> tuple[Streaming, bars.Bars]:
        from holdfast.demo.pipeline import Pipeline

        pipeline = Pipeline(spark, self._rounds.path, self._work, self._acknowledged())
        with self._progress() as progress:
            tasks = {
                "stream": progress.add_task("streaming", total=None),
                "bars": progress.add_task("aggregating", total=None, start=False),
            }

            def tell(what: str, done: int, total: int) -> None:
                progress.start_task(tasks[what])
                progress.update(tasks[what], completed=done, total=total)

            streaming, made = pipeline.run(tell)
        for kill in streaming.worker_kills:
            self._say(f"Python worker {kill.pid} killed -9 in micro-batch {kill.batch}")
        rate = streaming.rows / streaming.seconds
        self._say(
            f"tasks that Spark ran again: {streaming.failed_tasks}; "
            f"{len(streaming.batches)} micro-batches, {rate:,.0f} ticks/s"
        )
        exactly = streaming.rows == streaming.distinct == len(self._acknowledged())
        self._verdict(
            exactly, f"{streaming.rows:,} ticks landed, {streaming.doubled:,} of them twice"
        )
        self._verdict(
            not streaming.bars_differing,
            f"{streaming.bars:,} bars, {streaming.bars_differing:,} different from those "
            "computed from the ledger",
        )
        return streaming, made

    def _scrub(self, spark: "SparkSession | None") -> tuple[VerifyReport, float]:
        where = "by Spark" if spark else "in this process"
        self._title(3, f"Every checksum is verified, {where}")
        began = time.monotonic()
        with self._console.status("verifying"):
            report = self._verify(spark)
        seconds = time.monotonic() - began
        self._verdict(
            report.verdict == "clean",
            f"{len(report.segments)} segments, {report.entries:,} entries, "
            f"{report.size / 2**20:.1f} MiB: {report.verdict}",
        )
        return report, seconds

    def _verify(self, spark: "SparkSession | None") -> VerifyReport:
        if spark is None:
            return verify_log(str(self._rounds.path))
        from holdfast.spark.jobs import scrub

        (report,) = scrub(spark, [str(self._rounds.path)]).logs
        return report

    def _day(self, made: bars.Bars) -> None:
        self._title(4, "The day")
        self._console.print(Padding(terminal.day_table(made), _INDENT))
        moves = [_move(bars.of_symbol(made, number)) for number in range(len(SYMBOLS))]
        mover = max(range(len(SYMBOLS)), key=lambda number: abs(moves[number]))
        width = min(self._console.width - 6, _CHART_WIDTH_MAX)
        self._console.print(
            f"\n   [bold]{SYMBOLS[mover]}[/] {moves[mover]:+.2%}\n", highlight=False
        )
        chart = terminal.candle_chart(bars.of_symbol(made, mover), width)
        self._console.print(Padding(chart, _INDENT))

    def _acknowledged(self) -> Any:
        """The ticks that were, straight from the generator: neither the log nor Spark is asked."""
        return self._rounds.market[: self._rounds.ledger[-1].found]

    @contextmanager
    def _progress(self) -> Iterator[Progress]:
        columns = (TextColumn("  {task.description:<12}"), BarColumn(), TaskProgressColumn())
        hidden = not self._console.is_terminal
        with Progress(
            *columns, TimeElapsedColumn(), console=self._console, transient=True, disable=hidden
        ) as progress:
            yield progress

    def _title(self, number: int, words: str) -> None:
        self._console.print(f"\n[bold cyan]{number}[/]  [bold]{words}[/]")

    def _say(self, words: str, style: str = "") -> None:
        self._console.print(Text(f"   {words}", style))

    def _verdict(self, good: bool, words: str) -> None:
        sign = Text("✓", "bold green") if good else Text("✗", "bold red")
        self._console.print(Text.assemble("   ", sign, f" {words}"))


def _start_spark() -> "Future[SparkSession]":
    """A session, in a thread of its own.  The thread does not keep an interrupted demo alive."""
    future: Future[SparkSession] = Future()

    def start() -> None:
        try:
            from holdfast.spark import session

            spark = session(app_name="holdfast demo")
            # The first Python worker takes seconds to come up: let it, while we wait anyway.
            spark.range(2).mapInArrow(_as_they_are, "id long").count()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(spark)

    threading.Thread(target=start, name="holdfast-demo-spark", daemon=True).start()
    return future


def _as_they_are(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def _ledger_line(line: Reckoning) -> str:
    return (
        f"{line.kill:4}  {line.at_seconds:4.1f} s  {line.acknowledged:13,}  {line.in_flight:10,}"
        f"  {line.found:10,}  {line.lost:5,}  {line.invented:9,}"
    )


def _move(own: bars.Bars) -> float:
    return float(own["close"][-1] / own["open"][0]) - 1 if len(own) else 0.0
