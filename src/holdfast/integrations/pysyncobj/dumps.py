"""PySyncObj's dump: the state in one file, in place of the entries that the journal has let go of.

PySyncObj writes it beside, and renames it, without a sync: a power cut can leave a torn file under
the name of the whole one that was there before.  And when it starts and finds that journal and
dump do not begin alike, because it died after the dump and before the cut, it throws away the
journal, with entries that it has acknowledged.

Promised here: a dump has its name only when it is durable; a journal that goes on where a dump ends
is kept; a dump that is damaged, or older than the journal, is refused.
"""

import gzip
import os
from typing import Any

from holdfast.errors import CorruptError
from holdfast.integrations.pysyncobj.journal import RaftJournal
from holdfast.posix import Posix


def replace_durably(path: str, new: str, posix: Posix | None = None) -> None:
    """os.rename of a file, both contents and name durable when it returns."""
    posix = posix or Posix()
    _sync_file(posix, path)
    posix.rename(path, new)
    posix.sync_directory(_directory_of(new))


def sync_dump(path: str, posix: Posix | None = None) -> None:
    """Make a dump durable that somebody else has renamed; one that is costs next to nothing."""
    posix = posix or Posix()
    _sync_file(posix, path)
    posix.sync_directory(_directory_of(path))


def refuse_if_missing(path: str, journal: RaftJournal) -> None:
    """CorruptError if what the journal has let go of is nowhere else."""
    if len(journal) and journal[0][1] > 1 and not os.path.isfile(path):
        why = f"missing, and the journal begins with entry {journal[0][1]}"
        raise CorruptError(path, 0, f"{why}; bring it back, or remove this node from the cluster")


class JournalFirst:
    """PySyncObj's Serializer, which looks after the journal before a dump is used.

    The caller says by `is_starting` whether the dump is its own or comes from the leader.
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
    """The checksum is behind the data, and PySyncObj stops reading before it."""
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
