"""`holdfast log`: one directory, one log, of any format.

Readers take no lock and may run beside the owner; create, append, rotate, trim, truncate and
repair own the log while they run.
"""

import typer

from holdfast.cli.log import append, cat, convert, create, inspect, jobs, repair, replicas, snapshot
from holdfast.cli.log import trim as trimming

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Create, append to, read, verify and repair logs.",
)
app.command()(create.create)
app.command()(append.append)
app.command()(cat.cat)
app.command()(cat.tail)
app.command()(inspect.ls)
app.command()(inspect.inspect)
app.command()(inspect.verify)
app.command()(jobs.scrub)
app.command()(repair.repair)
app.command()(create.rotate)
app.command()(trimming.trim)
app.command()(trimming.truncate)
app.command()(replicas.replicate)
app.command()(convert.convert)
app.command()(jobs.replay)
app.command()(jobs.stats)
app.add_typer(replicas.app, name="replicas")
app.add_typer(snapshot.app, name="snapshot")
