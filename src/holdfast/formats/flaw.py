"""Damage as a value.  A codec says where bytes stop making sense; a log knows what that means."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Flaw:
    """Where bytes stop making sense, and why."""

    offset: int
    why: str
