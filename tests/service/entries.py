"""The entries of the service, and the ledger of what was acknowledged.

A payload begins with a key: the life of the service, the thread and the number of the entry there.
The rest follows from the key, so that every reader can judge a payload.
"""

import os
import struct
from pathlib import Path
from random import Random

import pyarrow as pa

_KEY = struct.Struct(">Q")
_RECORD = struct.Struct(">QQI")  # first index, first key, count
_NOISE = Random(0).randbytes(1 << 16)
BATCH_MAX = 8
THREADS = 16


class InventedError(AssertionError):
    """A payload that the service never wrote."""


def key_of(life: int, thread: int, number: int) -> int:
    return life << 48 | thread << 40 | number


def writer_of(key: int) -> int:
    """The life and the thread that wrote an entry."""
    return key >> 40


def make(key: int) -> bytes:
    at, size = key * 7919 % (1 << 15), key * 104_729 % 700
    return _KEY.pack(key) + _NOISE[at : at + size]


def judge(index: int, payload: bytes) -> int:
    """Return the key of an entry.  InventedError if its bytes are not those of the key."""
    key: int = _KEY.unpack_from(payload)[0] if len(payload) >= _KEY.size else -1
    if key < 0 or payload != make(key):
        raise InventedError(f"entry {index} of {len(payload)} bytes: {payload[:40]!r}")
    return key


class Seen:
    """The entries that one reader was shown: an index never shows two of them."""

    def __init__(self) -> None:
        self.keys: dict[int, int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        rows = zip(batch["index"].to_pylist(), batch["payload"].to_pylist(), strict=True)
        for index, payload in rows:
            key = judge(index, payload)
            if self.keys.setdefault(index, key) != key:
                raise InventedError(f"entry {index} was {self.keys[index]:x}, and now is {key:x}")

    def save(self, path: Path) -> None:
        lines = (f"{index} {key}\n" for index, key in self.keys.items())
        path.write_text("".join(lines))

    @staticmethod
    def load(path: Path) -> dict[int, int]:
        lines = (line.split() for line in path.read_text().splitlines())
        return {int(index): int(key) for index, key in lines}


class Ledger:
    """What was acknowledged, in a file to which all threads of a life append."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)

    def acknowledge(self, first: int, key: int, count: int) -> None:
        os.write(self._fd, _RECORD.pack(first, key, count))

    @staticmethod
    def size(path: Path) -> int:
        """How many batches were acknowledged."""
        return path.stat().st_size // _RECORD.size if path.exists() else 0

    @staticmethod
    def load(path: Path) -> dict[int, int]:
        """The key of every index that was acknowledged."""
        data = path.read_bytes()
        found: dict[int, int] = {}
        for first, key, count in _RECORD.iter_unpack(data[: len(data) // 20 * 20]):
            for i in range(count):
                if found.setdefault(first + i, key + i) != key + i:
                    raise InventedError(f"index {first + i} was acknowledged twice")
        return found
