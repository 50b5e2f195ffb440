"""`holdfast`: nouns and verbs.  The page: docs/cli.md

An expected error becomes one line on stderr and an exit code, see holdfast.cli.errors;
HOLDFAST_DEBUG=1 shows the traceback instead.  Commands import heavy modules when they run, so that
help and completion are quick.
"""

import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from holdfast.cli import bars, copy, demo, kv, log, pipeline, pysyncobj, spark, torture
from holdfast.cli.errors import EXIT_CODES, EXPECTED, PIPE_CLOSED, report

_EPILOG = "Exit codes:\n\n\b\n" + "\n".join(f"{code:>3}  {why}" for code, why in EXIT_CODES.items())

# Commands print what the library or PySpark would log.  On the root logger, because Python creates
# a handler that prints there if PySpark finds none.
_SILENT = logging.NullHandler()


class Root(TyperGroup):
    """Run a command, and turn its end into an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        code = self._run(words, complete_var, extra)
        if standalone_mode:
            sys.exit(code)
        return code

    def _run(self, words: list[str], complete_var: str | None, extra: dict[str, Any]) -> int:
        if not os.environ.get("HOLDFAST_DEBUG"):
            logging.getLogger().addHandler(_SILENT)
        try:
            code = super().main(words, "holdfast", complete_var, standalone_mode=False, **extra)
        except typer.Abort:
            sys.stderr.write("holdfast: interrupted; nothing was changed\n")
            return 1
        except EXPECTED as error:
            if os.environ.get("HOLDFAST_DEBUG"):
                raise
            options = words[: words.index("--")] if "--" in words else words
            return report(error, as_json="--json" in options, noun="".join(words[:1]))
        return code if isinstance(code, int) else 0

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The interpreter flushes once more as it ends; that must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(PIPE_CLOSED) from None
        return result


app = typer.Typer(
    cls=Root,
    name="holdfast",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(log.app, name="log")
app.add_typer(kv.app, name="kv")
app.add_typer(bars.app, name="bars")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(spark.app, name="spark")
app.add_typer(pysyncobj.app, name="pysyncobj")
app.command()(copy.copy)
app.command()(torture.torture)
app.command()(demo.demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        from holdfast import __version__

        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback(epilog=_EPILOG)
def holdfast(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Durable logs and stores for Python, with the data pipeline on Spark."""


def main() -> None:
    """Run the command line."""
    app()
