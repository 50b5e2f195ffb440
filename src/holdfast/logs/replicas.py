"""Replicas of a log: who they are, and up to where each is durable.

Each replica is one small file, `replicas/NAME.json`, replaced whole.  Only its own follower writes
it, so followers need no lock on the log they follow, and its owner only reads it: compaction
removes nothing that a registered replica has not acknowledged.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from holdfast import runtime
from holdfast.disk import Disk
from holdfast.errors import CorruptError, HoldfastError, OutOfRangeError
from holdfast.logs.log import BATCH_SIZE_MAX, Guest, Log

_DIRECTORY = "replicas"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Replica:
    name: str
    acknowledged: int  # every entry up to this index is durable there; 0 for none
    updated_ms: int


class Replicas:
    """The replicas registered with the log in this directory."""

    def __init__(self, disk: Disk, *, now_ms: Callable[[], int] = runtime.now_ms) -> None:
        self._disk, self._now_ms = disk, now_ms

    def list(self) -> "list[Replica]":
        try:
            names = self._disk.list(_DIRECTORY)
        except FileNotFoundError:
            return []
        return [self.get(name.removesuffix(".json")) for name in names if name.endswith(".json")]

    def get(self, name: str) -> Replica:
        """CorruptError if its file cannot be understood: a guess could let compaction lose data."""
        path = self._path(name)
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            raise HoldfastError(f"no replica {name!r} is registered") from None
        try:
            value = json.loads(file.read_at(0, 4096))
            return Replica(name, int(value["acknowledged"]), int(value["updated_ms"]))
        except (ValueError, KeyError, TypeError) as error:
            why = f"not a replica's state ({error}); register it again"
            raise CorruptError(path, 0, why) from error
        finally:
            file.close()

    def register(self, name: str, acknowledged: int = 0) -> Replica:
        """From now on compaction keeps what comes after `acknowledged`."""
        return self._write(Replica(name, acknowledged, self._now_ms()))

    def acknowledge(self, name: str, index: int) -> Replica:
        """Say that all entries up to `index` are durable at this replica.  Durable on return."""
        known = self.get(name).acknowledged
        if index < known:
            raise ValueError(f"replica {name} has already acknowledged {known}, not only {index}")
        return self._write(Replica(name, index, self._now_ms()))

    def forget(self, name: str) -> None:
        """It no longer holds compaction back."""
        self.get(name)
        self._disk.remove(self._path(name))

    def _write(self, replica: Replica) -> Replica:
        if replica.acknowledged < 0:
            raise ValueError(f"acknowledged index {replica.acknowledged} is negative")
        value = {"acknowledged": replica.acknowledged, "updated_ms": replica.updated_ms}
        self._disk.create(self._path(replica.name), json.dumps(value).encode(), replace=True)
        return replica

    @staticmethod
    def _path(name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is no replica name: letters, digits, '.', '_', '-'; up to 64"
            )
        return f"{_DIRECTORY}/{name}.json"


class Follower:
    """Copies one log into another, batch by batch, and acknowledges what is durable there.

    Each step may be the last: after a kill on either side a new Follower goes on where the target
    ends.  The target's indexes are the source's.
    """

    def __init__(self, source: Guest, target: Log, replicas: Replicas, name: str) -> None:
        self._source, self._target, self._replicas, self._name = source, target, replicas, name
        if not any(replica.name == name for replica in replicas.list()):
            replicas.register(name, target.last_index)
        source.refresh()
        self._refuse_if_diverged()

    @property
    def lag(self) -> int:
        """Entries that the source had at the last look and the target has not."""
        return self._source.last_index - self._target.last_index

    def step(self, size_max: int = BATCH_SIZE_MAX) -> int:
        """Copy and acknowledge one batch of about `size_max` bytes; return how many entries."""
        self._source.refresh()
        start = self._target.last_index + 1
        if start > self._source.last_index:
            return 0
        if start < self._source.first_index:
            raise OutOfRangeError(
                f"the target ends at {start - 1}, but the source now begins at "
                f"{self._source.first_index}: start a new target there"
            )
        batch = next(self._source.scan(start)).column("payload")
        count = max(1, len(batch) * size_max // max(batch.nbytes, size_max))
        last = self._target.append(batch.slice(0, count))
        self._replicas.acknowledge(self._name, last)
        return last + 1 - start

    def _refuse_if_diverged(self) -> None:
        last = self._target.last_index
        if last < self._target.first_index:
            return
        if last > self._source.last_index:
            raise HoldfastError(
                f"diverged: the target ends at {last}, the source at {self._source.last_index}; "
                "the source has lost entries or is another log"
            )
        if last >= self._source.first_index and self._source.read(last) != self._target.read(last):
            raise HoldfastError(f"diverged: entry {last} differs between source and target")
