"""`holdfast bars`: one root of bars and ticks, in MarketStore's files.

Readers take no lock and may run beside the owner; create, write, import, flush, backup, and delete
and replay with --apply own the store while they run.
"""

import typer

from holdfast.cli.bars import (
    backup,
    delete,
    inspect,
    load,
    query,
    replay,
    write,
)

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Create, write, import, query, export and verify bars and ticks.",
)
app.command()(delete.create)
app.command()(write.write)
app.command("import")(load.import_)
app.command()(query.export)
app.command()(query.query)
app.command()(query.latest)
app.command()(query.symbols)
app.command()(delete.delete)
app.command()(replay.replay)
app.command()(delete.flush)
app.command()(backup.backup)
app.command()(inspect.inspect)
app.command()(inspect.verify)
