"""holdfast torture: prove it on your own disk."""

import json
import logging
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def torture(
    directory: Annotated[
        Path | None,
        typer.Argument(help="Where the killed writers write. Default: a new directory here."),
    ] = None,
    log: Annotated[str, typer.Option(help="The log format to torture.")] = "shanghai",
    seconds: Annotated[float, typer.Option(min=1, help="How long.")] = 60,
    seed: Annotated[int, typer.Option(help="Replays the same simulated crashes.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the ledger as JSON.")] = False,
) -> None:
    """Crash a log, simulated and for real, and compare the ledger.

    On one core a simulated disk loses power, tears writes, fills up and fails at every step,
    recovery included. On another, real writers in DIRECTORY are killed with kill -9 again and
    again. Exit code 2 if anything acknowledged was lost, or anything was invented.
    """
    from holdfast.testing.torture import Torture

    logging.getLogger("holdfast").setLevel(logging.CRITICAL)  # it recovers thousands of times
    where = Path(tempfile.mkdtemp(prefix="holdfast-torture-", dir=directory))
    work = Torture(log, where, seed)
    with Meter(seconds) as meter:
        report = work.run(seconds, meter.show)
    if as_json:
        typer.echo(json.dumps(asdict(report) | {"held": report.held}))
    else:
        show(report)
    if not report.held:
        typer.echo(f"What the killed writers left is in {where}", err=True)
        raise typer.Exit(2)
    shutil.rmtree(where)
