"""holdfast demo: show what the stores promise, with real processes, in two minutes."""

import shutil
import tempfile
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import JsonOption
from holdfast.cli.output import answer, answer_json, remark

if TYPE_CHECKING:
    from holdfast.demo.acts import Run

REPORT = "report.html"
_MARK = "<title>holdfast demo"  # near the beginning of each report


def demo(
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of the ticks and kills. Default: a random one."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1, help="Seconds that the market is open and the writer is killed.")
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
    """Kill a log writer, then load the log into stores with Spark exactly once.

    A writer appends market ticks and is killed with kill -9 again and again while Spark starts.
    Spark streams the log into bars and prices although one of its workers is killed. It compacts
    the kv store and rolls the bars up. A writer that was frozen wakes up and is fenced. Every
    checksum is verified. Each step is compared with what was acknowledged. The command writes
    report.html to the current directory, or everything to DIR. Exit code 2 if anything was lost,
    invented or doubled; the stores are kept then. Without Spark, only the part with the log runs.
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
    """Show the run on stdout; with --json on stderr, and only on a terminal."""
    from rich.console import Console

    from holdfast.demo.story import tell

    console = Console(stderr=as_json)
    console.quiet = as_json and not console.is_terminal
    return tell(work, seed, seconds, console)


def _conclude(run: "Run", report: Path, as_json: bool) -> None:
    if as_json:
        answer_json({**run.as_json(), "report": str(report)})
    else:
        answer(f"\n{run.total_seconds:.0f} s in all\nreport  {report}\nagain   {run.command}")
    if run.missing:
        remark(f"the part with Spark was skipped: {run.missing}", as_json=as_json)


def _places(keep: Path | None) -> tuple[Path, Path]:
    """Return the directory to work in and the report's path.  Never overwrite a foreign file."""
    if keep is None:
        report = Path(REPORT)
        if report.exists() and _MARK not in report.read_text("utf-8", "replace")[:400]:
            raise FileExistsError(
                f"{report.resolve()} is not a report of this command; move it, or use --keep DIR"
            )
        # In the current directory: another file system may sync differently, or not at all.
        return Path(tempfile.mkdtemp(prefix="holdfast-demo-", dir=Path.cwd())), report
    keep.mkdir(parents=True, exist_ok=True)
    if any(keep.iterdir()):
        raise FileExistsError(f"{keep} is not empty; --keep needs a new or empty directory")
    return keep.resolve(), keep / REPORT


def _new_seed() -> int:
    return SystemRandom().randrange(10_000)
