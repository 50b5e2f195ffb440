"""Identifiers and random numbers."""

import random
import threading
import uuid


def new_id() -> uuid.UUID:
    """Return a random identifier."""
    return uuid.uuid4()


def jitter(most: float) -> float:
    """Return a random number from 0 to `most`."""
    return random.uniform(0, most)


class Numbers:
    """Consecutive numbers for many threads.  No number is returned twice."""

    def __init__(self, first: int) -> None:
        self._next = first
        self._mutex = threading.Lock()

    def take(self, count: int) -> int:
        """Reserve `count` numbers and return the first."""
        with self._mutex:
            first, self._next = self._next, self._next + count
        return first
