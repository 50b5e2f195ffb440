"""Manifests to bytes and back.

file := "HOLDFMAN" version:u16 zero[2] crc32c:u32 length:u64 protobuf[length]     little-endian

Protobuf alone takes a truncated or garbled message for another message; the frame does not.  The
checksum covers the whole file but itself.

    encode_manifest(manifest, unique_id) -> bytes       a new id for every attempt to write
    decode_manifest(data) -> Manifest                   CorruptError, UnsupportedError
"""

import struct

from google.protobuf.message import DecodeError

from holdfast.errors import CorruptError, UnsupportedError
from holdfast.formats.checksums import crc32c
from holdfast.formats.manifest import manifest_pb2 as pb
from holdfast.formats.manifest.checks import ID_SIZE, flaw, sst_ids
from holdfast.formats.manifest.view import FORMAT_VERSION, Manifest

MAGIC = b"HOLDFMAN"
FRAME_VERSION = 1
FRAME = struct.Struct("<8sH2xIQ")
SIZE_MAX = 1 << 28  # of the protobuf: a few million SSTs
_CRC = slice(12, 16)
SLATEDB_VERSIONS = (1, 2)


def encode_manifest(manifest: Manifest, unique_id: bytes) -> bytes:
    """Return the object to write; `unique_id` makes it unlike any other."""
    if len(unique_id) != ID_SIZE:
        raise ValueError(f"the unique id has {len(unique_id)} bytes; expected {ID_SIZE}")
    # A reader merges messages that follow each other, and the last id counts.  So adding the id
    # needs no copy and no change of the message.
    stamp = pb.Manifest(unique_id=unique_id).SerializeToString()
    body = manifest.serialized() + stamp
    if len(body) > SIZE_MAX:
        raise ValueError(f"the manifest has {len(body)} bytes; at most {SIZE_MAX} fit")
    data = bytearray(FRAME.pack(MAGIC, FRAME_VERSION, 0, len(body)) + body)
    data[_CRC] = _crc(data).to_bytes(4, "little")
    return bytes(data)


def refuse_slatedb(data: bytes | memoryview, where: str) -> None:
    """Raise UnsupportedError if this is a manifest of SlateDB: it begins with a 16-bit version."""
    version = int.from_bytes(data[:2], "big")
    if version in SLATEDB_VERSIONS:
        raise UnsupportedError(
            f"a SlateDB database, not a kv store of Holdfast: {where} is a SlateDB manifest of "
            f"version {version}; read it with SlateDB, and load the rows with `holdfast kv load`"
        )


def decode_manifest(data: bytes | memoryview, *, where: str = "manifest") -> Manifest:
    """Return the manifest in these bytes; `where` names them in the error, if any."""
    if len(data) < FRAME.size:
        refuse_slatedb(data, where)
        raise CorruptError(where, 0, f"a manifest cut to {len(data)} bytes")
    magic, version, crc, length = FRAME.unpack_from(data)
    if magic != MAGIC:
        refuse_slatedb(data, where)
        raise CorruptError(where, 0, "not a manifest: it does not begin with the magic bytes")
    if length != len(data) - FRAME.size or length > SIZE_MAX:
        raise CorruptError(where, 16, f"a message of {length} bytes in a file of {len(data)}")
    if _crc(data) != crc:
        raise CorruptError(where, 12, "a manifest with a bad checksum")
    if version != FRAME_VERSION:
        raise _unsupported(where, version)
    return _decode_message(bytes(memoryview(data)[FRAME.size :]), where)


def _decode_message(body: bytes, where: str) -> Manifest:
    try:
        message = pb.Manifest.FromString(body)
    except DecodeError as error:
        raise CorruptError(where, FRAME.size, str(error)) from error
    if message.manifest_format_version != FORMAT_VERSION:
        raise _unsupported(where, message.manifest_format_version)
    ids, unique_id = sst_ids(message), message.unique_id
    why = flaw(message, ids)
    if why is None and len(unique_id) != ID_SIZE:
        why = f"a unique id of {len(unique_id)} bytes"
    if why:
        raise CorruptError(where, FRAME.size, why)
    message.ClearField("unique_id")
    return Manifest(message, ids, unique_id)


def _unsupported(where: str, version: int) -> UnsupportedError:
    return UnsupportedError(
        f"{where}: manifest version {version}; this release reads {FORMAT_VERSION}"
    )


def _crc(data: bytes | bytearray | memoryview) -> int:
    view = memoryview(data)
    # The field itself counts as zeros.
    return crc32c(bytes(view[: _CRC.start]) + bytes(4) + bytes(view[_CRC.stop :]))
