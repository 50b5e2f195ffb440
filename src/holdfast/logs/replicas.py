"""Replicas of a log, and the index up to which each is durable.

Each replica is one side file, `replicas/NAME.json`, replaced whole.  Only its own follower writes
it, so a follower needs no lock on its source.  The owner only reads it.  One rule holds for every
call that removes entries: none removes what a registered replica has not acknowledged, or what it
has copied.  `trim` stops there; the others refuse.  To remove it anyway, forget the replica.

A position counts only if its file has the right length and checksum and the log has that entry.
While a replica's file is unsound, `trim` removes nothing.
"""

import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar

from holdfast import runtime
from holdfast.disk import Disk
from holdfast.errors import (
    ChangedError,
    CorruptError,
    DivergedError,
    HoldfastError,
    NotFoundError,
    OutOfRangeError,
)
from holdfast.logs.comparing import first_difference
from holdfast.logs.log import BATCH_SIZE_MAX, Log, LogReader
from holdfast.side_files import read_side_file, write_side_file

if TYPE_CHECKING:
    import pyarrow as pa

Result = TypeVar("Result")

_DIRECTORY = "replicas"
_ATTEMPTS_MAX = 100  # to read while the owner changes the log
_COMPARED_MAX, _COMPARED_SIZE_MAX = 1000, 2**20  # entries and bytes, at the start of a follower
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FIELDS = {"acknowledged": int, "updated_ms": int}
_ADVICE = "register it again, or forget it; until then nothing is trimmed"


@dataclass(frozen=True, slots=True)
class Replica:
    name: str
    acknowledged: int  # every entry up to this index is durable there; 0 for none
    updated_ms: int


