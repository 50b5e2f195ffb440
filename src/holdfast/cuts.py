"""What recovery and repair take out of a log or a bar store is kept beside it, in .cut files.

Nothing here reads them again, and nothing ever deletes them: that is for a person to do.
"""

from holdfast.disk import Disk


def keep_aside(disk: Disk, name: str, offset: int, data: bytes) -> str:
    """Save bytes that are about to be cut from a file; return the file that holds them."""
    for attempt in range(1, 1000):
        kept = f"{name}.{offset}{f'-{attempt}' if attempt > 1 else ''}.cut"
        try:
            disk.create(kept, data)
        except FileExistsError:
            file = disk.open(kept)
            try:
                same = file.read_at(0, len(data) + 1) == data
            finally:
                file.close()
            if not same:
                continue
        return kept
    raise FileExistsError(f"{name}: 999 cuts at byte {offset} are kept; move some away")


def set_aside(disk: Disk, name: str) -> None:
    """Take a whole file out of a log, which keeps its files in the directory or one below."""
    base = name.rpartition("/")[2]
    names, free, attempt = disk.list(), f"{base}.cut", 1
    while free in names:
        attempt += 1
        free = f"{base}-{attempt}.cut"
    disk.rename(name, free)
