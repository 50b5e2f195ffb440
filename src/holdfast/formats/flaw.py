"""Damage as a value: a codec reports invalid bytes, and the store decides what that means."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Flaw:
    """Where bytes are not valid, and why."""

    offset: int
    why: str
