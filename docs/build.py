"""Rewrites what in docs/ is made from the code: `make docs`.

docs/cli.md is the `--help` of every command, at a fixed width, whatever terminal this runs in.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from holdfast.cli.app import app

_WIDTH = 80
_INTRODUCTION = """\
# The command line

Made by `make docs` from `--help`; a test fails when the two differ.

`holdfast NOUN VERB`: what is asked for goes to stdout, everything else to stderr.  Every verb takes
`--json`, and then errors are JSON on stderr too: `{"error": kind, "message": text}`.

| exit code | means |
|---|---|
| 0 | all is well |
| 1 | wrong usage, no such log, locked, disk full, or else refused |
| 2 | corruption |
| 3 | a torn tail: the end of a write that a crash cut short; the next owner cuts it off |
| 4 | fenced: another writer has taken over |
| 130 | interrupted by Ctrl-C |
| 141 | whoever read the output has gone, as in `\\| head` |

An error is one line that says what to do next; `HOLDFAST_DEBUG=1` shows the traceback instead.
Sizes are written `4096`, `512KB`, `64MB`, `10GB` (a KB is 1024 bytes), durations `200ms`, `30s`,
`5m`, `12h`, `7d`, `2w`.  A segment size or age is not kept in a log: give it to each command
that writes.
"""


def cli_reference() -> str:
    """docs/cli.md as it should be."""
    return _INTRODUCTION + "".join(_sections(get_command(app), "holdfast", None))


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
