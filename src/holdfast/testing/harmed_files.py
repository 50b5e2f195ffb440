"""Harm the files of a store: cut, flip, zero, delete, swap, duplicate, restore older copies."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

Files = dict[str, bytes]

_NEAR = 80  # bytes: headers are damaged more often than by chance


@dataclass(slots=True)
class Harmed:
    """The files of a store in memory, and what was done to them.

    `protected` returns the range of bytes of a file in which a change can be noticed.
    """

    files: Files
    older: Sequence[Files] = ()  # the files at earlier moments
    protected: Callable[[str, bytes], tuple[int, int]] = lambda name, data: (0, len(data))
    done: list[str] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)

    def harm(self, random: Random) -> None:
        """Damage one file, or two."""
        names = {*self.files, *(name for files in self.older for name in files)}
        name, way = random.choice(sorted(names)), random.choice(list(WAYS))
        if what := WAYS[way](self, name, random):
            self.done.append(f"{way} {what}")

    def put(self, name: str, data: bytes | None) -> None:
        """Give a file other bytes; with None, remove it."""
        self.touched.add(name)
        if data is None:
            del self.files[name]
        else:
            self.files[name] = data

    def places(self, name: str) -> list[int]:
        """Return the bytes in which a change can be noticed, and which are not free space."""
        data = self.files.get(name, b"")
        start, stop = self.protected(name, data)
        used = min(stop, len(data.rstrip(b"\0")))
        return [at for at in range(start, used) if data[at] or at < _NEAR]

    def others(self, name: str) -> list[str]:
        """Return the other files of the same kind that differ."""
        data, ending = self.files[name], name.rpartition(".")[2]
        alike = [other for other in self.files if other.rpartition(".")[2] == ending]
        return [other for other in alike if self.files[other] != data]


# Each returns what it did; nothing if it could not do it to this file.


def _cut(store: Harmed, name: str, random: Random) -> str:
    data = store.files.get(name, b"")
    if not data:
        return ""
    size = len(data)
    at = random.choice([random.randrange(size), random.randrange(min(size, _NEAR)), size - 1])
    store.put(name, data[:at])
    return f"{name} to {at} of {size} bytes"


def _flip(store: Harmed, name: str, random: Random) -> str:
    places = store.places(name)
    if not places:
        return ""
    at, bit, data = random.choice(places), random.randrange(8), bytearray(store.files[name])
    data[at] ^= 1 << bit
    store.put(name, bytes(data))
    return f"bit {bit} of byte {at} of {name}"


def _zero(store: Harmed, name: str, random: Random) -> str:
    """Zero a whole file, its end, or some bytes."""
    places = store.places(name)
    if not places:
        return ""
    data = store.files[name]
    at = random.choice(places)
    few = min(at + random.randint(1, 40), store.protected(name, data)[1])
    start, stop = random.choice([(0, len(data)), (at, len(data)), (at, few)])
    store.put(name, data[:start] + bytes(stop - start) + data[stop:])
    return f"bytes {start}..{stop} of {name}"


def _delete(store: Harmed, name: str, random: Random) -> str:
    if name not in store.files:
        return ""
    store.put(name, None)
    return name


def _swap(store: Harmed, name: str, random: Random) -> str:
    if name not in store.files or not (others := store.others(name)):
        return ""
    other, data = random.choice(others), store.files[name]
    store.put(name, store.files[other])
    store.put(other, data)
    return f"{name} and {other}"


def _duplicate(store: Harmed, name: str, random: Random) -> str:
    """Copy a file over another one, or to a name that no file has."""
    if name not in store.files:
        return ""
    new = re.sub(r"\d(?=\D*$)", lambda digit: str((int(digit[0]) + 1) % 10), name)
    choices = store.others(name) + ([new] if new not in store.files else [])
    if not choices:
        return ""
    other = random.choice(choices)
    store.put(other, store.files[name])
    return f"{name} as {other}"


def _restore(store: Harmed, name: str, random: Random) -> str:
    """Put an older copy of a file in its place, also one that was removed since."""
    data = store.files.get(name)
    copies = [files[name] for files in store.older if files.get(name, data) != data]
    if not copies:
        return ""
    number = random.randrange(len(copies))
    store.put(name, copies[number])
    return f"copy {number} of {name}"


WAYS: dict[str, Callable[[Harmed, str, Random], str]] = {
    "cut": _cut,
    "flip": _flip,
    "zero": _zero,
    "delete": _delete,
    "swap": _swap,
    "duplicate": _duplicate,
    "restore": _restore,
}
