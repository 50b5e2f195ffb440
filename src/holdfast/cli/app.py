"""`holdfast`: nouns and verbs.  The page: docs/cli.md

Whatever a command raises that a person can act on becomes one line on stderr and an exit code, see
holdfast.cli.errors; HOLDFAST_DEBUG=1 shows the traceback instead.  What is heavy is imported by the
command that needs it, so that help and completion are quick.
"""

import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from holdfast.cli import bars, copying, demo, kv, log, pipeline, spark, torture
from holdfast.cli.errors import EXPECTED, PIPE_CLOSED, report

# What we or PySpark would log, commands say in their own words.  On the root logger, because Python
# makes a handler that prints there if PySpark finds none.
_SILENT = logging.NullHandler()


class Root(TyperGroup):
    """Runs a command and turns how it ended into what a shell expects."""

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
            sys.stderr.write("holdfast: not confirmed, so nothing was changed\n")
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
app.command()(copying.copy)
app.command()(torture.torture)
app.command()(demo.demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"holdfast {version('holdfast')}")
        raise typer.Exit


@app.callback()
def holdfast(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Crash-proof logs, key-value stores and market data you can open with Spark.

    Exit codes: 0 ok, 1 usage or refused, 2 corruption, 3 torn tail, 4 fenced.
    """


def main() -> None:
    """The entry point."""
    app()
