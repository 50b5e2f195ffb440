"""Space that an owner keeps for the way out of a full disk.

Opening, recovery, trim, repair and write-back free space or make a store usable again, but need a
little space themselves.  So the directory of a store has a file that takes space and holds nothing.
An owner removes it when the disk or the quota is full, and creates it again before anything else
can use up the space.  Appends never get it.
"""

import os
from contextlib import closing, suppress

from holdfast.posix import FULL, Descriptor, Posix

RESERVE = "holdfast.reserve"
_LEAST = 4096  # bytes; less would not help


def give_up(posix: Posix, root: int) -> bool:
    """Remove the reserve if less space can be had than the reserve should have.

    Return whether it is less: then `keep` the reserve again after what needs the space.
    """
    is_full = posix.reserve_size > 0 and not _has_room(posix, root)
    if is_full:
        with suppress(FileNotFoundError):
            posix.unlink(RESERVE, root)
    return is_full


def keep(posix: Posix, root: int) -> None:
    """Create the reserve, as large as the disk allows.  It need not survive a power cut."""
    if not posix.reserve_size:
        return
    try:
        file = Descriptor(posix, posix.open(RESERVE, os.O_CREAT | os.O_RDWR, root))
    except OSError as error:
        if error.errno not in FULL:
            raise
        return  # there is not even space for a name
    with closing(file):
        size = posix.size(file.fd)
        missing = min(posix.reserve_size - size, posix.free_bytes(root) // _LEAST * _LEAST)
        while missing >= _LEAST and not _grows(posix, file.fd, size + missing):
            missing //= 2


def _has_room(posix: Posix, root: int) -> bool:
    """Return whether as much space as the reserve has can be had: of the disk, and of a quota.

    No call reports every kind of quota, so the reserve is made twice as large for a moment.
    """
    if posix.free_bytes(root) < posix.reserve_size:
        return False
    try:
        file = Descriptor(posix, posix.open(RESERVE, os.O_RDWR, root))
    except FileNotFoundError:
        return True  # there is nothing to give up
    with closing(file):
        size = posix.size(file.fd)
        if size > posix.reserve_size:  # a crash came just here
            size = posix.reserve_size
            posix.resize(file.fd, size)
        has_room = _grows(posix, file.fd, size + posix.reserve_size)
        posix.resize(file.fd, size)
    return has_room


def _grows(posix: Posix, fd: int, size: int) -> bool:
    """Grow a file; return False if there is no space for that."""
    try:
        posix.resize(fd, size)
    except OSError as error:
        if error.errno not in FULL:
            raise
        return False
    return True
