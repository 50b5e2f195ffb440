"""The logs of an owner: the one that is written to, and full ones whose groups are on their way.

A log goes when everything in it is in the year files, oldest first: so what a newer log says of a
group that was carried over into it counts for as long as an older one could say otherwise.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from holdfast.bars.pending import Change
from holdfast.bars.wal import Wal, log_name
from holdfast.disk import Disk
from holdfast.formats import market_wal as fmt


class Logs:
    """One thread at a time."""

    def __init__(self, disk: Disk, pid: int, size_max: int, now_ns: Callable[[], int]) -> None:
        self._disk, self._pid, self._size_max, self._now_ns = disk, pid, size_max, now_ns
        self._logs: dict[str, Wal] = {}  # oldest first
        self._active: Wal | None = None  # the last of these, if it is not full
        self.last_ns = 0

    def next_ns(self) -> int:
        """The clock, but never twice the same and never backwards."""
        self.last_ns = max(self._now_ns(), self.last_ns + 1)
        return self.last_ns

    def active(self, carried: Callable[[], Iterable[bytes]]) -> Wal:
        """The log to write to.  A new one begins with what is carried over, one by one.

        Until all of it is there, nothing else is done; so no log goes that has it too.
        """
        if self._active is not None and self._active.size >= self._size_max:
            self._active = None
        if self._active is None:
            name = log_name(self.next_ns())
            wal = self._logs[name] = Wal.create(self._disk, name, self._pid)
            for messages in carried():
                wal.append(messages)
            self._active = wal
        return self._active

    def adopt(self, name: str, size: int) -> None:
        """A log of an earlier life, which is being replayed."""
        file = self._disk.open(name, writable=True)
        wal = self._logs[name] = Wal(self._disk, name, file, size)
        wal.mark_replaying(self._pid)

    def tell(self, changes: Sequence[Change]) -> None:
        """All these are done.  Oldest log first: else an old group could go over a newer one."""
        for name, wal in self._logs.items():
            infos = [
                fmt.encode_info(change.tgid, fmt.PRIMARY, fmt.COMPLETE)
                for change in changes
                if change.log == name
            ]
            if infos:
                wal.append(b"".join(infos))

    def remove_finished(self, wanted: Collection[str]) -> None:
        """Remove full logs, oldest first, up to one that is wanted."""
        for name, wal in list(self._logs.items()):
            if wal is self._active or name in wanted:
                return
            self._remove(wal)

    def finish(self, *, is_wanted: bool) -> None:
        """Everything is in the year files; only what is prepared may still need the last log."""
        if self._active is not None and is_wanted:
            self._active.mark(fmt.CLOSED, fmt.NOT_REPLAYED, self._pid)
        elif self._active is not None:
            self._remove(self._active)

    def close(self) -> None:
        for wal in self._logs.values():
            wal.close()

    def _remove(self, wal: Wal) -> None:
        wal.mark(fmt.CLOSED, fmt.REPLAYED, self._pid)
        wal.close()
        self._disk.remove(wal.name)
        del self._logs[wal.name]
