"""`holdfast log snapshot`: what the first entries of a log came to, in their place."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, runtime_checkable

import typer

from holdfast.cli.console import JsonOption, LogPath, answer, answer_json
from holdfast.cli.opening import find_log, guest_of, owner_of
from holdfast.cli.units import human_size
from holdfast.errors import UnsupportedError

if TYPE_CHECKING:
    from holdfast.formats.snapshot_file import Head

_PIECE_SIZE = 2**20

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show, make or install what stands for the first entries of a log.",
)

DataFile = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="Its data; without it, stdin is read.")
]
Index = Annotated[int, typer.Argument(metavar="INDEX", help="The last entry it stands for.")]


@runtime_checkable
class HasSnapshot(Protocol):
    """A log that may begin with a snapshot."""

    @property
    def snapshot(self) -> "Head": ...

    def read_snapshot(self, offset: int = 0, size: int | None = None) -> bytes: ...


@runtime_checkable
class TakesSnapshots(HasSnapshot, Protocol):
    def create_snapshot(self, index: int, data: Iterable[bytes]) -> None: ...

    def install_snapshot(
        self, index: int, term: int, data: Iterable[bytes], *, compact_only: bool = False
    ) -> None: ...


@app.command()
def show(
    path: LogPath,
    data: Annotated[
        bool, typer.Option("--data", help="Write its data, and nothing else, to stdout.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say what the snapshot is of, and which old ones are kept."""
    from holdfast.logs.file_log.history import kept

    with guest_of(path) as guest:
        if not isinstance(guest, HasSnapshot):
            raise _unsupported(path)
        head = guest.snapshot
        if data:
            for offset in range(0, head.data_size, _PIECE_SIZE):
                sys.stdout.buffer.write(guest.read_snapshot(offset, _PIECE_SIZE))
            sys.stdout.buffer.flush()
            return
    old = kept(find_log(path)[0], "snap")
    if as_json:
        answer_json({**_document(path, head), "kept": old})
        return
    answer(_told(head))
    for name in old:
        answer(f"kept: {name}")


@app.command()
def create(path: LogPath, index: Index, file: DataFile = None, as_json: JsonOption = False) -> None:
    """Let the log begin behind an entry that it has.

    Index files that are wholly before it stay until `holdfast log compact` removes them.
    """
    with _taking(path, as_json=as_json) as log, _pieces(file) as data:
        log.create_snapshot(index, data)
        _tell(path, log.snapshot, as_json=as_json)


@app.command()
def install(
    path: LogPath,
    index: Index,
    term: Annotated[int, typer.Argument(metavar="TERM", help="The term of that entry.")],
    file: DataFile = None,
    compact_only: Annotated[
        bool, typer.Option("--compact-only", help="Refuse if the log does not have that entry.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Install a snapshot from elsewhere.

    If the log does not have that entry, of that term, all of it is moved aside and it begins anew
    behind the snapshot.
    """
    with _taking(path, as_json=as_json) as log, _pieces(file) as data:
        log.install_snapshot(index, term, data, compact_only=compact_only)
        _tell(path, log.snapshot, as_json=as_json)


@contextmanager
def _taking(path: str, *, as_json: bool) -> Iterator[TakesSnapshots]:
    with owner_of(path, as_json=as_json) as log:
        if not isinstance(log, TakesSnapshots):
            raise _unsupported(path)
        yield log


@contextmanager
def _pieces(file: Path | None) -> Iterator[Iterator[bytes]]:
    if file is None:
        yield iter(lambda: sys.stdin.buffer.read(_PIECE_SIZE), b"")
        return
    with file.open("rb") as opened:
        yield iter(lambda: opened.read(_PIECE_SIZE), b"")


def _unsupported(path: str) -> UnsupportedError:
    return UnsupportedError(f"{path}: logs of this format have no snapshots")


def _document(path: str, head: "Head") -> dict[str, Any]:
    return {
        "path": path,
        "index": head.index,
        "term": head.term,
        "size": head.data_size,
        "created": head.meta.created or None,
        "hostname": head.meta.hostname or None,
    }


def _told(head: "Head") -> str:
    if not head.index:
        return "no snapshot: the log begins with its first entry"
    made = f"made {head.meta.created or 'at some time'} by {head.meta.hostname or 'someone'}"
    size = human_size(head.data_size)
    return f"a snapshot of all up to entry {head.index}, term {head.term}: {size}, {made}"


def _tell(path: str, head: "Head", *, as_json: bool) -> None:
    if as_json:
        answer_json(_document(path, head))
    else:
        answer(f"{_told(head)}; the log begins at {head.index + 1}")
