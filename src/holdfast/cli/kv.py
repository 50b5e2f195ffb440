"""`holdfast kv`: one bucket or directory, one key-value store.

Readers are guests and write nothing.  put and delete take the store over from whoever writes to
it; load, compact, gc and snapshot work beside a live writer.
"""

import typer

from holdfast.cli import kv_load, kv_read, kv_report, kv_snapshot, kv_upkeep, kv_write

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Make, read, load and keep key-value stores."
)
app.command()(kv_write.create)
app.command()(kv_write.put)
app.command()(kv_read.get)
app.command()(kv_write.delete)
app.command()(kv_read.scan)
app.command()(kv_load.load)
app.command()(kv_report.stats)
app.add_typer(kv_report.app, name="manifest")
app.add_typer(kv_snapshot.app, name="snapshot")
app.command()(kv_report.verify)
app.command()(kv_upkeep.compact)
app.command()(kv_upkeep.gc)
app.command()(kv_upkeep.recover)
