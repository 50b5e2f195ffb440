"""Keep what recovery and repair take out of a log or a bar store, in .cut files beside it.

Holdfast never reads or deletes .cut files.  Delete them by hand when they are not needed.
"""

from contextlib import closing, suppress

from holdfast.disk import Disk
from holdfast.errors import DiskFullError


def keep_aside(disk: Disk, name: str, offset: int, data: bytes) -> str:
    """Save bytes that are about to be cut from a file; return the name of the .cut file.

    DiskFullError if they do not fit: then nothing must be cut.
    """
    return keep_pieces(disk, name, {offset: data})[0]


def keep_pieces(disk: Disk, name: str, pieces: dict[int, bytes]) -> list[str]:
    """Save several pieces of a file, by their offsets: all of them or none.  See keep_aside."""
    kept: list[str] = []
    created: list[str] = []
    try:
        for offset, data in pieces.items():
            kept.append(_keep(disk, name, offset, data, created))
    except DiskFullError as error:
        with suppress(OSError):  # report the first error
            disk.remove(*created)
        size = sum(map(len, pieces.values()))
        need = f"{size:,} bytes are needed to keep what a crash has torn, and nothing was cut"
        raise DiskFullError(
            error.errno, f"{need}; free so much space, then reopen", name
        ) from error
    return kept


def _keep(disk: Disk, name: str, offset: int, data: bytes, created: list[str]) -> str:
    for attempt in range(1, 1000):
        kept = f"{name}.{offset}{f'-{attempt}' if attempt > 1 else ''}.cut"
        try:
            disk.create(kept, data)
        except FileExistsError:
            with closing(disk.open(kept)) as file:
                same = file.read_at(0, len(data) + 1) == data
            if not same:
                continue
        else:
            created.append(kept)
        return kept
    raise FileExistsError(f"{name}: 999 cuts at byte {offset} are kept; move some away")


def set_aside(disk: Disk, name: str) -> None:
    """Rename a whole file of a log to a .cut file in the log's directory."""
    base = name.rpartition("/")[2]
    names, free, attempt = disk.list(), f"{base}.cut", 1
    while free in names:
        attempt += 1
        free = f"{base}-{attempt}.cut"
    disk.rename(name, free)
