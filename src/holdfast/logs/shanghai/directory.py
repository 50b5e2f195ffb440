"""What a Shanghai directory holds, from names, sizes and headers alone.

    segment_NNNNN.wal   the segments; the highest number is the active one
    holdfast.mark       how far the log was once complete (holdfast.logs.shanghai.marks)
    metadata.json       that there is a mark
    replicas/NAME.json  what each replica has acknowledged (holdfast.logs.replicas)
    *.cut               bytes that recovery or repair took out; never read, never deleted

Headers carry no checksum, so each is checked against its neighbours and the mark: see
holdfast.logs.shanghai.placing.
"""

from dataclasses import dataclass

from holdfast.disk import Disk
from holdfast.errors import UnsupportedError
from holdfast.formats import shanghai as fmt
from holdfast.formats.flaw import Flaw
from holdfast.formats.mark import Mark


def segment_name(number: int) -> str:
    """Return the name of a segment: five digits, or more from 100000 on."""
    return f"segment_{number:05}.wal"


@dataclass(frozen=True, slots=True)
class Found:
    """One segment file: its header, or what is wrong with it."""

    number: int
    name: str
    size: int
    header: fmt.Header | Flaw
    fields: fmt.Header  # of the header, also of a damaged one


def segment_sizes(disk: Disk) -> dict[str, int]:
    """Return names and sizes of the segment files, oldest first."""
    sizes = {name: size for name, size in disk.list().items() if segment_number(name)}
    return {name: sizes[name] for name in sorted(sizes, key=segment_number)}


def segment_number(name: str) -> int:
    """Return the number in a segment's name; 0 for any other file."""
    digits = name[8:-4]
    if not (
        name[:8] == "segment_" and name[-4:] == ".wal" and digits.isascii() and digits.isdigit()
    ):
        return 0
    number = int(digits) if len(digits) < 20 else 0
    return number if segment_name(number) == name else 0


def find_segments(disk: Disk, mark: Mark) -> list[Found]:
    """Return all segments, oldest first.

    UnsupportedError if one is of another version.  But if the mark names it, and one bit differs
    from our version, it is damaged: its writer wrote our version.
    """
    first, last = (segment_number(file.name) for file in (mark.first, mark.last))
    return [
        _read_segment(disk, name, size, is_marked=first <= segment_number(name) <= last)
        for name, size in segment_sizes(disk).items()
    ]


def _read_segment(disk: Disk, name: str, size: int, *, is_marked: bool) -> Found:
    file = disk.open(name)
    try:
        data = file.read_at(0, fmt.HEADER_SIZE)
    finally:
        file.close()
    header: fmt.Header | Flaw
    try:
        header = fmt.decode_header(data)
    except UnsupportedError as error:
        version = int.from_bytes(data[6:8], "big")
        if not is_marked or (version ^ fmt.VERSION).bit_count() > 1:
            raise UnsupportedError(f"{name}: {error}") from error
        header = Flaw(6, f"version {version}; it was {fmt.VERSION} when it was written")
    return Found(segment_number(name), name, size, header, fmt.decode_fields(data))
