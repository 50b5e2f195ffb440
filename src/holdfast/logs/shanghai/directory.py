"""What a Shanghai directory holds, told from names, sizes and headers alone.

    segment_NNNNN.wal   the segments; the highest number is the active one
    metadata.json       a cache, and the mark: up to where the active segment was once complete
    replicas/NAME.json  what each replica has acknowledged (holdfast.logs.replicas)
    *.cut               bytes that recovery or repair took out; never read, never deleted

Headers carry no checksum, so each is checked against its name and its neighbours.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from zlib import crc32

from holdfast.disk import Disk
from holdfast.errors import UnsupportedError
from holdfast.formats import shanghai as fmt
from holdfast.formats.flaw import Flaw
from holdfast.logs.log import Damage

_METADATA = "metadata.json"


def segment_name(number: int) -> str:
    """Five digits; from 100000 on as many as it takes, ordered by number and not by name."""
    return f"segment_{number:05}.wal"


@dataclass(frozen=True, slots=True)
class Found:
    """One segment file: its header, or what is wrong with it."""

    number: int
    name: str
    size: int
    header: fmt.Header | Flaw


@dataclass(frozen=True, slots=True)
class Mark:
    """The active segment was once complete up to here: a flaw before it is damage, not torn."""

    name: str
    id: str
    size: int
    last_lsn: int


def segment_sizes(disk: Disk) -> dict[str, int]:
    """Names and sizes of the segment files, oldest first."""
    sizes = {name: size for name, size in disk.list().items() if segment_number(name)}
    return {name: sizes[name] for name in sorted(sizes, key=segment_number)}


def segment_number(name: str) -> int:
    """The number in a segment's name; 0 for any other file."""
    digits = name[8:-4]
    if not (
        name[:8] == "segment_" and name[-4:] == ".wal" and digits.isascii() and digits.isdigit()
    ):
        return 0
    number = int(digits) if len(digits) < 20 else 0
    return number if segment_name(number) == name else 0


def find_segments(disk: Disk) -> list[Found]:
    """All segments, oldest first.  UnsupportedError if one is of another version."""
    return [
        Found(segment_number(name), name, size, _read_header(disk, name))
        for name, size in segment_sizes(disk).items()
    ]


def _read_header(disk: Disk, name: str) -> fmt.Header | Flaw:
    file = disk.open(name)
    try:
        return fmt.decode_header(file.read_at(0, fmt.HEADER_SIZE))
    except UnsupportedError as error:
        raise UnsupportedError(f"{name}: {error}") from error
    finally:
        file.close()


def cross_check(found: Sequence[Found], *, seal_in_doubt: int | None) -> list[Damage]:
    """What names, headers and neighbours contradict.

    The segment numbered `seal_in_doubt` may have any Last LSN: a crash may have torn its seal.
    """
    damage = []
    for segment in found:
        if isinstance(segment.header, Flaw):
            flaw = segment.header
            damage.append(Damage(segment.name, flaw.offset, 0, 0, flaw.why))
    sound = [(s, s.header) for s in found if isinstance(s.header, fmt.Header)]
    for (one, a), (two, b) in pairwise(sound):
        adjacent = two.number == one.number + 1
        if a.last_lsn and a.last_lsn < a.first_lsn - 1 and one.number != seal_in_doubt:
            why = f"last LSN {a.last_lsn} is before its first, {a.first_lsn}"
            damage.append(Damage(one.name, 32, 0, 0, why))
        elif b.first_lsn < a.first_lsn:
            why = f"first LSN {b.first_lsn} is before {one.name}'s {a.first_lsn}"
            damage.append(Damage(two.name, 32, 0, 0, why))
        elif not adjacent and a.last_lsn + 1 != b.first_lsn:
            why = f"missing: {one.name} is followed by {two.name}"
            first = a.last_lsn + 1 if a.last_lsn else 0
            damage.append(
                Damage(segment_name(one.number + 1), 0, first, b.first_lsn - 1 if first else 0, why)
            )
        elif adjacent and a.last_lsn + 1 != b.first_lsn and one.number != seal_in_doubt:
            why = f"last LSN {a.last_lsn}, but {two.name} begins at {b.first_lsn}"
            damage.append(Damage(one.name, fmt.LAST_LSN_OFFSET, 0, 0, why))
    return damage


def read_mark(disk: Disk) -> Mark | None:
    """The mark, or None where there is no readable one: metadata.json is only a cache."""
    try:
        file = disk.open(_METADATA)
    except FileNotFoundError:
        return None
    try:
        metadata = json.loads(file.read_at(0, 2**16))
        mark = Mark(**metadata["complete"])
        return mark if metadata["crc32"] == _crc_of(mark) else None
    except (ValueError, KeyError, TypeError):
        return None
    finally:
        file.close()


def write_mark(disk: Disk, mark: Mark | None) -> None:
    complete = mark and {field: getattr(mark, field) for field in mark.__slots__}
    metadata = {"format": "shanghai", "complete": complete, "crc32": mark and _crc_of(mark)}
    disk.create(_METADATA, json.dumps(metadata).encode(), replace=True)


def _crc_of(mark: Mark) -> int:
    return crc32(f"{mark.name} {mark.id} {mark.size} {mark.last_lsn}".encode())
