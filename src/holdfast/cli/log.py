"""`holdfast log`: one directory, one log, whatever its format.

Readers open a log as guests and may run beside its owner; create, append, rotate, compact,
truncate and repair own it while they run.
"""

import typer

from holdfast.cli import (
    log_append,
    log_change,
    log_convert,
    log_jobs,
    log_read,
    log_repair,
    log_replicas,
    log_report,
    log_snapshot,
    log_truncate,
)

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Make, read, check and mend logs."
)
app.command()(log_change.create)
app.command()(log_append.append)
app.command()(log_read.cat)
app.command()(log_read.tail)
app.command()(log_report.ls)
app.command()(log_report.inspect)
app.command()(log_report.verify)
app.command()(log_jobs.scrub)
app.command()(log_repair.repair)
app.command()(log_change.rotate)
app.command()(log_change.compact)
app.command()(log_truncate.truncate)
app.command()(log_replicas.replicate)
app.command()(log_convert.convert)
app.command()(log_jobs.replay)
app.command()(log_jobs.stats)
app.add_typer(log_replicas.app, name="replicas")
app.add_typer(log_snapshot.app, name="snapshot")
