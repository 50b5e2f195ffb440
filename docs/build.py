"""Rewrite what in docs/ is made from the code: `make docs`.

docs/cli.md is the `--help` of every command, at a fixed width, whatever terminal this runs in.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from holdfast.cli.app import app
from holdfast.cli.errors import EXIT_CODES

_WIDTH = 80
_INTRODUCTION = """\
# The command line

Made by `make docs` from `--help`; a test fails when the two differ.

`holdfast NOUN VERB` prints its answer on stdout and everything else on stderr.

**JSON.** Every verb takes `--json`, and prints one JSON object per line.  A verb with one answer
prints one line.  A verb that lists or streams rows prints one line per row: `cat`, `tail`, `ls`,
`scan`, `query`, `latest`, `symbols`, every `list`; so do `append`, `put` and `write` per durable
batch, `verify` per store, and `pipeline run` per batch.  Errors are JSON on stderr:
`{"error": kind, "message": text}`.

**Plans.** A verb that deletes prints its plan; with `--apply` it carries the plan out: `log trim`,
`log truncate`, `log repair`, `kv gc`, `kv snapshot drop`, `bars delete`, `bars replay`.
`pysyncobj rejoin` renames what it replaces, and plans first too.

**Ranges.** `--start` is included, `--stop` is not.

**Flush.** `bars flush` writes what the WAL of a store holds to its year files, as
`BarStore.flush()` does.  `log` and `kv` have no such verb: a command leaves nothing in memory when
it ends, and what it has reported is durable.

| exit code | meaning |
|---|---|
{codes}

An error is one line that names the next step; `HOLDFAST_DEBUG=1` shows the traceback instead.
Sizes are written `4096`, `512KB`, `64MB`, `10GB` (a KB is 1024 bytes), durations `200ms`, `30s`,
`5m`, `12h`, `7d`, `2w`.  A log does not store its segment size or age: pass them to each command
that writes.
"""
_CODES = "\n".join(f"| {code} | {why.replace('|', '&#124;')} |" for code, why in EXIT_CODES.items())


def cli_reference() -> str:
    """Return the text of docs/cli.md."""
    return _INTRODUCTION.replace("{codes}", _CODES) + "".join(
        _sections(get_command(app), "holdfast", None)
    )


def _sections(command: Any, name: str, parent: Any) -> Iterator[str]:
    context = command.context_class(
        command, info_name=name, parent=parent, terminal_width=_WIDTH, max_content_width=_WIDTH
    )
    lines = (line.rstrip() for line in command.get_help(context).splitlines())
    level = "#" * min(2 + context.command_path.count(" "), 4)
    yield f"\n{level} `{context.command_path}`\n\n```text\n" + "\n".join(lines) + "\n```\n"
    for child, subcommand in getattr(command, "commands", {}).items():
        yield from _sections(subcommand, child, context)


if __name__ == "__main__":
    Path(__file__).with_name("cli.md").write_text(cli_reference(), encoding="utf-8")
