"""The five kinds of stores as the contracts use them: numbers go in, numbers come out."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.disk import OsDisk
from holdfast.doors import (
    create_bars,
    create_kv,
    create_log,
    open_bars,
    open_kv,
    open_log,
    read_bars,
    read_kv,
    read_log,
)
from holdfast.errors import HoldfastError
from holdfast.formats.raft_entry import RaftEntry
from holdfast.formats.raft_wal import OPAQUE_CODEC
from holdfast.formats.rlog_entry import FileEntry
from holdfast.logs.opening import FORMATS
from holdfast.logs.retention import Retention

_START_S, _MINUTE_S = 1_609_459_200, 60  # 2021


class OwnedStore(ABC):
    """One kind of store, with its front door.  A store is whatever `open` returns."""

    name: str
    locks = True  # does it lie in a directory that has one owner?  A bucket does not.
    internal: frozenset[str] = frozenset()  # names of a handle for the store's own modules
    arguments: Mapping[str, Any]  # for the methods of a handle, by the name of the parameter
    create: Callable[..., Any]  # `create_log`, `create_kv` or `create_bars`
    own: Callable[..., Any]  # `open_log`, `open_kv` or `open_bars`
    look: Callable[..., Any]  # `read_log`, `read_kv` or `read_bars`

    @abstractmethod
    def open(self, path: Path) -> Any:
        """Own the store at a path; create it if there is none."""

    @abstractmethod
    def write(self, store: Any, *numbers: int) -> None:
        """Write numbers that are not there yet, as one commit; durable when this returns."""

    @abstractmethod
    def change(self, store: Any) -> None:
        """Do what an owner does besides writing: start a new file, write back, compact."""

    @abstractmethod
    def scan(self, store: Any) -> list[int]:
        """Return all numbers, in order, through an open store."""

    @abstractmethod
    def between(self, store: Any, start: int, stop: int) -> list[int]:
        """The numbers from `start` up to, not including, `stop`."""

    def read(self, path: Path) -> list[int]:
        """All numbers, in order, read by a guest.  HoldfastError if it finds damage."""
        with self.look(path) as guest:
            for damage in guest.damage:
                raise HoldfastError(str(damage))
            return self.scan(guest)

    def iterate(self, store: Any) -> Iterator[Any] | None:
        """Begin a scan that is not read to its end; None if scans return whole tables."""
        batches: Iterator[Any] = iter(store.scan())
        return batches


class LogStore(OwnedStore):
    """A log: a number is an entry."""

    internal = frozenset(
        {"describe", "publish", "publish_segments", "segment_of", "refuse_changed"}
    )
    arguments: Mapping[str, Any] = {
        "payloads": [b"x"],
        "limits": Retention(before=1),
        "name": "segment",
        "batch": None,
        "index": 1,
        "first": 1,
        "last": 1,
        "key": b"k",
        "value": b"v",
        "term": 1,
        "request_id": b"r" * 12,
        "data": b"x",
        "entries": [RaftEntry(1, term=1, data=b"x")],
    }
    own, look = staticmethod(open_log), staticmethod(read_log)

    def __init__(self, format: str, **options: Any) -> None:
        self.name, self._options = format, options
        self.create = partial(create_log, format=format)
        if format == "file-log":
            entry = FileEntry(1, b"x", request_id=b"r" * 12)
            self.arguments = {**self.arguments, "entries": [entry]}

    def open(self, path: Path) -> Any:
        return FORMATS[self.name].open_writer(OsDisk(path), **self._options)

    def write(self, store: Any, *numbers: int) -> None:
        store.append([b"%d" % number for number in numbers])

    def change(self, store: Any) -> None:
        store.rotate()

    def scan(self, store: Any) -> list[int]:
        batches = [batch["payload"].to_pylist() for batch in store.scan()]
        return sorted(int(payload) for batch in batches for payload in batch)

    def between(self, store: Any, start: int, stop: int) -> list[int]:
        return [int(p) for batch in store.scan(start, stop) for p in batch["payload"].to_pylist()]


class Bars(OwnedStore):
    """A bar store: a number is a minute and its price."""

    name = "bars"
    arguments: Mapping[str, Any] = {
        "bars": {"Epoch": [_START_S], "Close": [1]},
        "symbols": "A",
        "symbol": "A",
        "timeframe": "1Min",
        "attributes": "N",
        "group": None,
        "tgid": 1,
        "tgids": [1],
        "commit": True,
        "path": "a copy",
    }
    create, own = staticmethod(create_bars), staticmethod(open_bars)
    look = staticmethod(read_bars)

    def open(self, path: Path) -> Any:
        return open_bars(path, create=True, flush_ms=5, wal_size_max=1 << 14)

    def write(self, store: Any, *numbers: int) -> None:
        rows = {"Epoch": [_START_S + _MINUTE_S * n for n in numbers], "Close": list(numbers)}
        store.write(rows, "1Min", "N", symbol="A")

    def change(self, store: Any) -> None:
        store.flush()

    def scan(self, store: Any) -> list[int]:
        try:
            rows = store.query("A", "1Min", "N")
        except ValueError:  # there is no such symbol
            return []
        return [int(price) for price in rows["Close"].to_pylist()]

    def between(self, store: Any, start: int, stop: int) -> list[int]:
        first, after = (10**9 * (_START_S + _MINUTE_S * number) for number in (start, stop))
        rows = store.query("A", "1Min", "N", start=first, stop=after)
        return [int(price) for price in rows["Close"].to_pylist()]

    def iterate(self, store: Any) -> None:
        return None


class Kv(OwnedStore):
    """A kv store: a number is a key.  On a bucket a second writer fences the first."""

    name, locks = "kv", False
    internal = frozenset({"disown"})
    arguments: Mapping[str, Any] = {"key": b"k", "value": b"v", "rows": {b"k": b"v"}}
    create, own = staticmethod(create_kv), staticmethod(open_kv)
    look = staticmethod(read_kv)

    def open(self, path: Path) -> Any:
        return open_kv(str(path), create=True, flush_ms=5)

    def write(self, store: Any, *numbers: int) -> None:
        store.write({b"%08d" % number: b"" for number in numbers}).result()

    def change(self, store: Any) -> None:
        store.refresh()

    def scan(self, store: Any) -> list[int]:
        return [int(key) for key, _ in store.items()]

    def between(self, store: Any, start: int, stop: int) -> list[int]:
        return [int(key) for key, _ in store.items(b"%08d" % start, b"%08d" % stop)]


KINDS: dict[str, Callable[[], OwnedStore]] = {
    "shanghai": lambda: LogStore("shanghai", segment_size_max=1 << 14),
    "raft-wal": lambda: LogStore("raft-wal", segment_size_max=1 << 14, codec=OPAQUE_CODEC),
    "file-log": lambda: LogStore("file-log", capacity=1024),
    "bars": Bars,
    "kv": Kv,
}
