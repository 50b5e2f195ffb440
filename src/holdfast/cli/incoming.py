"""Read input without an end, in batches that end when no more of it is waiting."""

import os
import select
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import TypeVar

Taken = TypeVar("Taken")
BATCH_SIZE_MAX = 2**20
_READ_SIZE = 2**20
_WAIT_SECONDS = 0.2  # a Ctrl-C just before a wait does not end it, so no wait is long


def read_chunks(file: Path | None, separator: bytes | None) -> Iterator[list[bytes]]:
    """Yield what can be read at once, split at `separator`; an empty list before each wait."""
    if file is None:
        yield from _read(sys.stdin.fileno(), separator)
    else:
        with file.open("rb", buffering=0) as opened:
            yield from _read(opened.fileno(), separator)


def peek_chunks(file: Path | None, separator: bytes | None) -> Iterator[list[bytes]]:
    """Yield what `read_chunks` will yield, if it can be read twice: not from a pipe."""
    if file is not None:
        if file.is_file():
            yield from read_chunks(file, separator)
        return
    fd = sys.stdin.fileno()
    if stat.S_ISREG(os.fstat(fd).st_mode):
        position = os.lseek(fd, 0, os.SEEK_CUR)
        try:
            yield from _read(fd, separator)
        finally:
            os.lseek(fd, position, os.SEEK_SET)


def in_batches(
    chunks: Iterable[list[bytes]],
    take: Callable[[int, bytes], Taken | None],
    count_max: int,
    size_max: float = BATCH_SIZE_MAX,
) -> Iterator[list[Taken]]:
    """Yield what `take` makes of entries, which are numbered from 1; None skips one.

    A batch ends when it is full, or when no more input is waiting: see `read_chunks`.
    """
    batch, size, numbers = list[Taken](), 0, count(1)
    for chunk in chunks:
        for entry in chunk:
            if (taken := take(next(numbers), entry)) is None:
                continue
            batch.append(taken)
            size += len(entry)
            if len(batch) >= count_max or size >= size_max:
                yield batch
                batch, size = [], 0
        if batch and not chunk:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


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
