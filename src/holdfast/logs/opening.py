"""Find the format of a log by its files, and open it.  holdfast.doors does this for paths."""

from functools import partial
from typing import Any

from holdfast.disk import Disk, Lock
from holdfast.errors import ExistsError, NotFoundError, UnsupportedError
from holdfast.logs import file_log, raft_wal, shanghai, staging
from holdfast.logs.format import LogFormat
from holdfast.logs.log import Log

RAFT_BOLTDB = "raft.db"

_PACKAGES: tuple[LogFormat, ...] = (raft_wal, shanghai, file_log)
FORMATS = {package.name: package for package in _PACKAGES}


def format_of(disk: Disk) -> LogFormat:
    """Return the format of the log in this directory.  NotFoundError if there is none."""
    try:
        found = [format for format in FORMATS.values() if format.owns(disk)]
    except FileNotFoundError:
        raise NotFoundError(f"{disk} does not exist; create a log there first") from None
    if len(found) > 1:
        names = " and ".join(format.name for format in found)
        raise UnsupportedError(
            f"{disk} holds files of {names} logs; move the files of one of them elsewhere"
        )
    if found:
        return found[0]
    if RAFT_BOLTDB in disk.list():
        raise UnsupportedError(
            f"{disk} holds {RAFT_BOLTDB}, a raft-boltdb store, which holdfast does not read; "
            "migrate it to raft-wal with HashiCorp's tools, then open that"
        )
    raise NotFoundError(f"{disk} holds no log of a known format ({', '.join(FORMATS)})")


def format_named(name: str) -> LogFormat:
    """Return the format of that name, or raise ValueError."""
    if name not in FORMATS:
        raise ValueError(f"invalid log format {name!r}; expected one of {', '.join(FORMATS)}")
    return FORMATS[name]


def open_writer(disk: Disk, **options: Any) -> Log:
    """Own the log in this directory, and finish a staged commit that a crash interrupted."""
    log = format_of(disk).open_writer(disk, **options)
    try:
        staging.resume(log, disk)
    except BaseException:
        log.close()
        raise
    return log


def create(disk: Disk, format: LogFormat, **options: Any) -> Log:
    """Create an empty log in a new or empty directory, durably, and own it.

    Tasks may have staged rows there already.
    """
    _refuse_taken(disk)  # before anything is changed there
    return format.open_writer(disk, partial(_lock_new, disk), **options)


def _lock_new(disk: Disk) -> Lock:
    """Own a directory without a log: of many processes that create one, one succeeds."""
    lock = disk.lock()
    try:
        _refuse_taken(disk)  # again: another process may have created one, and closed it
    except BaseException:
        lock.release()
        raise
    return lock


def _refuse_taken(disk: Disk) -> None:
    try:
        present = [
            *disk.list(),
            *(name for name in disk.directories() if name != staging.DIRECTORY),
        ]
    except FileNotFoundError:
        return
    if present:
        raise ExistsError(f"{disk} is not empty: it holds {present[0]}")
