"""Three small decoders of log files, written from docs/formats alone: they share no code with ours.

Each takes the files of a directory and returns the payloads that are in them, in order, as far as
every checksum is right.  AssertionError if a file before the last one ends early.
"""

import struct
import zlib

Files = dict[str, bytes]

_CASTAGNOLI = 0x82F63B78


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_CASTAGNOLI if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def _named(files: Files, ending: str) -> list[bytes]:
    return [files[name] for name in sorted(files) if name.endswith(ending)]


def _joined(parts: list[tuple[int, list[bytes]]]) -> list[bytes]:
    """Join the entries of files, each with the index of its first."""
    found: list[bytes] = []
    for first, payloads in parts:
        assert first == len(found) + 1, f"a file begins at {first}, after {len(found)} entries"
        found += payloads
    return found


def shanghai(files: Files) -> list[bytes]:
    parts = []
    for data in _named(files, ".wal"):
        assert data[:8] == b"SHANGA\x00\x01", data[:8]
        first, at, payloads = struct.unpack_from(">Q", data, 32)[0], 64, []
        while at + 8 <= len(data):
            length, crc = struct.unpack_from(">II", data, at)
            payload = data[at + 8 : at + 8 + length]
            if not length or len(payload) < length or zlib.crc32(payload) != crc:
                break
            payloads.append(payload)
            at += 8 + length
        parts.append((first, payloads))
    return _joined(parts)


def raft_wal(files: Files) -> list[bytes]:
    parts = []
    for data in _named(files, ".wal"):
        if data[:8] != bytes.fromhex("0d6beb5800000000"):
            continue  # nothing was written to it yet, or its first batch is torn
        (first,) = struct.unpack_from("<Q", data, 8)
        at, begin = 32, 0
        batch: list[bytes] = []
        payloads: list[bytes] = []
        while at + 8 <= len(data):
            kind, length = struct.unpack_from("<II", data, at)
            if kind == 3:
                if crc32c(data[begin:at]) != length:
                    break
                payloads, batch = payloads + batch, []
                at = begin = at + 8
            elif kind in (1, 2) and at + 8 + length <= len(data):
                batch = batch + ([data[at + 8 : at + 8 + length]] if kind == 1 else [])
                at += 8 + length + -length % 8
            else:
                break
        if payloads:
            parts.append((first, payloads))
    return _joined(parts)


def file_log(files: Files) -> list[bytes]:
    parts = []
    for data in _named(files, ".rlog"):
        assert data[:4] == b"RLOG"
        size, _, capacity, first = struct.unpack_from("<IIIQ", data, 4)
        ends = struct.unpack_from(f"<{capacity}I", data, 24)
        start, payloads, at = _entries_of(data, size), [], 0
        for end in ends:
            if not end or start + end > len(data):
                break
            payloads.append(_data_of(data[start + at : start + end]))
            at = end
        parts.append((first, payloads))
    return _joined(parts)


def _entries_of(data: bytes, size: int) -> int:
    """Return where the entries of an index file begin: after the chunk ITMZ."""
    at = 8 + size
    while data[at : at + 4] != b"ITMZ":
        at += 8 + struct.unpack_from("<I", data, at + 4)[0]
    return at + 8


def _data_of(entry: bytes) -> bytes:
    assert entry[12:20] == b"\0\1\0\0\0\0\0\0", f"not a state of term 1: {entry[12:20]!r}"
    return entry[20:]


def file_log_has(files: Files, payloads: list[bytes]) -> bool:
    """Return whether the entries are there, in order; their slots may still be in a record."""
    done = 0
    for data in _named(files, ".rlog"):
        if done == len(payloads):
            break
        size, _, capacity, first = struct.unpack_from("<IIIQ", data, 4)
        assert first == done + 1
        at = _entries_of(data, size)
        for payload in payloads[done : done + capacity]:
            if data[at + 20 : at + 20 + len(payload)] != payload:
                break  # it is in the next file
            at, done = at + 20 + len(payload), done + 1
    return done == len(payloads)
