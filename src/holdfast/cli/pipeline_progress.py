"""A pipeline as it runs: a live table on a terminal, else a line for every batch."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from holdfast.cli.console import answer_json, remark
from holdfast.cli.units import count_of, human_time

if TYPE_CHECKING:
    from rich.table import Table

    from holdfast.spark.pipelines import Batch

_TITLES = ("sink", "batch", "rows", "rows/s", "behind", "last commit")


@contextmanager
def shown(*, as_json: bool) -> "Iterator[Callable[[Batch], None]]":
    """What is to be told of every batch.  The answer goes to stdout with --json, else to stderr."""
    if as_json:
        yield lambda batch: answer_json(asdict(batch), line=True)
    elif not sys.stderr.isatty():
        yield lambda batch: remark(line(batch))
    else:
        with _live() as show:
            yield show


def line(batch: "Batch") -> str:
    speed = f"{batch.rows_per_second:,.0f} rows/s"
    return (
        f"{batch.sink}: batch {batch.batch}, {count_of(batch.rows, 'row')}, {speed}, {lag(batch)}"
    )


def lag(batch: "Batch") -> str:
    """How far behind its sources the sink is."""
    behind = [f"{name} {count:,}" for name, count in batch.lag.items() if count]
    return f"behind {', '.join(behind)}" if behind else "caught up"


@contextmanager
def _live() -> "Iterator[Callable[[Batch], None]]":
    from rich.console import Console
    from rich.live import Live

    latest: dict[str, Batch] = {}
    with Live(_table(latest), console=Console(stderr=True), refresh_per_second=4) as live:

        def show(batch: "Batch") -> None:
            latest[batch.sink] = batch
            live.update(_table(latest))

        yield show


def _table(latest: "dict[str, Batch]") -> "Table":
    from rich.table import Table

    made = Table(*_TITLES, box=None)
    for batch in latest.values():
        made.add_row(
            batch.sink,
            str(batch.batch),
            f"{batch.rows:,}",
            f"{batch.rows_per_second:,.0f}",
            lag(batch),
            human_time(batch.committed_ms),
        )
    return made
