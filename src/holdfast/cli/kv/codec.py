"""Keys and values as text, hexadecimal, base64 and JSON lines.

A JSON line has `key` and `value`, as text; or `key_base64`, `value_hex` and so on, for other
bytes.  A value of null deletes.  `put` and `load` read what `scan --json` prints.
"""

import binascii
import json
import os
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.cli.output import printable

Row = tuple[bytes, bytes | None]
Form = Literal["text", "hex", "base64"]
_SHOWN = 60  # characters of an invalid value


@dataclass(frozen=True, slots=True)
class Codec:
    """How bytes are written."""

    form: Form

    @classmethod
    def of(cls, *, hexadecimal: bool, base64: bool) -> "Codec":
        if hexadecimal and base64:
            raise ValueError("--hex and --base64 exclude each other")
        return cls("hex" if hexadecimal else "base64" if base64 else "text")

    def decode(self, text: str, what: str) -> bytes:
        """Return the bytes; ValueError names `what` was given."""
        try:
            if self.form == "hex":
                return bytes.fromhex(text)
            if self.form == "base64":
                return b64decode(text, validate=True)
            return os.fsencode(text)  # arguments may hold bytes that are not UTF-8
        except (ValueError, binascii.Error):
            form = {"hex": "hexadecimal"}.get(self.form, self.form)
            raise ValueError(f"{what} {text[:_SHOWN]!r} is not {form}") from None

    def encode(self, data: bytes) -> str:
        """Return text for a terminal; what would control it is escaped."""
        if self.form == "hex":
            return data.hex()
        return b64encode(data).decode() if self.form == "base64" else printable(data)


def row_of(line: bytes, where: str, *, key: str = "key", value: str = "value") -> Row:
    """Parse a JSON line; ValueError names `where` it is."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON: {error}") from None
    given = document if isinstance(document, dict) else {}
    found = _field(given, key, where)
    if found is None:
        raise ValueError(f"{where}: {key} is null")
    return found, _field(given, value, where)


def _field(document: dict[str, Any], name: str, where: str) -> bytes | None:
    names: dict[str, Form] = {name: "text", f"{name}_hex": "hex", f"{name}_base64": "base64"}
    given = [each for each in names if each in document]
    if len(given) != 1:
        # A missing value is not null, which would delete.
        why = f"has both {given[0]} and {given[1]}" if given else f"has no {name}"
        raise ValueError(f"{where} {why}")
    text = document[given[0]]
    if text is None:
        return None
    form = names[given[0]]
    try:
        return str.encode(text) if form == "text" else Codec(form).decode(text, given[0])
    except TypeError:
        raise ValueError(f"{where}: {given[0]} is {type(text).__name__}, not text") from None
    except ValueError as error:  # lone surrogates, too
        raise ValueError(f"{where}: {error}") from None
