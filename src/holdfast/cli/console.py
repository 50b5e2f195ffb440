"""What commands share to speak: answers on stdout, everything else on stderr.

An answer is plain text in columns, or JSON with --json; it is never cut to a terminal's width, so
that it can be piped.  Progress is shown only where a terminal is watching.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
LogPath = Annotated[str, typer.Argument(metavar="PATH", help="The log's directory.")]


def answer(text: str) -> None:
    """One or more lines on stdout."""
    sys.stdout.write(text + "\n")


def answer_json(value: object, *, line: bool = False) -> None:
    """One JSON document; with `line`, on a line of its own and at once, for whoever follows."""
    text = json.dumps(value, ensure_ascii=False, indent=None if line else 2, default=str)
    # A name may hold bytes that are no UTF-8, and then a lone surrogate stands for each.
    sys.stdout.write(text.encode("utf-8", "backslashreplace").decode() + "\n")
    if line:
        sys.stdout.flush()


def answer_bytes(data: bytes) -> None:
    """Bytes on stdout as they are, all of them."""
    rest = memoryview(data)
    while rest:  # with PYTHONUNBUFFERED it is a raw file, which may take less than it is given
        rest = rest[sys.stdout.buffer.write(rest) :]


def remark(text: str, **fields: Any) -> None:
    """Something the reader of stdout's answer should know, on stderr; as JSON if asked for."""
    if fields.pop("as_json", False):
        text = json.dumps({"note": text, **fields})
    sys.stderr.write(text + "\n")


def table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns two spaces apart; those that hold only numbers are set to the right."""
    texts = [[str(cell) for cell in row] for row in rows]
    lines = [list(titles), *texts]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    right = [
        bool(rows) and all(isinstance(cell, int) for cell in column)
        for column in zip(*rows, strict=True)
    ] or [False] * len(titles)
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def printable(payload: bytes) -> str:
    """Text for a terminal: what is no UTF-8 or would command the terminal is escaped."""
    text = payload.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


@contextmanager
def progress(title: str, *, unit: str = "bytes") -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr, told (done, total); nothing at all where no terminal is watching."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    counts = DownloadColumn(binary_units=True) if unit == "bytes" else MofNCompleteColumn()
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), counts, TimeLeft())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
