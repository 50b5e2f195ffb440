"""Input that may never end, as it comes: nobody's entry is held back for want of another."""

import os
import select
import sys
from collections.abc import Iterator
from pathlib import Path

_READ_SIZE = 2**20
_WAIT_SECONDS = 0.2  # a Ctrl-C just before a wait does not end it, so no wait is long


def read_chunks(file: Path | None, separator: bytes | None) -> Iterator[list[bytes]]:
    """What can be read at once, cut at `separator`; an empty list before we would have to wait."""
    if file is None:
        yield from _read(sys.stdin.fileno(), separator)
    else:
        with file.open("rb", buffering=0) as opened:
            yield from _read(opened.fileno(), separator)


def _read(fd: int, separator: bytes | None) -> Iterator[list[bytes]]:
    pending: list[bytes] = []  # the pieces of an entry that has not ended yet
    while True:
        if not _is_ready(fd, 0):
            yield []
            while not _is_ready(fd, _WAIT_SECONDS):
                pass
        data = os.read(fd, _READ_SIZE)
        if not data:
            break
        *ended, rest = data.split(separator) if separator else [data]
        if ended:
            ended[0] = b"".join([*pending, ended[0]])
            pending = []
            yield ended
        if rest:
            pending.append(rest)
    if pending or not separator:
        yield [b"".join(pending)]


def _is_ready(fd: int, seconds: float) -> bool:
    return bool(select.select([fd], [], [], seconds)[0])
