"""`holdfast kv`: one bucket or directory, one key-value store.

Readers write nothing.  put and delete open the store for writing, and take it over from a live
writer only with --take-over; load, compact, gc and snapshot work beside a live writer.
"""

import typer

from holdfast.cli.kv import compact, inspect, load, put, scan, snapshot

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Create, read, write, load and maintain key-value stores.",
)
app.command()(put.create)
app.command()(put.put)
app.command()(scan.get)
app.command()(put.delete)
app.command()(scan.scan)
app.command()(load.load)
app.command()(inspect.inspect)
app.add_typer(inspect.app, name="manifest")
app.add_typer(snapshot.app, name="snapshot")
app.command()(inspect.verify)
app.command()(compact.compact)
app.command()(compact.gc)
app.command()(compact.repair)
