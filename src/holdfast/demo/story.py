"""The demo's acts, in order, told on a console while they happen.

1. A writer is killed with -9 again and again, while Spark starts.
2. Spark streams the log into a bar store and a kv store, and one of its workers is killed.
3. Spark compacts the kv store, garbage is swept, minutes become hours and days.
4. Every checksum of the log and of both stores is verified, by Spark.
5. A writer that was frozen wakes up, and is fenced.
6. The day: a table and candles here, and the data for the report.

Everything is measured in the run itself.  Without Spark, acts 1, 4 and 6 take place with the log.
"""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding

from holdfast.demo import bars, machine, terminal
from holdfast.demo.results import Fencing, Rollup, Run, Scrub, Stores, Streaming, Upkeep
from holdfast.demo.rounds import FeedRounds, Reckoning
from holdfast.demo.stage import Stage
from holdfast.demo.ticks import SYMBOLS
from holdfast.errors import MissingError, UnsupportedError
from holdfast.reports import VerifyReport, inspect_log, verify_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.demo.history import Moment

TICKS_PER_SECOND = 30_000
_CHART_WIDTH_MAX = 140
_INDENT = (0, 0, 0, 3)


class Story:
    """One run in a directory of its own."""

    def __init__(self, work: Path, seed: int, seconds: float, console: Console) -> None:
        self._work, self._seed, self._seconds = work, seed, seconds
        self._stage = Stage(console)
        self._began = time.monotonic()
        self._rounds = FeedRounds(work / "log", seed, int(seconds * TICKS_PER_SECOND), seconds)
        self._prices, self._bars = work / "prices", work / "bars"

    def run(self) -> Run:
        """All acts.  HoldfastError if one cannot take place; broken promises are in the result."""
        count = f"{len(self._rounds.market):,} ticks, one market day in {self._seconds:g} seconds"
        self._stage.console.print(f"[bold]holdfast demo[/]  [dim]seed {self._seed}  {count}[/]")
        starting = _start_spark()
        self._killing()
        spark, missing = self._wait_for_spark(starting)
        stores: Stores | None = None
        if spark:
            stores, scrubs, drawn = self._with_spark(spark)
        else:
            scrubs, drawn = [self._scrub_log(None)], bars.make_bars(self._acknowledged())
        self._day(drawn)
        return Run(
            seed=self._seed,
            seconds=self._seconds,
            ticks=len(self._rounds.market),
            ledger=tuple(self._rounds.ledger),
            acks=tuple(self._rounds.heard.acks),
            arrived=self._rounds.arrived(),
            log=inspect_log(str(self._rounds.path)),
            scrubs=tuple(scrubs),
            stores=stores,
            missing=missing,
            bars=drawn,
            total_seconds=time.monotonic() - self._began,
            facts=machine.facts(self._work, spark),
        )

    def _with_spark(self, spark: "SparkSession") -> tuple[Stores, list[Scrub], bars.Bars]:
        from holdfast.bucket import DirectoryBucket
        from holdfast.demo.history import moments_of
        from holdfast.demo.upkeep import scrub_stores

        streaming, made = self._streaming(spark)
        history = moments_of(DirectoryBucket(self._prices))
        upkeep, rollup, history = self._upkeep(spark, history)
        self._stage.title("Every checksum is verified, by Spark")
        scrubs = [self._scrub_log(spark)]
        with self._stage.console.status("verifying the stores"):
            scrubs += scrub_stores(spark, self._prices, self._bars)
        for scrub in scrubs[1:]:
            self._tell_scrub(scrub)
        fencing = self._fencing()
        history = moments_of(DirectoryBucket(self._prices), history)
        return Stores(streaming, upkeep, rollup, fencing, tuple(history)), scrubs, made

    def _killing(self) -> None:
        self._stage.title("A writer is killed while Spark starts")
        total = len(self._rounds.market)
        titles = "kill      at   acknowledged   in flight       found   lost   invented"
        self._stage.say(titles, "dim")
        with self._stage.progress() as progress:
            task = progress.add_task("appending", total=total)

            def tell(line: Reckoning) -> None:
                self._stage.say(_ledger_line(line))
                progress.update(task, completed=line.found)

            self._rounds.run(tell)
        lost = sum(line.lost for line in self._rounds.ledger)
        invented = sum(line.invented for line in self._rounds.ledger)
        acknowledged = self._rounds.ledger[-1].acknowledged
        self._stage.verdict(
            not lost and not invented,
            f"killed {len(self._rounds.ledger)} times: acknowledged {acknowledged:,}, "
            f"lost {lost:,}, invented {invented:,}",
        )

    def _wait_for_spark(
        self, starting: "Future[SparkSession]"
    ) -> "tuple[SparkSession | None, str | None]":
        self._stage.title("Spark turns the log into bars and prices")
        try:
            with self._stage.console.status("waiting for Spark"):
                return starting.result(), None
        except (MissingError, UnsupportedError) as error:
            self._stage.say(f"left out: {error}", "yellow")
            return None, str(error)

    def _streaming(self, spark: "SparkSession") -> tuple[Streaming, bars.Bars]:
        from holdfast.demo.streams import Streams
        from holdfast.demo.upkeep import make_store

        make_store(self._prices)
        streams = Streams(spark, self._rounds.path, self._work, self._acknowledged())
        with self._stage.progress() as progress:
            task = progress.add_task("streaming", total=None)

            def tell(done: int, total: int) -> None:
                progress.update(task, completed=done, total=total)

            streaming, made = streams.run(tell)
        for kill in streaming.worker_kills:
            self._stage.say(f"Python worker {kill.pid} killed -9 in micro-batch {kill.batch}")
        self._stage.say(
            f"tasks that Spark ran again: {streaming.failed_tasks}; "
            f"{len(streaming.batches)} micro-batches, {streaming.seconds:.1f} s"
        )
        found = self._rounds.ledger[-1].found
        self._stage.verdict(
            streaming.rows == found and not streaming.bars_differing,
            f"{streaming.bars:,} bars of {streaming.rows:,} ticks, {streaming.bars_differing:,} "
            "different from those computed from the ledger",
        )
        self._stage.verdict(
            not streaming.prices_differing,
            f"{streaming.prices:,} prices in the kv store, {streaming.prices_differing:,} of them "
            "different",
        )
        return streaming, made

    def _upkeep(
        self, spark: "SparkSession", history: "list[Moment]"
    ) -> "tuple[Upkeep, Rollup, list[Moment]]":
        from holdfast.demo.upkeep import compact_and_sweep, roll_up

        self._stage.title("Spark looks after the stores")
        with self._stage.console.status("compacting"):
            upkeep, history = compact_and_sweep(spark, self._prices, history)
        self._stage.verdict(
            not upkeep.rows_differing,
            f"compacted {upkeep.rows_read:,} rows to {upkeep.rows_written:,} in "
            f"{upkeep.compact_seconds:.1f} s, swept {upkeep.deleted:,} objects and left "
            f"{upkeep.objects_after:,}; {upkeep.rows_differing:,} rows read differently",
        )
        self._stage.verdict(
            not upkeep.snapshot_differing,
            f"the snapshot from before shows the same still: {upkeep.snapshot_differing:,} differ",
        )
        with self._stage.console.status("rolling up"):
            rollup = roll_up(spark, self._bars, self._acknowledged())
        made = ", ".join(f"{count:,} of {name}" for name, count in rollup.bars.items())
        self._stage.verdict(
            not rollup.differing,
            f"rolled up to {made} in {rollup.seconds:.1f} s, {rollup.differing:,} different",
        )
        return upkeep, rollup, history

    def _scrub_log(self, spark: "SparkSession | None") -> Scrub:
        if spark is None:
            self._stage.title("Every checksum is verified, in this process")
        began = time.monotonic()
        with self._stage.console.status("verifying the log"):
            report = self._verify(spark)
        amount = (
            f"{len(report.segments)} segments, {report.entries:,} entries, "
            f"{report.size / 2**20:.1f} MiB"
        )
        scrub = Scrub("log", amount, report.verdict, time.monotonic() - began)
        self._tell_scrub(scrub)
        return scrub

    def _tell_scrub(self, scrub: Scrub) -> None:
        words = f"{scrub.what + ':':<11} {scrub.amount}: {scrub.verdict}"
        self._stage.verdict(scrub.verdict == "clean", words)

    def _verify(self, spark: "SparkSession | None") -> VerifyReport:
        if spark is None:
            return verify_log(str(self._rounds.path))
        from holdfast.spark.jobs import scrub

        (report,) = scrub(spark, [str(self._rounds.path)]).logs
        return report

    def _fencing(self) -> Fencing:
        from holdfast.demo.fencing import freeze_and_fence

        self._stage.title("A frozen writer wakes up")
        with self._stage.console.status("a writer is stopped, and another takes over"):
            fencing = freeze_and_fence(self._prices)
        self._stage.say(f"SIGSTOP after {fencing.acknowledged} acknowledged puts; another opens")
        self._stage.say(f"SIGCONT; it says: {fencing.why}")
        self._stage.verdict(
            not fencing.lost and not fencing.stray and fencing.successor > fencing.epoch,
            f"FENCED epoch {fencing.epoch} < {fencing.successor}: lost {fencing.lost:,}, "
            f"read of what it wrote since {fencing.stray:,}",
        )
        return fencing

    def _day(self, made: bars.Bars) -> None:
        self._stage.title("The day")
        console = self._stage.console
        console.print(Padding(terminal.day_table(made), _INDENT))
        moves = [_move(bars.of_symbol(made, number)) for number in range(len(SYMBOLS))]
        mover = max(range(len(SYMBOLS)), key=lambda number: abs(moves[number]))
        width = min(console.width - 6, _CHART_WIDTH_MAX)
        console.print(f"\n   [bold]{SYMBOLS[mover]}[/] {moves[mover]:+.2%}\n", highlight=False)
        chart = terminal.candle_chart(bars.of_symbol(made, mover), width)
        console.print(Padding(chart, _INDENT))

    def _acknowledged(self) -> Any:
        """The ticks that were, straight from the generator: neither the log nor Spark is asked."""
        return self._rounds.market[: self._rounds.ledger[-1].found]


def _start_spark() -> "Future[SparkSession]":
    """A session, in a thread of its own.  The thread does not keep an interrupted demo alive."""
    future: Future[SparkSession] = Future()

    def start() -> None:
        try:
            from holdfast.spark import session

            spark = session(app_name="holdfast demo")
            spark.conf.set("spark.sql.shuffle.partitions", "2")  # as many as there are cores
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
