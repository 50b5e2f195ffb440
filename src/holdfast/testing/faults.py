"""How calls fail, and processes end, in a simulation.  The tests name these by sim_disk."""

from dataclasses import dataclass

# Which calls each kind of fault can hit.
FAILING = {
    "eio": ("open", "create", "write", "read", "rename", "unlink", "sync", "lock", "stat"),
    "enospc": ("create", "write"),
    "short write": ("write",),
    "sync eio": ("sync",),
}


class PowerLost(BaseException):
    """Not an Exception: no error handler in the code under test may swallow a power cut."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Fail the `at`-th system call (from 0), and with `for_ever` all later ones of its kind."""

    kind: str  # eio, enospc, short write, sync eio
    at: int
    for_ever: bool = False
