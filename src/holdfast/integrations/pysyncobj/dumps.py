"""PySyncObj's dump: the state in one file, in place of entries that were deleted from the journal.

PySyncObj writes a new file and renames it without a sync: a power cut can leave a torn file under
the name of the previous one.  If it crashes between the dump and the cut of the journal, the first
entries of the two differ at the next start.  Then it deletes the journal, with entries that it has
acknowledged.

This module promises: a dump gets its name only when it is durable; a journal that continues a dump
is kept; a damaged dump, or one older than the journal, is refused, and so is one without a journal.
"""

import gzip
import os
from typing import Any

from holdfast.errors import CorruptError
from holdfast.integrations.pysyncobj.journal import REJOIN, RaftJournal
from holdfast.posix import Posix


def replace_durably(path: str, new: str, posix: Posix | None = None) -> None:
    """Rename a file.  Contents and name are durable when this returns."""
    posix = posix or Posix()
    _sync_file(posix, path)
    posix.rename(path, new)
    posix.sync_directory(_directory_of(new))


def sync_dump(path: str, posix: Posix | None = None) -> None:
    """Make a dump durable that was renamed without a sync.  A durable dump costs little."""
    posix = posix or Posix()
    _sync_file(posix, path)
    posix.sync_directory(_directory_of(path))


def refuse_if_lost(path: str, directory: str, journal: RaftJournal) -> None:
    """Raise CorruptError if there is only one of the two, journal and dump, and there were both."""
    advice = REJOIN.format(directory)
    is_there = os.path.isfile(path)
    if len(journal) and journal[0][1] > 1 and not is_there:
        why = f"missing, and the journal begins with entry {journal[0][1]}; restore it, or else"
        raise CorruptError(path, 0, f"{why}: {advice}")
    if journal.is_new and is_there:
        raise CorruptError(directory, 0, f"empty, but there is a dump, {path}; {advice}")


class JournalFirst:
    """PySyncObj's Serializer, which checks a dump and cuts the journal before the dump is used.

    `is_starting` is true if the dump is the node's own, false if it comes from the leader.
    `is_gzip` unless the application has a serializer of its own.
    """

    def __init__(self, serializer: Any, journal: RaftJournal, path: str, *, is_gzip: bool) -> None:
        self._serializer, self._journal, self._path = serializer, journal, path
        self._is_gzip = is_gzip
        self.is_starting = True

    def deserialize(self) -> Any:
        if self._is_gzip:
            _check_gzip(self._path)
        data = self._serializer.deserialize()
        _, second, first, *_ = data
        if self.is_starting:
            if first[1] < self._journal[0][1]:
                begin = self._journal[0][1]
                why = f"it ends with entry {second[1]}, and the journal begins with {begin}"
                raise CorruptError(self._path, 0, why)
            self._journal.begin_with(tuple(first), tuple(second))
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._serializer, name)


def _check_gzip(path: str) -> None:
    """Read the whole file: its checksum is after the data, and PySyncObj stops before it."""
    with gzip.open(path) as file:
        while file.read(2**20):
            pass


def _sync_file(posix: Posix, path: str) -> None:
    fd = posix.open(path, os.O_RDONLY)
    try:
        posix.fdatasync(fd)
    finally:
        posix.close(fd)


def _directory_of(path: str) -> str:
    return os.path.dirname(os.path.abspath(path))
