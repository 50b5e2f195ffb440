"""Side files on a disk: what a store keeps beside its data, each replaced as a whole.

A side file counts only if its length and checksum are right.  Those of version 0.1.0 have
neither; they are read, and the next change writes them in the new form.
"""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from holdfast.disk import Disk
from holdfast.errors import CorruptError
from holdfast.formats.flaw import Flaw
from holdfast.formats.side_file import Body, Fields, decode_side_file, encode_side_file


def write_side_file(disk: Disk, name: str, body: Mapping[str, Any]) -> None:
    """Create or replace a side file.  It is durable when this returns."""
    disk.create(name, encode_side_file(name, body), replace=True)


def read_side_file(disk: Disk, name: str, fields: Fields, advice: str) -> Body | None:
    """Return the content of a side file; None if it does not exist.

    CorruptError, which ends with `advice`, if it is damaged or was edited.
    """
    try:
        with closing(disk.open(name)) as file:
            data = file.read_at(0, file.size())
    except FileNotFoundError:
        return None
    body = decode_side_file(name, data, fields)
    if isinstance(body, Flaw):
        raise CorruptError(name, body.offset, f"{body.why}; {advice}")
    return body