class Replicas:
    """The replicas registered with the log in this directory.

    `last_index` returns the index of the log's last entry.  By default the log is opened for
    reading whenever a position is compared with it.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        last_index: Callable[[], int] | None = None,
        now_ms: Callable[[], int] = runtime.now_ms,
    ) -> None:
        self._disk, self._now_ms = disk, now_ms
        self._last_index = last_index or self._read_last_index

    def beside(self, log: LogReader) -> Self:
        """Return the same replicas; `log`, which is open, says where the log ends."""
        return type(self)(self._disk, last_index=log.refresh, now_ms=self._now_ms)

    def names(self) -> tuple[str, ...]:
        """Return the names of all replicas, sound or not."""
        try:
            names = self._disk.list(_DIRECTORY)
        except FileNotFoundError:
            return ()
        return tuple(name.removesuffix(".json") for name in names if name.endswith(".json"))

    def survey(self) -> tuple[tuple[Replica, ...], tuple[CorruptError, ...]]:
        """Return the replicas that are sound, and what is wrong with the others."""
        found, unsound = [], []
        for name in self.names():
            if not _NAME.fullmatch(name):
                why = "not a valid replica name; remove the file; until then nothing is trimmed"
                unsound.append(CorruptError(f"{_DIRECTORY}/{name}.json", 0, why))
                continue
            try:
                found.append(self._read(name))
            except NotFoundError:
                continue  # forgotten since we listed it
            except CorruptError as error:
                unsound.append(error)
        # Only now: a follower may have acknowledged what was appended a moment ago.
        last = self._last_index() if found else 0
        unsound += [_beyond(one, last) for one in found if one.acknowledged > last]
        return tuple(one for one in found if one.acknowledged <= last), tuple(unsound)

    def list(self) -> "list[Replica]":
        """Return all replicas.  CorruptError if one is unsound: a guess might lose data."""
        found, unsound = self.survey()
        for error in unsound:
            raise error
        return [*found]

    def get(self, name: str) -> Replica:
        """Return one replica.  CorruptError if its file is unsound, or beyond the log."""
        replica, last = self._read(name), self._last_index()
        if replica.acknowledged > last:
            raise _beyond(replica, last)
        return replica

    def register(self, name: str, acknowledged: int = 0) -> Replica:
        """Register a replica: `trim` keeps the entries after `acknowledged` from now on.

        A `trim` that has begun may still remove some.  This also replaces an unsound file.
        OutOfRangeError if the log ends before `acknowledged`.
        """
        _path(name)
        return self._write(Replica(name, acknowledged, self._now_ms()), self._last_index())

    def refuse_removal(self, held: tuple[int, int], kept: tuple[int, int]) -> None:
        """Raise HoldfastError if a replica could not follow a log that keeps only these entries.

        `held` and `kept` are first and last indexes.  A replica needs all that it has not
        acknowledged, and the log must not lose what a replica has.
        """
        first = max(held[0], min(kept[0], held[1] + 1))
        last = max(held[0] - 1, min(kept[1], held[1]))
        for replica in self.list():
            at = replica.acknowledged
            if held[0] <= at + 1 < first or last < at <= held[1]:
                raise HoldfastError(
                    f"replica {replica.name} has acknowledged {at} and could not follow a log of "
                    f"{first}..{last}; nothing was removed; let the replica catch up, or forget it "
                    "(`holdfast log replicas PATH forget NAME`)"
                )

    def acknowledge(self, name: str, index: int) -> Replica:
        """Record that all entries up to `index` are durable at a replica.  Durable on return.

        OutOfRangeError if the log ends before `index`.
        """
        replica, last = self._read(name), self._last_index()
        known = replica.acknowledged
        if known > last:
            raise _beyond(replica, last)
        if index < known:
            raise ValueError(f"replica {name} has already acknowledged {known}, not only {index}")
        return self._write(Replica(name, index, self._now_ms()), last)

    def forget(self, name: str) -> None:
        """Remove a replica, also an unsound one: it no longer holds `trim` back."""
        path = _path(name)
        try:
            self._disk.remove(path)
        except FileNotFoundError:
            raise _not_registered(name) from None

    def _read(self, name: str) -> Replica:
        path = _path(name)
        value = read_side_file(self._disk, path, _FIELDS, _ADVICE)
        if value is None:
            raise _not_registered(name)
        replica = Replica(name, **value)
        if replica.acknowledged < 0:
            why = f"a position of {replica.acknowledged}; {_ADVICE}"
            raise CorruptError(path, 0, why)
        return replica

    def _write(self, replica: Replica, last: int) -> Replica:
        path, index = _path(replica.name), replica.acknowledged
        if index < 0:
            raise ValueError(f"acknowledged index {index} is negative")
        if index > last:
            raise OutOfRangeError(
                f"replica {replica.name} cannot have acknowledged {index}: the log ends at {last}; "
                f"pass an index from 0 to {last}"
            )
        value = {"acknowledged": index, "updated_ms": replica.updated_ms}
        write_side_file(self._disk, path, value)
        return replica

    def _read_last_index(self) -> int:
        from holdfast.logs.opening import format_of  # it knows the formats, which import this

        with closing(format_of(self._disk).open_reader(self._disk)) as reader:
            return reader.last_index


def _path(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a valid replica name; use up to 64 letters, digits, '.', '_', '-'"
        )
    return f"{_DIRECTORY}/{name}.json"


def _not_registered(name: str) -> NotFoundError:
    return NotFoundError(f"no replica {name!r} is registered")


def _beyond(replica: Replica, last: int) -> CorruptError:
    why = f"has acknowledged {replica.acknowledged}, but the log ends at {last}; {_ADVICE}"
    return CorruptError(_path(replica.name), 0, f"replica {replica.name} {why}")


class Follower:
    """Copies one log into another, batch by batch, and acknowledges what is durable there.

    After a crash on either side a new Follower continues where the target ends.  The indexes of
    the target are those of the source.

    A new follower compares the last entries of both.  From then on each step checks whether the
    source still has the last entry that was copied.  If another has taken its place, the step
    compares all entries that both have.  DivergedError if the source has rewritten any of them.
    """

    def __init__(self, source: LogReader, target: Log, replicas: Replicas, name: str) -> None:
        self._source, self._target, self._name = source, target, name
        self._replicas = replicas = replicas.beside(source)
        self._copied: tuple[int, bytes] | None = None  # the last entry, as the source had it
        source.refresh()
        self._retrying(self._compare_end)
        if name not in replicas.names():
            replicas.register(name, target.last_index)

    @property
    def lag(self) -> int:
        """Entries that the source had at the last refresh and the target lacks."""
        return self._source.last_index - self._target.last_index

    def step(self, size_max: int = BATCH_SIZE_MAX) -> int:
        """Copy and acknowledge one batch of about `size_max` bytes; return how many entries.

        DivergedError if the source has rewritten an entry that was copied.  OutOfRangeError if it
        has removed one that was not.
        """
        self._source.refresh()
        batch = self._retrying(lambda: self._next_batch(size_max))
        if batch is None:
            return 0
        start, payloads = batch
        last = self._target.append(payloads)
        try:
            self._replicas.acknowledge(self._name, last)
        except (OutOfRangeError, CorruptError):  # beyond the end of the source: rolled back?
            self._source.refresh()
            self._retrying(self._compare)
            raise
        return last + 1 - start

    def _retrying(self, read: Callable[[], Result]) -> Result:
        """Read from the source, and again if the owner has removed what was being read."""
        for _ in range(_ATTEMPTS_MAX):
            try:
                return read()
            except ChangedError:
                self._source.refresh()
        return read()

    def _next_batch(self, size_max: int) -> "tuple[int, pa.Array] | None":
        """Return what comes next: its first index, and its payloads."""
        self._compare()
        start, first = self._target.last_index + 1, self._source.first_index
        if start > self._source.last_index:
            return None
        if start < first:
            raise OutOfRangeError(
                f"the target ends at {start - 1}, but the source now begins at {first}: "
                "start a new target there"
            )
        batch = next(self._source.scan(start)).column("payload")
        count = max(1, len(batch) * size_max // max(batch.nbytes, size_max))
        last = start + count - 1
        self._copied = last, self._source.fingerprint(last)
        return start, batch.slice(0, count)

    def _compare(self) -> None:
        """Raise DivergedError if the source has other entries than were copied."""
        last = self._target.last_index
        self._refuse_longer(last)
        if not self._source.first_index <= last or self._copied is None:
            return  # nothing was copied yet, or the source has trimmed it
        found = last, self._source.fingerprint(last)
        if found != self._copied:
            self._compare_from(self._source.first_index)
            self._copied = found

    def _compare_end(self) -> None:
        """Compare the last entries of source and target, as many as do not take long."""
        last, size = self._target.last_index, 0
        self._refuse_longer(last)
        first = max(self._source.first_index, self._target.first_index)
        if first > last:
            return
        start = last
        while start > first and last - start < _COMPARED_MAX and size < _COMPARED_SIZE_MAX:
            size += len(self._target.read(start))
            start -= 1
        self._compare_from(start)
        self._copied = last, self._source.fingerprint(last)

    def _refuse_longer(self, last: int) -> None:
        if self._target.first_index <= last > self._source.last_index:
            raise DivergedError(
                f"diverged: the target ends at {last}, the source at {self._source.last_index}; "
                "the source has lost entries or is another log"
            )

    def _compare_from(self, start: int) -> None:
        start, last = max(start, self._target.first_index), self._target.last_index
        found = first_difference(self._source, self._target, start, last + 1)
        if found is not None:
            raise DivergedError(f"diverged: entry {found} differs between source and target")
