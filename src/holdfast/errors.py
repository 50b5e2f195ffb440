"""Every error holdfast raises: one class for each thing a caller can do about it.

    HoldfastError
      CorruptError      durable bytes are not what their format says  -> verify, then repair
      UnsupportedError  well-formed, but not a version we read        -> use the right reader
      LockedError       another process owns the store                -> stop it, or open read-only
      NotOwnerError     a fork of the owner, or its lock was removed  -> reopen, or read only
      FencedError       another writer has taken over                 -> close; never retry
      JobLostError      the job was ended or has expired              -> begin it again
      PoisonedError     an earlier write or sync failed               -> close and reopen
      DiskFullError     no space left for this write                  -> free space, then reopen
      OutOfRangeError   no such index in this log                     -> ask first_index, last_index
      ChangedError      it was written to while it was read           -> read again
      UnavailableError  the object store does not answer              -> wait, then reopen
      MissingError      the machine lacks a part                      -> install what it names

Wrong arguments are ValueError.  What else the operating system refuses stays OSError.
"""


class HoldfastError(Exception):
    """Base of all of the above."""


class CorruptError(HoldfastError):
    """Durable bytes are not what their format says they are."""

    def __init__(self, where: str, offset: int, why: str) -> None:
        super().__init__(f"{where} at byte {offset}: {why}")
        self.where, self.offset, self.why = where, offset, why

    def __reduce__(self) -> tuple[type, tuple[str, int, str]]:
        return type(self), (self.where, self.offset, self.why)  # it crosses processes in Spark


class UnsupportedError(HoldfastError):
    """The bytes are sound, but of a version or kind that this release does not read."""


class LockedError(HoldfastError):
    """Another process owns the directory."""

    holder = ""  # its process id, as far as it is known


class NotOwnerError(HoldfastError):
    """This process does not own the store: it is a fork of the owner, or the lock was removed."""


class FencedError(HoldfastError):
    """Another writer has taken over."""


class JobLostError(HoldfastError):
    """A compaction or a bulk load that the manifest no longer knows: what it wrote is garbage."""


class PoisonedError(HoldfastError):
    """An earlier write or sync failed, so what the disk holds is unknown until it is reopened."""


class DiskFullError(HoldfastError, OSError):
    """The disk, or the quota, is full.  What was acknowledged before is untouched."""


class OutOfRangeError(HoldfastError, IndexError):
    """The log has no entry of that index."""


class ChangedError(HoldfastError):
    """The state that a read began with is not to be had any more."""


class UnavailableError(HoldfastError):
    """The object store, or the records' store, did not answer: a change may have been made."""


class MissingError(HoldfastError):
    """Something the machine must have is not there: Java, an extra, a server."""
