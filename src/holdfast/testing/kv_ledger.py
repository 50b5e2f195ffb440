"""What a kv store has promised, and whether a state of it keeps all promises.

Every value names its write.  So a state shows the write of each key.  A state is sound if it shows
no key older than a write that it must hold.  It must hold

    what was acknowledged, or shown by a reader, before the state was taken     nothing is lost
    every write of which it shows a row, with all its rows                      batches are whole
    what was acknowledged of writes that came before one that it shows          there are no gaps

The order of two writes through a writer is known: epochs rise, and so do numbers in an epoch.  Bulk
loads are ordered by the number of the batch.  The order of a write and a load is known if one ended
before the other started; else either may be newer.  Without `ordered_acks`, a write that ended
before a load may have a gap before it, and counts as written meanwhile.  A write that started after
another was acknowledged is newer, from any writer: a fenced writer acknowledges nothing.  A write
that was not acknowledged may be there or not; it counts from the time when a reader has seen it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from holdfast.testing.explorer import BrokenPromiseError

State = Mapping[bytes, bytes]
Rows = Mapping[bytes, bytes | None]


@dataclass(slots=True, eq=False)
class Write:
    """A batch of rows, and what is known of it."""

    number: int
    rows: Rows
    began: int
    is_load: bool = False
    is_ordered: bool = True  # it is acknowledged after all writes before it
    order: tuple[int, int] = (0, 0)  # epoch and seq; of a load 0 and the batch
    acknowledged: int | None = None  # when
    seen: int | None = None

    @property
    def settled(self) -> int | None:
        """Return since when it must be there."""
        times = [time for time in (self.acknowledged, self.seen) if time is not None]
        return min(times, default=None)

    def precedes(self, other: "Write") -> bool:
        """Return whether this write is older for certain."""
        if self.is_load == other.is_load:
            return self.order < other.order
        return self.is_ordered and self.ended_before(other)

    def ended_before(self, other: "Write") -> bool:
        return self.acknowledged is not None and self.acknowledged < other.began


class KvLedger:
    """All writes that were ever started."""

    def __init__(self, *, ordered_acks: bool = True) -> None:
        self._ordered_acks = ordered_acks
        self._writes: dict[int, Write] = {}
        self._by_key: dict[bytes, list[Write]] = {}
        self._time = 0

    @property
    def acknowledged(self) -> int:
        return sum(write.acknowledged is not None for write in self._writes.values())

    def now(self) -> int:
        """Return a time after all recorded events and before all later ones."""
        self._time += 1
        return self._time

    def begin(
        self, keys: Iterable[bytes], deleted: Iterable[bytes], filler: bytes, *, load: bool = False
    ) -> Write:
        """Record that a write starts; its values name it."""
        number = len(self._writes) + 1
        rows: dict[bytes, bytes | None] = dict.fromkeys(deleted)
        rows |= {key: b"%d:" % number + filler for key in keys}
        write = Write(number, rows, self.now(), load, load or self._ordered_acks)
        self._writes[number] = write
        for key in rows:
            self._by_key.setdefault(key, []).append(write)
        return write

    def drop(self, write: Write) -> None:
        """Record that a write was refused."""
        for key in write.rows:
            self._by_key[key].remove(write)

    def acknowledge(self, write: Write) -> None:
        if write.acknowledged is not None:
            return
        write.acknowledged = self.now()
        for other in self._writes.values():
            if other is write or other.is_load != write.is_load or other.acknowledged is None:
                continue
            if other.ended_before(write) and write.precedes(other):
                what = f"{_shown(write)} was taken after {_shown(other)}, which is newer"
                raise BrokenPromiseError("lost", what)
            if other.precedes(write) != (other.order[1] < write.order[1]):
                what = f"{_shown(write)} and {_shown(other)} have their numbers in another order"
                raise BrokenPromiseError("broken", what)

    def judge(
        self,
        state: State,
        who: str,
        *,
        since: int | None,
        loads_since: int | None = None,
        own: Iterable[Write] = (),
    ) -> None:
        """Raise BrokenPromiseError unless this state is possible.

        It was taken after all writes before `since` and all loads before `loads_since`; None if
        that is unknown.  The `own` writes of its reader must be there.
        """
        shown = [self._origin(key, value, who) for key, value in state.items()]
        last = max((write.order for write in shown if not write.is_load), default=(-1, -1))
        held = {write.number for write in (*shown, *own)}
        for key, writes in self._by_key.items():
            must = [
                write
                for write in writes
                if write.number in held
                or (_is_before(write, loads_since) if write.is_load else _is_before(write, since))
                or (write.acknowledged is not None and not write.is_load and write.order <= last)
            ]
            if must:
                self._judge_key(key, state.get(key), writes, must, who)

    def see(self, state: State) -> None:
        """Record that a reader has shown this: from now on it must be there."""
        now = self.now()
        for key, value in state.items():
            write = self._origin(key, value, "a reader")
            if write.seen is None:
                write.seen = now

    def judge_own(self, key: bytes, value: bytes | None, latest: Write, who: str) -> None:
        """Check that a writer reads its own write at once."""
        found = self._origin(key, value, who) if value is not None else None
        if found is not None and (found is latest or not found.precedes(latest)):
            return
        if found is None and _could_be_absent(key, self._by_key[key], [latest]):
            return
        raise BrokenPromiseError("hidden", f"{who} does not read its own {_shown(latest, key)}")

    def _judge_key(
        self,
        key: bytes,
        value: bytes | None,
        writes: Sequence[Write],
        must: Sequence[Write],
        who: str,
    ) -> None:
        if value is None:
            if _could_be_absent(key, writes, must):
                return
            raise BrokenPromiseError("lost", f"{who} shows nothing of {_shown(must[-1], key)}")
        found = self._origin(key, value, who)
        for write in must:
            if found is not write and found.precedes(write):
                what = f"{_shown(found, key)}, and not {_shown(write, key)}"
                raise BrokenPromiseError("lost", f"{who} shows {what}")

    def _origin(self, key: bytes, value: bytes, who: str) -> Write:
        number, colon, _ = value.partition(b":")
        write = self._writes.get(int(number)) if colon and number.isdigit() else None
        if write is not None and write.rows.get(key) == value:
            return write
        raise BrokenPromiseError("invented", f"{who} shows {value[:40]!r} of {key!r}")


def _is_before(write: Write, time: int | None) -> bool:
    settled = write.settled
    return time is not None and settled is not None and settled < time


def _could_be_absent(key: bytes, writes: Sequence[Write], must: Sequence[Write]) -> bool:
    """Return whether a deletion of the key may be the newest of these writes."""
    deletions = [write for write in writes if write.rows[key] is None]
    return any(
        all(deletion is write or not deletion.precedes(write) for write in must)
        for deletion in deletions
    )


def _shown(write: Write, key: bytes | None = None) -> str:
    kind = "load" if write.is_load else "write"
    fate = "acknowledged" if write.acknowledged is not None else "unconfirmed"
    return f"{kind} {write.number} {write.order}{f' of {key!r}' if key else ''} ({fate})"
