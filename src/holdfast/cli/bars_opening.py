"""How commands open bar stores, and how a person names what is in them."""

import errno
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from holdfast.cli.console import remark
from holdfast.errors import CorruptError

if TYPE_CHECKING:
    from holdfast.bars import BarReader, BarStore
    from holdfast.disk import OsDisk

RootPath = Annotated[str, typer.Argument(metavar="ROOT", help="The store's directory.")]
BucketName = Annotated[
    str,
    typer.Argument(metavar="BUCKET", help="SYMBOL/TIMEFRAME/GROUP, like AAPL/1Min/OHLCV."),
]
BucketNames = Annotated[
    str,
    typer.Argument(
        metavar="BUCKETS",
        help="SYMBOLS/TIMEFRAME/GROUP, like AAPL,MSFT/1Min/OHLCV; '*' for all symbols.",
    ),
]
StartOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="The first moment, like 2026-11-16T09:30; UTC if no zone."),
]
EndOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="The last moment, included; of a date, all of that day."),
]
_DATE_SIZE = len("2026-11-16")


class Buckets(NamedTuple):
    """What a person named: symbols, perhaps "*", and which of their buckets."""

    symbols: str
    timeframe: str
    attributes: str


def parse_buckets(text: str) -> Buckets:
    """The parts of a name like AAPL,MSFT/1Min/OHLCV."""
    from holdfast.formats.bar_time import parse_timeframe

    parts = text.split("/")
    if len(parts) != 3 or not all(parts):
        raise ValueError(f"{text!r} is no bucket: write SYMBOL/TIMEFRAME/GROUP, AAPL/1Min/OHLCV")
    parse_timeframe(parts[1])
    return Buckets(*parts)


def parse_start(text: str | None) -> int | None:
    """Nanoseconds since 1970 of a moment as a person writes it."""
    from holdfast.cli.bars_times import parse_time

    return None if text is None else parse_time(text)


def parse_end(text: str | None) -> int | None:
    """The same; a date alone is its last nanosecond."""
    from holdfast.cli.bars_times import DAY_NS, parse_time

    if text is None:
        return None
    is_date = len(text) == _DATE_SIZE and "-" in text
    return parse_time(text) + (DAY_NS - 1 if is_date else 0)


def find_root(path: str, *, to_write: bool = False) -> "OsDisk":
    """The directory of a store, or an error that says what to do."""
    from holdfast.disk import OsDisk

    disk = OsDisk(path)
    if not Path(disk.path).exists():
        if to_write:
            return disk
        advice = f"no such directory; `holdfast bars write {path} BUCKET` makes a store there"
        raise FileNotFoundError(errno.ENOENT, advice, path)
    names = disk.list()
    is_root = any(name == "category_name" or name.startswith("WALFile.") for name in names)
    if not is_root and (names or (to_write and disk.directories())):
        other = next(iter([*names, *disk.directories()]))
        raise ValueError(f"{path} is no store of bars: it holds {other!r}; name another directory")
    return disk


@contextmanager
def guest_of(path: str) -> "Iterator[BarReader]":
    """Read a store beside its owner, if it has one."""
    from holdfast.bars import BarReader

    with closing(BarReader(find_root(path))) as guest:
        yield guest


@contextmanager
def owner_of(path: str, *, as_json: bool, is_new: bool = False) -> "Iterator[BarStore]":
    """Own a store, its logs replayed; what recovery mended is told, and damage is refused.

    With `is_new` it may be one that is not there yet.
    """
    from holdfast.bars import BarStore

    with closing(BarStore(find_root(path, to_write=is_new))) as store:
        tell_mended(store, path, as_json=as_json)
        if store.damage:
            first = store.damage[0]
            raise CorruptError(first.file, first.offset, first.why)
        yield store


def tell_mended(store: "BarStore", path: str, *, as_json: bool) -> None:
    for mended in store.mended:
        remark(f"recovered {path}: {mended}", as_json=as_json)


def tell_damage(guest: "BarReader", *, as_json: bool) -> None:
    """What was shown is not all there was: exit with 2."""
    for damage in guest.damage:
        remark(f"damaged: {damage}", as_json=as_json)
    if guest.damage:
        raise typer.Exit(2)
