"""`origin.json`: where a converted log came from, and what it had there besides its entries.

What a log of another format has no place for is kept here, by the name of the format that has: so a
log that is converted there and back again is the same log.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.disk import Disk
from holdfast.errors import CorruptError

ORIGIN = "origin.json"


@dataclass(frozen=True, slots=True)
class Origin:
    source: str  # its directory
    first_index: int  # of the source
    belongings: dict[str, dict[str, Any]]  # by format


def write_origin(disk: Disk, origin: Origin) -> None:
    disk.create(ORIGIN, json.dumps(asdict(origin), indent=1).encode(), replace=True)


def read_origin(disk: Disk) -> Origin | None:
    """None if this log was not converted from another."""
    try:
        file = disk.open(ORIGIN)
    except FileNotFoundError:
        return None
    try:
        value = json.loads(bytes(file.map()))
        origin = Origin(value["source"], value["first_index"], value["belongings"])
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptError(ORIGIN, 0, f"not the record of a conversion: {error!r}") from error
    finally:
        file.close()
    kinds = type(origin.source), type(origin.first_index), type(origin.belongings)
    if kinds != (str, int, dict) or not all(type(b) is dict for b in origin.belongings.values()):
        raise CorruptError(ORIGIN, 0, f"not the record of a conversion: {value!r:.200}")
    return origin
