"""`origin.json`: the source of a converted log, and what the source had besides entries.

Some formats store more than entries.  This file keeps that by the name of the format, so that a log
that is converted to another format and back is the same log.
"""

from dataclasses import asdict, dataclass
from typing import Any

from holdfast.disk import Disk
from holdfast.errors import CorruptError
from holdfast.side_files import read_side_file, write_side_file

ORIGIN = "origin.json"
_FIELDS = {"source": str, "first_index": int, "belongings": dict}
_ADVICE = (
    "no entry depends on it, but a conversion does: convert the source again, or remove the file "
    "and with it what the source had besides entries"
)


@dataclass(frozen=True, slots=True)
class Origin:
    source: str  # its directory
    first_index: int  # of the source
    belongings: dict[str, dict[str, Any]]  # by format


def write_origin(disk: Disk, origin: Origin) -> None:
    write_side_file(disk, ORIGIN, asdict(origin))


def read_origin(disk: Disk) -> Origin | None:
    """Return the origin of a converted log; None if the log was not converted.

    CorruptError if the file is damaged or was edited.
    """
    value = read_side_file(disk, ORIGIN, _FIELDS, _ADVICE)
    if value is None:
        return None
    origin = Origin(**value)
    if not all(type(one) is dict for one in origin.belongings.values()):
        raise CorruptError(ORIGIN, 0, f"not the belongings of a log: {value!r:.200}; {_ADVICE}")
    return origin
