"""`holdfast bars`: one root of bars and ticks, in MarketStore's files.

Readers open a root as guests and may run beside its owner; write, import, delete, write-back and
replay --apply own it while they run.
"""

import typer

from holdfast.cli import (
    bars_change,
    bars_import,
    bars_read,
    bars_replay,
    bars_report,
    bars_write,
)

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Write, query and check bars and ticks."
)
app.command()(bars_write.write)
app.command("import")(bars_import.import_)
app.command()(bars_read.query)
app.command()(bars_read.latest)
app.command()(bars_read.symbols)
app.command()(bars_change.delete)
app.command()(bars_replay.replay)
app.command()(bars_change.write_back)
app.command()(bars_report.inspect)
app.command()(bars_report.verify)
