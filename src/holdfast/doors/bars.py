"""Create, open or read a bar store by its path.  The page: docs/bars.md"""

from functools import partial
from pathlib import Path as LocalPath
from typing import TypedDict, Unpack

from holdfast.bars import staging
from holdfast.bars.catalog import check_root, has_root, split_path
from holdfast.bars.files import WalContent, YearFileReport, read_wal, read_year_file
from holdfast.bars.reader import BarReader
from holdfast.bars.writer import BarStore
from holdfast.disk import Lock, OsDisk, Path, local_path
from holdfast.errors import ExistsError

__all__ = [
    "BarOptions",
    "WalContent",
    "YearFileReport",
    "create_bars",
    "find_bars",
    "open_bars",
    "read_bar_file",
    "read_bars",
]


class BarOptions(TypedDict, total=False):
    """The options of an owner; see BarStore."""

    wal_size_max: int
    pending_size_max: int
    flush_ms: float | None
    compress_ticks: bool | None
    salvage: bool
    open_files_max: int | None


def create_bars(path: Path, **options: Unpack[BarOptions]) -> BarStore:
    """Create a bar store in a new or empty directory, and own it.

    ExistsError if the directory holds a store or anything else.
    """
    disk = OsDisk(path)
    if has_root(disk):
        raise _exists(disk)
    return BarStore(disk, partial(_lock_new, disk), create=True, **options)


def _lock_new(disk: OsDisk) -> Lock:
    """Own a directory without a store: of many processes that create one, one succeeds."""
    lock = disk.lock()
    if disk.list() or disk.directories():  # another process has created one, and closed it
        lock.release()
        raise _exists(disk)
    return lock


def _exists(disk: OsDisk) -> ExistsError:
    return ExistsError(f"{disk} is a bar store already; open it with open_bars")


def open_bars(path: Path, *, create: bool = False, **options: Unpack[BarOptions]) -> BarStore:
    """Open a bar store as its owner, and recover what the previous owner left.

    A missing store raises NotFoundError; with `create` it is created.  A commit of staged rows
    that a crash has interrupted is finished or undone first.
    """
    disk = OsDisk(path)
    store = BarStore(disk, create=create, **options)
    try:
        if not store.damage:
            staging.resume(store, disk)
    except BaseException:
        store.close()
        raise
    return store


def read_bars(path: Path) -> BarReader:
    """Read a bar store beside its owner, if it has one: no lock, no change.

    NotFoundError if there is none.
    """
    return BarReader(OsDisk(path))


def find_bars(path: Path) -> None:
    """Raise NotFoundError unless the directory holds a bar store.  Nothing is opened."""
    check_root(OsDisk(path))


def read_bar_file(path: Path) -> WalContent | YearFileReport:
    """Decode one WAL file, message by message, or one year file, in any directory.

    CorruptError if it is neither.
    """
    place = LocalPath(local_path(path))
    if "walfile" in place.name.lower():
        return read_wal(OsDisk(place.parent), place.name)
    # The path of a file in a store must agree with its header: SYMBOL/TIMEFRAME/GROUP/YEAR.
    depth = 4 if split_path("/".join(place.parts[-4:])) is not None else 1
    root, name = LocalPath(*place.parts[:-depth]), "/".join(place.parts[-depth:])
    return read_year_file(OsDisk(root), name)
