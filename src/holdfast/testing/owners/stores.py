"""The five kinds of stores as the owner contract uses them: numbers go in, numbers come out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from holdfast.bars import open_bars
from holdfast.disk import OsDisk
from holdfast.errors import HoldfastError
from holdfast.formats.raft_wal import OPAQUE_CODEC
from holdfast.kv import Db, Reader
from holdfast.logs.open import FORMATS, open_log

_START_S, _MINUTE_S = 1_609_459_200, 60  # 2021


class OwnedStore(Protocol):
    """One kind of store.  A store is whatever `open` returns; it has `close`."""

    name: str
    locks: bool  # does it lie in a directory that has one owner?  A bucket does not.

    def open(self, path: Path) -> Any:
        """Own the store at a path; make it if there is none."""
        ...

    def write(self, store: Any, *numbers: int) -> None:
        """Write numbers that are not there yet, as one commit; durable when this returns."""
        ...

    def change(self, store: Any) -> None:
        """What an owner does besides: begin a new file, write back, compact."""
        ...

    def scan(self, store: Any) -> list[int]:
        """All numbers, in order, read through an open store."""
        ...

    def read(self, path: Path) -> list[int]:
        """All numbers, in order, read by a guest."""
        ...


class LogStore:
    """A log: a number is an entry."""

    locks = True

    def __init__(self, format: str, **options: Any) -> None:
        self.name, self._options = format, options

    def open(self, path: Path) -> Any:
        return FORMATS[self.name].open(OsDisk(path), **self._options)

    def write(self, store: Any, *numbers: int) -> None:
        store.append([b"%d" % number for number in numbers])

    def change(self, store: Any) -> None:
        store.rotate()

    def scan(self, store: Any) -> list[int]:
        batches = [batch["payload"].to_pylist() for batch in store.scan()]
        return sorted(int(payload) for batch in batches for payload in batch)

    def read(self, path: Path) -> list[int]:
        with open_log(path, read_only=True) as guest:
            if getattr(guest, "damage", ()):
                raise HoldfastError(str(guest.damage[0]))  # type: ignore[attr-defined]
            return self.scan(guest)


class Bars:
    """A bar store: a number is a minute and its price."""

    name, locks = "bars", True

    def open(self, path: Path) -> Any:
        return open_bars(path, write_back_ms=5, wal_size_max=1 << 14)

    def write(self, store: Any, *numbers: int) -> None:
        rows = {"Epoch": [_START_S + _MINUTE_S * n for n in numbers], "Close": list(numbers)}
        store.write(rows, "1Min", "N", symbol="A")

    def change(self, store: Any) -> None:
        store.write_back()

    def scan(self, store: Any) -> list[int]:
        try:
            rows = store.query("A", "1Min", "N")
        except ValueError:  # there is no such symbol
            return []
        return [int(price) for price in rows["Close"].to_pylist()]

    def read(self, path: Path) -> list[int]:
        with open_bars(path, read_only=True) as guest:
            return self.scan(guest)


class Kv:
    """A kv store: a number is a key.  On a bucket a second writer fences the first."""

    name, locks = "kv", False

    def open(self, path: Path) -> Any:
        return Db.open(str(path), flush_ms=5)

    def write(self, store: Any, *numbers: int) -> None:
        store.write({b"%08d" % number: b"" for number in numbers}).result()

    def change(self, store: Any) -> None:
        store.refresh()

    def scan(self, store: Any) -> list[int]:
        return [int(key) for key, _ in store.items()]

    def read(self, path: Path) -> list[int]:
        with Reader.open(str(path)) as reader:
            return self.scan(reader)


KINDS: dict[str, Callable[[], OwnedStore]] = {
    "shanghai": lambda: LogStore("shanghai", segment_size_max=1 << 14),
    "raft-wal": lambda: LogStore("raft-wal", segment_size_max=1 << 14, codec=OPAQUE_CODEC),
    "file-log": lambda: LogStore("file-log", capacity=1024),
    "bars": Bars,
    "kv": Kv,
}
