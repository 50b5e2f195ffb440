"""A bucket that repeats requests when its store does not answer, up to a time limit.

A create whose answer was lost may have succeeded.  When it is repeated, the store reports that the
name is taken, perhaps by this process.  The bytes decide: every object that Holdfast writes
contains a unique id, so an object with our bytes is our object.
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from holdfast.bucket.bucket import Bucket, Buffer, ObjectInfo
from holdfast.errors import UnavailableError

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to repeat requests; the clock, the sleep and the random numbers can be replaced."""

    budget_ms: int = 60_000
    first_pause_ms: int = 20
    pause_max_ms: int = 5_000
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    dice: Callable[[], float] = random.random

    def ask(self, attempt: Callable[[], Result]) -> Result:
        """Retry until there is an answer.  UnavailableError after the time limit."""
        stop = self.monotonic() + self.budget_ms / 1000
        for number in count():
            try:
                return attempt()
            except UnavailableError as error:
                pause = self._pause(number)
                if self.monotonic() + pause >= stop:
                    error.add_note(f"asked {number + 1} times in {self.budget_ms / 1000:g} s")
                    raise
                self.sleep(pause)
        raise AssertionError("count() does not end")

    def _pause(self, number: int) -> float:
        """Wait twice as long each time, at random in the upper half, so that clients spread out."""
        longest = min(self.first_pause_ms << min(number, 20), self.pause_max_ms)
        return longest * (1 + self.dice()) / 2000


class RetryingBucket:
    """See Bucket."""

    def __init__(self, bucket: Bucket, patience: Patience | None = None) -> None:
        self._bucket, self._patience = bucket, patience or Patience()

    def __repr__(self) -> str:
        return f"RetryingBucket({self._bucket!r})"

    def __str__(self) -> str:
        return str(self._bucket)

    def get(self, name: str) -> bytes:
        return self._patience.ask(lambda: self._bucket.get(name))

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        return self._patience.ask(lambda: self._bucket.get_range(name, start, stop))

    def put_if_absent(
        self, name: str, data: Buffer, *, metadata: Mapping[str, str] | None = None
    ) -> None:
        self._patience.ask(lambda: self._create(name, data, metadata))

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        return self._patience.ask(lambda: self._bucket.list(prefix, after))

    def delete(self, *names: str) -> None:
        self._patience.ask(lambda: self._bucket.delete(*names))

    def copy(self, source: str, destination: str) -> None:
        self._patience.ask(lambda: self._bucket.copy(source, destination))

    def _create(self, name: str, data: Buffer, metadata: Mapping[str, str] | None) -> None:
        try:
            self._bucket.put_if_absent(name, data, metadata=metadata)
        except FileExistsError:
            if not self._is_ours(name, data):
                raise

    def _is_ours(self, name: str, data: Buffer) -> bool:
        size = memoryview(data).nbytes
        try:
            found = self._bucket.get_range(name, 0, size + 1)
        except FileNotFoundError as error:
            # It was deleted in between, or two creates met and the store turned both away.
            raise UnavailableError(f"{name} is taken, but it cannot be read; try again") from error
        return bool(size) and found == data  # an empty object has no unique id
