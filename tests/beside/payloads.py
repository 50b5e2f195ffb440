"""Payloads that say which entry they are, and the counter by which an owner announces truncation.

A payload holds its index, the generation of its owner, some noise and a checksum.  A new generation
begins with each life of the owner and with each truncation, so that the bytes of an index differ
before and after it.
"""

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

_HEAD = struct.Struct(">QI")
_CRC = struct.Struct(">I")
_NOISE = Random(0).randbytes(1 << 20)
COUNTER = "truncations"


class WrongPayloadError(AssertionError):
    """A guest was shown bytes that the owner never wrote for this index."""


def make(index: int, generation: int, size: int) -> bytes:
    at = (index * 7919 + generation * 104_729) % (len(_NOISE) // 2)
    data = _HEAD.pack(index, generation) + _NOISE[at : at + size]
    return data + _CRC.pack(zlib.crc32(data))


def generation_of(index: int, payload: bytes) -> int:
    """The generation of a payload.  WrongPayloadError unless it is that of entry `index`."""
    if len(payload) < _HEAD.size + _CRC.size:
        raise WrongPayloadError(f"entry {index}: {len(payload)} bytes: {payload[:40]!r}")
    own, generation = _HEAD.unpack_from(payload)
    (crc,) = _CRC.unpack(payload[-_CRC.size :])
    if own != index:
        raise WrongPayloadError(f"entry {index}: the payload is that of entry {own}")
    if crc != zlib.crc32(payload[: -_CRC.size]):
        raise WrongPayloadError(f"entry {index}: the payload does not hold its checksum")
    return int(generation)


class Counter:
    """A number in a file: odd while the owner truncates, and never twice the same.

    If it is even and the same before and after something, no truncation came between.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.exists():
            path.write_bytes(bytes(8))

    def get(self) -> int:
        return int.from_bytes(self._path.read_bytes()[:8], "big")

    @contextmanager
    def truncating(self) -> Iterator[int]:
        """The generation of what is written from now on."""
        before = self.get() // 2 * 2
        self._set(before + 1)
        yield before + 2
        self._set(before + 2)

    def _set(self, value: int) -> None:
        with self._path.open("r+b") as file:
            file.write(value.to_bytes(8, "big"))
