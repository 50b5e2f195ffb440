"""holdfast torture: prove it on your own disk."""

import logging
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.console import JsonOption, answer, answer_json, progress, remark, table

if TYPE_CHECKING:
    from holdfast.testing.torture import TortureReport


def torture(
    directory: Annotated[
        Path | None,
        typer.Argument(
            help="Where the killed writers write, in a new directory of their own. "
            "Default: the current directory.",
            file_okay=False,
        ),
    ] = None,
    log: Annotated[str, typer.Option(metavar="FORMAT", help="Which log.")] = "shanghai",
    store: Annotated[
        str | None, typer.Option(metavar="kv|bars", help="Instead of a log: a store.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="How long.")] = 60,
    seed: Annotated[int, typer.Option(help="The same seed simulates the same crashes.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Crash a log or a store, simulated and for real, and compare the ledger.

    On one core a simulated disk loses power, tears writes, fills up and fails at every step,
    recovery included; for a key-value store, simulated writers, readers, compactors and
    collectors are killed and frozen on a network that fails. On another core, real writers are
    killed with kill -9 again and again. Exit code 2 if anything acknowledged was lost, hidden, or
    anything invented; then what the writers left stays for you to look at.
    """
    where = directory or Path.cwd()
    where.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="holdfast-torture-", dir=where))
    try:
        report = _run(store or log, work, seed, seconds)
    except BaseException:
        shutil.rmtree(work)
        raise
    if as_json:
        answer_json(asdict(report) | {"held": report.held})
    else:
        answer(describe(report))
    if report.held:
        shutil.rmtree(work)
        return
    remark(f"what the killed writers left is in {work}")
    raise typer.Exit(2)


def _run(format: str, work: Path, seed: int, seconds: float) -> "TortureReport":
    from holdfast.testing.torture import Torture

    logger = logging.getLogger("holdfast")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # it would tell of each of the recoveries
    try:
        with progress("tortured", unit="steps" if format == "kv" else "images") as show:
            rounds = Torture(format, work, seed)
            return rounds.run(seconds, lambda r: show(_done(r), _expected(r, seconds)))
    finally:
        logger.setLevel(level)


def _done(report: "TortureReport") -> int:
    return report.images or report.steps


def _expected(report: "TortureReport", seconds: float) -> int:
    """How much it will have been, going on like this."""
    return int(_done(report) * max(1.0, seconds / max(report.seconds, 0.001)))


def describe(report: "TortureReport") -> str:
    """The ledger, for people."""
    ledger = table(
        ["", "acknowledged", *report.broken_simulated],
        [
            ["simulated", report.simulated_acknowledged, *report.broken_simulated.values()],
            ["killed -9", report.acknowledged, *report.broken_killed.values()],
        ],
    )
    faults = ", ".join(f"{name} {count:,}" for name, count in report.faults.items())
    verdict = "every promise held" if report.held else "PROMISES WERE BROKEN"
    explored = f"crash images explored  {report.images:,} distinct, of {report.images_drawn:,}"
    if report.steps:
        explored = f"steps simulated        {report.steps:,}, {report.judged:,} states compared"
    lines = [
        f"{report.format}, seed {report.seed}, {report.seconds:.1f} s: {verdict}",
        "",
        ledger,
        "",
        explored,
        f"real kills             {report.kills:,}",
        f"faults fired           {faults}",
    ]
    return "\n".join([*lines, *(f"  {failure}" for failure in report.failures[:20])])
