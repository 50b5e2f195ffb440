"""Side files: small JSON documents beside a store.  The page: docs/formats/side_file.md

file := '{"length": ' digits ', "crc32c": "' hex[8] '", "body": ' body '}' LF

`length` is that of the body in bytes, `crc32c` that of the file's name, a zero byte and the body.
Version 0.1.0 wrote the body alone.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from holdfast.formats.checksums import crc32c
from holdfast.formats.flaw import Flaw

Body = dict[str, Any]
Fields = Mapping[str, type]  # the names of a body's fields, and the types of their values

_HEADER = re.compile(rb'\{"length": (0|[1-9][0-9]{0,9}), "crc32c": "([0-9a-f]{8})", "body": ')
_END = b"}\n"


def encode_side_file(name: str, body: Mapping[str, Any]) -> bytes:
    """Encode a side file; `name` is where it is in its store."""
    data = json.dumps(body).encode()
    checksum = _checksum(name, data)
    return b'{"length": %d, "crc32c": "%08x", "body": %b}\n' % (len(data), checksum, data)


def decode_side_file(name: str, data: bytes, fields: Fields) -> Body | Flaw:
    """Decode a side file that has these fields and no others."""
    body = _unwrap(name, data)
    if isinstance(body, Flaw):
        return body
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        return Flaw(0, f"cannot parse JSON: {error}")
    # In a file of 0.1.0 this is all that can be checked.
    if not isinstance(found, dict) or found.keys() != fields.keys():
        return Flaw(0, f"not an object with the fields {', '.join(fields)}")
    for field, kind in fields.items():
        if type(found[field]) is not kind:
            return Flaw(0, f"{field} is {found[field]!r:.50}; expected {kind.__name__}")
    return found


def _unwrap(name: str, data: bytes) -> bytes | Flaw:
    """Return the body of a file after its length and checksum were verified."""
    if not data:
        return Flaw(0, "the file is empty")
    header = _HEADER.match(data)
    if header is None:
        return data
    length, checksum = int(header[1]), int(header[2], 16)
    start = header.end()
    if len(data) != start + length + len(_END):
        size = len(data) - start - len(_END)
        return Flaw(len(data), f"a body of {max(size, 0)} bytes; its header says {length}")
    body, end = data[start : -len(_END)], data[-len(_END) :]
    if end != _END:
        return Flaw(len(data) - len(_END), f"ends with {end!r}, not {_END!r}")
    if (actual := _checksum(name, body)) != checksum:
        return Flaw(start, f"the body has checksum {actual:08x}; its header says {checksum:08x}")
    return body


def _checksum(name: str, body: bytes) -> int:
    return crc32c(name.encode() + b"\0" + body)
