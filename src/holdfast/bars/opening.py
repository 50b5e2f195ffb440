"""Opening a bar store by its path."""

from typing import Any, Literal, overload

from holdfast.bars import staging
from holdfast.bars.guest import BarReader
from holdfast.bars.store import BarStore
from holdfast.disk import OsDisk, Path


@overload
def open_bars(path: Path, *, read_only: Literal[True]) -> BarReader: ...
@overload
def open_bars(path: Path, *, read_only: Literal[False] = False, **options: Any) -> BarStore: ...
def open_bars(path: Path, *, read_only: bool = False, **options: Any) -> BarStore | BarReader:
    """Open a root as its owner, or with `read_only` as a guest.  A new one is made.

    `options` are those of BarStore.  A commit of staged rows that a crash has interrupted is
    finished or taken back first.
    """
    disk = OsDisk(path)
    if read_only:
        return BarReader(disk)
    store = BarStore(disk, **options)
    try:
        if not store.damage:
            staging.resume(store, disk)
    except BaseException:
        store.close()
        raise
    return store
