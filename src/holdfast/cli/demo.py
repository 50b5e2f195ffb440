"""holdfast demo: the whole story, with real parts, in less than two minutes."""

import shutil
import tempfile
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.console import JsonOption, answer, answer_json, remark

if TYPE_CHECKING:
    from holdfast.demo.results import Run

REPORT = "report.html"
_MARK = "<title>holdfast demo"  # near the beginning of our own reports


def demo(
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="The same seed makes the same ticks. Default: a new one."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1, help="How long the market is open and the writer killed.")
    ] = 12,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep the log, the stores and the report in this new or empty directory.",
            file_okay=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Watch a log survive, and Spark land it exactly once.

    A writer appends market ticks and is killed with kill -9 again and again while Spark starts.
    Spark streams the log into bars and prices while one of its workers is killed, compacts, sweeps
    and rolls up both stores, and verifies every checksum. A writer that was frozen wakes up and is
    fenced. The ledger is compared at each step. It leaves report.html in the current
    directory, or everything in DIR. Exit code 2 if anything was lost, invented or doubled; then
    what there is stays for you to look at. Without Spark the rest takes place.
    """
    from holdfast.demo.report import render

    work, report = _places(keep)
    try:
        run = _perform(work, _new_seed() if seed is None else seed, seconds, as_json)
        report.write_text(render(run), encoding="utf-8")
    except BaseException:
        if keep is None:
            shutil.rmtree(work)
        raise
    if keep is None and run.held:
        shutil.rmtree(work)
    _conclude(run, report.resolve(), as_json)
    if not run.held:
        remark(f"PROMISES WERE BROKEN; what was written is in {work}", as_json=as_json)
        raise typer.Exit(2)


def _perform(work: Path, seed: int, seconds: float, as_json: bool) -> "Run":
    """On stdout; with --json on stderr, and only if somebody is watching."""
    from rich.console import Console

    from holdfast.demo.story import Story

    console = Console(stderr=as_json)
    console.quiet = as_json and not console.is_terminal
    return Story(work, seed, seconds, console).run()


def _conclude(run: "Run", report: Path, as_json: bool) -> None:
    if as_json:
        answer_json({**run.as_json(), "report": str(report)})
    else:
        answer(f"\n{run.total_seconds:.0f} s in all\nreport  {report}\nagain   {run.command}")
    if run.missing:
        remark(f"Spark's part was left out: {run.missing}", as_json=as_json)


def _places(keep: Path | None) -> tuple[Path, Path]:
    """Where to work, and where the report goes.  Nobody's file is overwritten."""
    if keep is None:
        report = Path(REPORT)
        if report.exists() and _MARK not in report.read_text("utf-8", "replace")[:400]:
            raise FileExistsError(f"{report.resolve()} is not a report of ours: move it, or --keep")
        # Beside the user's own data: another disk may sync otherwise, or not at all.
        return Path(tempfile.mkdtemp(prefix="holdfast-demo-", dir=Path.cwd())), report
    keep.mkdir(parents=True, exist_ok=True)
    if any(keep.iterdir()):
        raise FileExistsError(f"{keep} is not empty: name a new directory for --keep")
    return keep.resolve(), keep / REPORT


def _new_seed() -> int:
    return SystemRandom().randrange(10_000)
