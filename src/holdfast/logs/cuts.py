"""What recovery and repair take out of a log is kept beside it, in .cut files.

Nothing here reads them again, and nothing ever deletes them: that is for a person to do.
"""

from holdfast.disk import Disk


def keep_aside(disk: Disk, name: str, offset: int, data: bytes) -> str:
    """Save bytes that are about to be cut from a segment; return the file that holds them."""
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
