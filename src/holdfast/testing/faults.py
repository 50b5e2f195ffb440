"""How calls fail, and processes end, in a simulation.  The tests name these by sim_disk."""

import errno
from dataclasses import dataclass

# Which calls each kind of fault can hit.
FAILING = {
    "eio": ("open", "create", "write", "read", "rename", "unlink", "sync", "lock", "stat"),
    "enospc": ("create", "write"),
    "edquot": ("create", "write"),
    "short write": ("write",),
    "sync eio": ("sync",),
}
CODES = {"enospc": errno.ENOSPC, "edquot": errno.EDQUOT}  # of all others, EIO


class PowerLost(BaseException):
    """Not an Exception: no error handler in the code under test may swallow a power cut."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Fail the `at`-th system call (from 0), and with `always` all later ones of its kind."""

    kind: str  # eio, enospc, edquot, short write, sync eio
    at: int
    always: bool = False
