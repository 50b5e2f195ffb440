"""holdfast torture: test the promises on your own disk."""

import logging
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import FormatOption, JsonOption
from holdfast.cli.output import answer, progress, remark, table

if TYPE_CHECKING:
    from holdfast.testing.torture import TortureReport


def torture(
    directory: Annotated[
        Path | None,
        typer.Argument(
            help="The parent of the new directory for the killed writers. "
            "Default: the current directory.",
            file_okay=False,
        ),
    ] = None,
    log: FormatOption = None,
    store: Annotated[
        str | None, typer.Option(metavar="kv|bars", help="A store to test instead of a log.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds to run.")] = 60,
    seed: Annotated[int, typer.Option(help="The seed of the simulated crashes.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Crash a log or a store, simulated and for real, and compare it with what was acknowledged.

    On one core a simulated disk loses power, tears writes, fills up and fails at every step,
    recovery included; for a key-value store, simulated writers, readers, compactors and
    collectors are killed and frozen on a network that fails. On another core, real writers are
    killed with kill -9 after their first acknowledgement, again and again; copies of what they
    leave are damaged; owners are forked, moved, robbed of their lock and run out of space. Exit
    code 2 if anything acknowledged was lost or hidden, or anything was invented; the files of the
    writers are kept then. Exit code 5 if no killed writer had acknowledged anything, or nothing
    was simulated: such a run proves nothing.
    """
    where = directory or Path.cwd()
    where.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="holdfast-torture-", dir=where))
    try:
        report = _run(store or log, work, seed, seconds)
    except BaseException:
        shutil.rmtree(work)
        raise
    document = asdict(report) | {"held": report.held, "conclusive": report.is_conclusive}
    answer(describe(report), document, as_json=as_json)
    if not report.held:
        remark(f"the files of the killed writers are in {work}", as_json=as_json)
        raise typer.Exit(2)
    shutil.rmtree(work)
    if not report.is_conclusive:
        remark("inconclusive: too little was judged; pass more --seconds", as_json=as_json)
        raise typer.Exit(5)


def _run(format: str | None, work: Path, seed: int, seconds: float) -> "TortureReport":
    from holdfast.doors.logs import DEFAULT_FORMAT
    from holdfast.testing.torture import Torture

    format = format or DEFAULT_FORMAT
    logger = logging.getLogger("holdfast")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # it would log each recovery
    try:
        with progress("tortured", unit="steps" if format == "kv" else "images") as show:
            rounds = Torture(format, work, seed)
            return rounds.run(seconds, lambda r: show(_done(r), _expected(r, seconds)))
    finally:
        logger.setLevel(level)


def _done(report: "TortureReport") -> int:
    return report.images or report.steps


def _expected(report: "TortureReport", seconds: float) -> int:
    """Return the expected total at this rate."""
    return int(_done(report) * max(1.0, seconds / max(report.seconds, 0.001)))


def describe(report: "TortureReport") -> str:
    """Return the results as text."""
    from holdfast.testing.kills import LIMIT_S

    ledger = table(
        ["", "acknowledged", *report.broken_simulated],
        [
            ["simulated", report.simulated_acknowledged, *report.broken_simulated.values()],
            ["killed -9", report.acknowledged, *report.broken_killed.values()],
        ],
    )
    verdict = "every promise held" if report.is_conclusive else "inconclusive"
    verdict = verdict if report.held else "PROMISES WERE BROKEN"
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
        f"owners' lives          {_counts(report.lives)}",
        f"damaged copies         {_counts(report.damages)}",
        f"faults fired           {_counts(report.faults)}",
    ]
    if report.silent:
        lines.append(f"silent writers         {report.silent:,}: no acknowledgement in {LIMIT_S} s")
    if report.impossible:
        lines.append(f"not possible here      {', '.join(map(_words, report.impossible))}")
    return "\n".join([*lines, *(f"  {failure}" for failure in report.failures[:20])])


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{_words(name)} {count:,}" for name, count in counts.items())


def _words(name: str) -> str:
    return name.replace("_", " ")
