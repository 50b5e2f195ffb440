"""Token files: a sequence of named chunks.  The page: docs/formats/token_file.md

chunk := token[4] size:u32 data[size] zero[0..3]           integers are little-endian

Chunks begin at multiples of four.  A reader skips those with unknown tokens, up to the one that it
looks for.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

import msgpack

from holdfast.formats.flaw import Flaw

CHUNK_HEADER_SIZE = 8
META = b"META"

_HEADER = struct.Struct("<4sI")
_META_SIZE_MAX = 2**16
_CHUNKS_MAX = 1000  # before the one that is looked for; more are damage

Read = Callable[[int, int], bytes]  # offset, size: the bytes; fewer at the end of the file


@dataclass(frozen=True, slots=True)
class Chunk:
    """Where the data of one chunk is."""

    token: bytes
    start: int
    size: int

    @property
    def stop(self) -> int:
        """Where the next chunk begins."""
        return self.start + padded(self.size)


@dataclass(frozen=True, slots=True)
class Meta:
    """When and where a file was created; empty if it cannot be decoded."""

    created: str = ""
    hostname: str = ""


def padded(size: int) -> int:
    return (size + 3) & ~3


def encode_chunk(token: bytes, data: bytes) -> bytes:
    if len(token) != 4:
        raise ValueError(f"token {token!r}; expected four bytes")
    return _HEADER.pack(token, len(data)) + data + bytes(padded(len(data)) - len(data))


def encode_meta(meta: Meta) -> bytes:
    """Encode the META chunk; its keys are in the order of the original."""
    packed: bytes = msgpack.packb({"created": meta.created, "hostname": meta.hostname})
    return encode_chunk(META, packed)


def decode_meta(data: bytes) -> Meta:
    """Decode a META chunk, for people to read; invalid fields are left empty."""
    try:
        found = msgpack.unpackb(data)
    except (ValueError, msgpack.UnpackException):
        return Meta()
    if not isinstance(found, dict):
        return Meta()
    created, hostname = found.get("created"), found.get("hostname")
    return Meta(
        created if isinstance(created, str) else "", hostname if isinstance(hostname, str) else ""
    )


def find_chunks(read: Read, offset: int, until: bytes) -> list[Chunk] | Flaw:
    """Return the chunks from `offset` on, up to and with the empty one named `until`."""
    found: list[Chunk] = []
    while len(found) < _CHUNKS_MAX:
        header = read(offset, CHUNK_HEADER_SIZE)
        if len(header) < CHUNK_HEADER_SIZE:
            return Flaw(offset, f"the file ends before {until.decode()}")
        token, size = _HEADER.unpack(header)
        if not any(token):
            return Flaw(offset, f"no token; expected {until.decode()} or another")
        chunk = Chunk(token, offset + CHUNK_HEADER_SIZE, size)
        found.append(chunk)
        if token == until:
            return found if not size else Flaw(offset, f"{until.decode()} of {size} bytes, not 0")
        offset = chunk.stop
    return Flaw(offset, f"{_CHUNKS_MAX} chunks before {until.decode()}")


def meta_of(read: Read, chunks: list[Chunk]) -> Meta:
    """Decode the first META among these chunks."""
    for chunk in chunks:
        if chunk.token == META and chunk.size <= _META_SIZE_MAX:
            return decode_meta(read(chunk.start, chunk.size))
    return Meta()
