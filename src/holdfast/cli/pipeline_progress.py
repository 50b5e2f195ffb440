"""A pipeline as it runs: a live table on a terminal, else a line for every batch."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.cli.output import answer_json, count_of, human_time, remark

if TYPE_CHECKING:
    from rich.table import Table

    from holdfast.spark.pipelines import Batch


@contextmanager
def shown(sinks: Sequence[str], *, as_json: bool) -> "Iterator[Callable[[Batch], None]]":
    """Yield the function that shows a batch: on stdout with --json, else on stderr."""
    if as_json:
        yield lambda batch: answer_json(batch)
    elif not sys.stderr.isatty():
        yield lambda batch: remark(line(batch))
    else:
        with _live(sinks) as show:
            yield show


def line(batch: "Batch") -> str:
    speed = f"{batch.rows_per_second:,.0f} rows/s"
    behind = lag(batch)
    state = f"behind {behind}" if behind else "caught up"
    return f"{batch.sink}: batch {batch.batch}, {count_of(batch.rows, 'row')}, {speed}, {state}"


def lag(batch: "Batch") -> str:
    """Return the distance of the sink to its sources; empty if it has caught up."""
    return ", ".join(f"{name} {count:,}" for name, count in batch.lag.items() if count)


@contextmanager
def _live(sinks: Sequence[str]) -> "Iterator[Callable[[Batch], None]]":
    from rich.console import Console
    from rich.live import Live

    latest: dict[str, Batch | None] = dict.fromkeys(sinks)  # in the order of the file
    with Live(table(latest), console=Console(stderr=True), refresh_per_second=4) as live:

        def show(batch: "Batch") -> None:
            latest[batch.sink] = batch
            live.update(table(latest))

        yield show


def table(latest: "Mapping[str, Batch | None]") -> "Table":
    """Draw a line for each sink, also for those without a batch."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    made.add_column("sink", no_wrap=True)
    for title in ("batch", "rows", "rows/s"):
        made.add_column(title, justify="right", no_wrap=True)
    made.add_column("last commit", no_wrap=True)
    made.add_column("behind")
    for name, batch in latest.items():
        if batch is None:
            made.add_row(name, "-", "-", "-", "none yet", "starting")
            continue
        made.add_row(
            name,
            str(batch.batch),
            f"{batch.rows:,}",
            f"{batch.rows_per_second:,.0f}",
            human_time(batch.committed_ms).partition(" ")[2],  # today's, or it is not alive
            lag(batch) or "caught up",
        )
    return made
