"""A guest: reads beside a live owner or none, takes no lock and changes nothing.

It reads the logs, then the year files, then the logs again: see holdfast.bars.pending.  What it
shows of a log it has synced first.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from holdfast.bars import replay
from holdfast.bars.catalog import Catalog
from holdfast.bars.pending import Change, Overlay, Reading, complete
from holdfast.bars.query import AgainError
from holdfast.bars.reader import Bars
from holdfast.bars.wal import Content, Damage, LogName, find_logs
from holdfast.bars.write_back import new_files
from holdfast.disk import Disk, File


class _Watched:
    """A log that may grow; it stays readable when the owner has removed it."""

    def __init__(self, log: LogName, file: File) -> None:
        self.log, self.file = log, file
        self.content: Content | None = None
        self.size = 0

    def catch_up(self, disk: Disk, catalog: Catalog) -> bool:
        """Read what is new; is anything?"""
        size = self.file.size()
        if self.content is not None and size == self.size:
            return False
        self.file.sync()
        if self.content is None or self.log.is_foreign:
            self.content = self._read(size, disk, catalog)
        else:
            start = self.content.stop
            self.content.read_on(memoryview(self.file.read_at(start, size - start)))
        if self.content.damage:  # a write under way can look like it: what is damaged stays so
            self.content = self._read(size, disk, catalog)
        self.size = size
        return True

    def _read(self, size: int, disk: Disk, catalog: Catalog) -> Content:
        return replay.read_log(self.log, self.file.read_at(0, size), disk, catalog).content


class BarReader(Bars):
    """See the module.  For one thread.

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
        self.damage: tuple[Damage, ...] = ()
        self._refresh()

    def close(self) -> None:
        for log in self._logs.values():
            log.file.close()
        self._logs.clear()

    def whole_catalog(self) -> Catalog:
        """What there is, also what is only in the logs."""
        sets = [one for change in self._overlay().changes for one in change.sets]
        for schema, key, year in new_files(sets):
            self._catalog.add(key, year, schema)
        return self._catalog

    def _reading(self) -> AbstractContextManager[Reading]:
        return self._watch()

    @contextmanager
    def _watch(self) -> Iterator[Reading]:
        self._refresh()
        self._catalog.forget()
        for content in self._contents():
            content.forget_done()
        yield _GuestReading(self, frozenset(self._logs))

    def look_again(self, names: frozenset[str]) -> Overlay:
        """The second look; a log that went meanwhile may have had a short-lived successor."""
        self._refresh()
        if not names <= self._logs.keys():
            raise AgainError
        return Overlay([change for change in self._changes() if change.is_sound])

    def _changes(self) -> list[Change]:
        return [change for content in self._contents() for change in content.changes]

    def _judge(self) -> None:
        """All that is to come over the files, in order: later groups rely on earlier ones."""
        complete(self._changes())
        waiting = [change for change in self._changes() if not change.is_done]
        found = [damage for content in self._contents() for damage in content.damage]
        self.damage = (*found, *replay.check(waiting, self._disk, self._catalog))

    def _contents(self) -> list[Content]:
        """Of all logs, oldest first."""
        logs = sorted(self._logs.values(), key=lambda log: log.log.created_ns)
        return [log.content for log in logs if log.content is not None]

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
            if any([log.catch_up(self._disk, self._catalog) for log in self._logs.values()]):
                self._judge()
            return
        raise self._unsettled()


class _GuestReading:
    def __init__(self, guest: BarReader, names: frozenset[str]) -> None:
        self._guest, self._names = guest, names

    def overlay(self) -> Overlay:
        return self._guest.look_again(self._names)
