"""A new journal for a node that lost its own.  The page: docs/integrations/pysyncobj.md

The node that starts with it does not vote until it has fetched what it lost.  Nothing is deleted:
what is left of the journal and of the dump is renamed.  While `DIRECTORY.rejoin` exists, this is
not finished, and the node does not start.
"""

import os
from dataclasses import dataclass

from holdfast.disk import OsDisk
from holdfast.errors import HoldfastError, NotFoundError, UnsupportedError
from holdfast.logs import raft_wal
from holdfast.logs.raft_wal.meta_store import RaftOwnership
from holdfast.logs.raft_wal.repair import REPAIRED
from holdfast.posix import Posix


@dataclass(frozen=True, slots=True)
class RejoinPlan:
    """What becomes of a node's files: which are renamed, and to what."""

    directory: str
    renames: tuple[tuple[str, str], ...]

    @property
    def new(self) -> str:
        return _new(self.directory)

    @property
    def steps(self) -> list[str]:
        steps = [f"rename {old} to {new}" for old, new in self.renames]
        return [*steps, f"create {self.directory}: an empty journal of a node without a vote"]


def plan_rejoin(directory: str | os.PathLike[str], dump: str | None = None) -> RejoinPlan:
    """Return what `apply_rejoin` would do.  Nothing is changed.

    `dump` is the node's conf.fullDumpFile; by default the name of the directory and ".dump".
    """
    directory = os.path.abspath(directory)
    if not os.path.isdir(os.path.dirname(directory)):
        raise NotFoundError(f"there is no directory {os.path.dirname(directory)}")
    if os.path.isfile(directory):
        raise UnsupportedError(f"{directory} is a file; a durable journal is a directory")
    if os.path.isdir(directory) and not _is_journal(directory):
        raise UnsupportedError(f"{directory} is not a journal of PySyncObj; nothing was changed")
    dump = os.path.abspath(dump or f"{directory}.dump")
    number = 1
    while any(os.path.exists(f"{path}.lost-{number}") for path in (directory, dump)):
        number += 1
    found = (path for path in (dump, directory) if os.path.exists(path))
    return RejoinPlan(directory, tuple((path, f"{path}.lost-{number}") for path in found))


def apply_rejoin(plan: RejoinPlan, posix: Posix | None = None) -> None:
    """Replace the journal.  It is done, durably, when this returns; until then no node starts.

    LockedError if the node runs.
    """
    posix = posix or Posix()
    is_there = os.path.isdir(plan.directory)
    lock = RaftOwnership(OsDisk(plan.directory)) if is_there else None
    try:
        with raft_wal.RaftWal(OsDisk(plan.new), codec=raft_wal.RAFT_CODEC) as journal:
            journal.set(REPAIRED, b"lost: everything")
        for old, new in plan.renames:
            posix.rename(old, new)
            posix.sync_directory(os.path.dirname(new))
    finally:
        if lock is not None:
            lock.release()
    posix.rename(plan.new, plan.directory)
    posix.sync_directory(os.path.dirname(plan.directory))


def refuse_if_unfinished(directory: str) -> None:
    """Raise HoldfastError if a new journal was prepared and not put in its place."""
    if os.path.exists(_new(directory)):
        again = f"run `holdfast pysyncobj rejoin {directory} --apply` again"
        raise HoldfastError(f"{_new(directory)} exists: a rejoin was interrupted; {again}")


def _is_journal(directory: str) -> bool:
    """Return whether all that the directory holds is a journal, or what is left of one."""
    rest = (name for name in os.listdir(directory) if name != "LOCK")
    return raft_wal.owns(OsDisk(directory)) or all(name.startswith("holdfast.") for name in rest)


def _new(directory: str) -> str:
    return f"{directory.rstrip('/')}.rejoin"
