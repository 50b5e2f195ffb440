"""Every error that holdfast raises: one class for each thing that a caller can do about it.

    HoldfastError
      NotFoundError     no store at this path                         -> check it, or create one
      ExistsError       something is at this path already             -> open it, or choose another
      ClosedError       the store or reader was closed                -> open it again
      LockedError       another process owns the store                -> stop it, or only read
      NotOwnerError     a fork of the owner, or its lock was removed  -> reopen, or only read
      FencedError       another writer has taken over                 -> close; never retry
      DivergedError     history was rewritten below a position        -> start again from a copy
      LeaseLostError    a job or lease was ended or has expired       -> begin it again
      CorruptError      durable bytes are not valid in their format   -> verify, then repair
      PoisonedError     an earlier write or sync failed               -> close and reopen
      DiskFullError     no space left for this write                  -> free space, then reopen
      OutOfRangeError   no such index in this log                     -> ask first_index, last_index
      ChangedError      the store was changed while it was read       -> refresh, then read again
      UnavailableError  the object store does not answer              -> wait, then reopen
      UnsupportedError  an unknown version, or not Linux              -> use the right reader
      MissingError      the machine lacks a program or an extra       -> install what it names

An invalid argument raises ValueError or TypeError.  Other errors of the operating system stay
OSError.
"""


class HoldfastError(Exception):
    """Base class of all errors in this module."""


class NotFoundError(HoldfastError, FileNotFoundError):
    """There is no store, entry of a catalog, or snapshot of that name."""


class ExistsError(HoldfastError, FileExistsError):
    """A store cannot be created: the directory or bucket holds something already."""


class ClosedError(HoldfastError):
    """The store, reader or iterator was closed.  Nothing was read or written."""


class CorruptError(HoldfastError):
    """Durable bytes are not valid in their format."""

    def __init__(self, where: str, offset: int, why: str) -> None:
        super().__init__(f"{where} at byte {offset}: {why}")
        self.where, self.offset, self.why = where, offset, why

    def __reduce__(self) -> tuple[type, tuple[str, int, str]]:
        return type(self), (self.where, self.offset, self.why)  # it crosses processes in Spark


class UnsupportedError(HoldfastError):
    """The bytes are valid, but this release does not read that kind; or this is not Linux."""


class LockedError(HoldfastError):
    """Another process owns the directory."""

    holder = ""  # its process id, if known


class NotOwnerError(HoldfastError):
    """This process does not own the store: it is a fork of the owner, or the lock was removed."""


class FencedError(HoldfastError):
    """Another writer has taken over."""


class DivergedError(HoldfastError):
    """The history before a recorded position was rewritten, so that position means nothing now."""


class LeaseLostError(HoldfastError):
    """A job or a lease that the store no longer knows.  What the job wrote is garbage."""


class PoisonedError(HoldfastError):
    """An earlier write or sync failed: what the disk holds is unknown until the store is reopened.

    Entries that were acknowledged before can still be read.
    """


class DiskFullError(HoldfastError, OSError):
    """The disk or the quota is full.  What was acknowledged before is not affected."""


class OutOfRangeError(HoldfastError, IndexError):
    """The log has no entry of that index."""


class ChangedError(HoldfastError):
    """The state that this read started from no longer exists."""


class UnavailableError(HoldfastError):
    """The object store or the record store did not answer: a change may have been made."""


class MissingError(HoldfastError):
    """A program, a server or an optional package is not installed."""
