"""A guest: reads beside a live owner or none, takes no lock and changes nothing.

It reads the logs, then the year files, then the logs again: see holdfast.bars.pending.  What it
shows of a log it has synced first.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from holdfast.bars import replay
from holdfast.bars.catalog import Catalog
from holdfast.bars.pending import Change, Overlay, Reading
from holdfast.bars.reader import Bars, MovedError
from holdfast.bars.wal import Content, Damage, LogName, find_logs
from holdfast.disk import Disk, File


class _Watched:
    """A log that may grow; it stays readable when the owner has removed it."""

    def __init__(self, log: LogName, file: File) -> None:
        self.log, self.file = log, file
        self.content: Content | None = None
        self.size = 0
        self.damage: list[Damage] = []

    def catch_up(self, disk: Disk, catalog: Catalog) -> None:
        size = self.file.size()
        if self.content is not None and size == self.size:
            return
        self.file.sync()
        data = self.file.read_at(0, size)
        self.size = len(data)
        if self.content is None or self.log.is_foreign:
            one = replay.read_log(self.log, data, disk, catalog)
            self.content, fresh = one.content, one.content.changes
        else:
            known = len(self.content.changes)
            self.content.read(memoryview(data), self.content.stop)
            fresh = self.content.changes[known:]
        waiting = [change for change in fresh if not change.is_done]
        self.damage = [*self.content.damage, *self.damage]
        self.damage += replay.check(waiting, disk, catalog)


class BarReader(Bars):
    """See the module.

    >>> from holdfast.bars.store import BarStore
    >>> from holdfast.disk import OsDisk
    >>> BarStore(OsDisk(directory)).close()
    >>> with BarReader(OsDisk(directory)) as guest:
    ...     guest.symbols()
    []
    """

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk, Catalog(disk))
        self._logs: dict[str, _Watched] = {}
        self._refresh()

    @property
    def damage(self) -> tuple[Damage, ...]:
        return tuple(dict.fromkeys(one for log in self._logs.values() for one in log.damage))

    def close(self) -> None:
        for log in self._logs.values():
            log.file.close()
        self._logs.clear()

    def _reading(self) -> AbstractContextManager[Reading]:
        return self._watch()

    @contextmanager
    def _watch(self) -> Iterator[Reading]:
        self._refresh()
        self._catalog.forget()
        done = {id(change) for change in self._changes() if change.is_done}
        yield _GuestReading(self, frozenset(self._logs), done)

    def look_again(self, names: frozenset[str], done: set[int]) -> Overlay:
        """The second look; a log that went meanwhile may have had a short-lived successor."""
        self._refresh()
        if not names <= self._logs.keys():
            raise MovedError
        changes = self._changes()
        return Overlay([one for one in changes if id(one) not in done and one.is_sound])

    def _changes(self) -> list[Change]:
        contents = [self._logs[name].content for name in self._order()]
        return [change for one in contents if one is not None for change in one.changes]

    def _order(self) -> list[str]:
        return sorted(self._logs, key=lambda name: self._logs[name].log.created_ns)

    def _refresh(self) -> None:
        for _ in range(100):
            found = {log.name: log for log in find_logs(self._disk)}
            for name in self._logs.keys() - found.keys():
                self._logs.pop(name).file.close()
            try:
                for name in found.keys() - self._logs.keys():
                    self._logs[name] = _Watched(found[name], self._disk.open(name))
            except FileNotFoundError:  # removed since it was listed
                continue
            for log in self._logs.values():
                log.catch_up(self._disk, self._catalog)
            return
        raise MovedError


class _GuestReading:
    def __init__(self, guest: BarReader, names: frozenset[str], done: set[int]) -> None:
        self._guest, self._names, self._done = guest, names, done

    def overlay(self) -> Overlay:
        return self._guest.look_again(self._names, self._done)
