"""`holdfast log snapshot`: data that stands for the first entries of a log."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.opening import log_owner, log_reader, method_of
from holdfast.cli.options import JsonOption, LogPath
from holdfast.cli.output import answer, human_size

if TYPE_CHECKING:
    from holdfast.formats.snapshot_file import Head

_PIECE_SIZE = 2**20

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show, create or install the snapshot that stands for the first entries of a log.",
)

DataFile = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="The data. Default: stdin.")
]
Index = Annotated[
    int, typer.Argument(metavar="INDEX", help="The last entry that the snapshot covers.")
]


@app.command()
def show(
    path: LogPath,
    data: Annotated[
        bool, typer.Option("--data", help="Write only the data of the snapshot to stdout.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the snapshot of a log, and the files of older ones."""
    with log_reader(path) as reader:
        read: Callable[[int, int], bytes] = method_of(reader, "read_snapshot", _why(path))
        head: Head = method_of(reader, "snapshot", _why(path))
        if data:
            for offset in range(0, head.data_size, _PIECE_SIZE):
                sys.stdout.buffer.write(read(offset, _PIECE_SIZE))
            sys.stdout.buffer.flush()
            return
        old: list[str] = method_of(reader, "old_snapshots", _why(path))()
    lines = [_text(head), *(f"kept: {name}" for name in old)]
    answer(lines, {**_document(path, head), "kept": old}, as_json=as_json)


@app.command()
def create(path: LogPath, index: Index, file: DataFile = None, as_json: JsonOption = False) -> None:
    """Create a snapshot at INDEX; the log then begins after it.

    Nothing is deleted: index files that are wholly before INDEX stay until `holdfast log trim`
    removes them.
    """
    with log_owner(path, as_json=as_json) as log, _pieces(file) as data:
        method_of(log, "create_snapshot", _why(path))(index, data)
        _tell(path, log, as_json=as_json)


@app.command()
def install(
    path: LogPath,
    index: Index,
    term: Annotated[int, typer.Argument(metavar="TERM", help="The term of that entry.")],
    file: DataFile = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Move the log aside if it does not have that entry.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Install a snapshot of another log.

    If the log does not have that entry with that term, all its files are moved aside, and the log
    begins again after the snapshot. Without --apply nothing is moved: the command is refused.
    """
    with log_owner(path, as_json=as_json) as log, _pieces(file) as data:
        install = method_of(log, "install_snapshot", _why(path))
        install(index, term, data, compact_only=not apply)
        _tell(path, log, as_json=as_json)


@contextmanager
def _pieces(file: Path | None) -> Iterator[Iterator[bytes]]:
    if file is None:
        yield iter(lambda: sys.stdin.buffer.read(_PIECE_SIZE), b"")
        return
    with file.open("rb") as opened:
        yield iter(lambda: opened.read(_PIECE_SIZE), b"")


def _why(path: str) -> str:
    return f"{path}: logs of this format have no snapshots"


def _document(path: str, head: "Head") -> dict[str, Any]:
    return {
        "path": path,
        "index": head.index,
        "term": head.term,
        "size": head.data_size,
        "created": head.meta.created or None,
        "hostname": head.meta.hostname or None,
    }


def _text(head: "Head") -> str:
    if not head.index:
        return "no snapshot: the log begins with its first entry"
    created, host = head.meta.created or "at an unknown time", head.meta.hostname
    made = f"created {created} by {host or 'an unknown host'}"
    size = human_size(head.data_size)
    return f"a snapshot of all up to entry {head.index}, term {head.term}: {size}, {made}"


def _tell(path: str, log: Any, *, as_json: bool) -> None:
    head: Head = log.snapshot
    text = f"{_text(head)}; the log begins at {head.index + 1}"
    answer(text, _document(path, head), as_json=as_json)
