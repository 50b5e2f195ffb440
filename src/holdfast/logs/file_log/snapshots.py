"""Snapshots: made whole beside the old one, then put in its place; the old ones are kept.

A snapshot of an entry that the log has, with the term it has there, compacts the log: it begins
behind that entry from then on.  Any other replaces the log altogether.
"""

from collections.abc import Iterable, Iterator

from holdfast.disk import Disk
from holdfast.formats import snapshot_file as fmt
from holdfast.logs.file_log.directory import SNAPSHOT
from holdfast.logs.file_log.history import Stamps

Data = bytes | bytearray | memoryview | Iterable[bytes]

_PIECE_SIZE = 16 * 2**20


def write_temporary(disk: Disk, index: int, term: int, data: Data, stamps: Stamps) -> str:
    """A whole, synced snapshot under another name; return that.  If `data` fails, nothing stays."""
    name = stamps.temporary(SNAPSHOT)
    head = fmt.encode_head(index, term, 0, stamps.meta())
    disk.create(name, head, replace=True)
    try:
        file = disk.open(name, writable=True)
        try:
            size = 0
            for piece in _pieces(data):
                file.write_at(len(head) + size, piece)
                size += len(piece)
            file.write_at(fmt.DATA_SIZE_OFFSET, fmt.encode_data_size(size))
            file.sync()
        finally:
            file.close()
    except BaseException:
        disk.remove(name)
        raise
    return name


def _pieces(data: Data) -> Iterator[bytes | memoryview]:
    if not isinstance(data, bytes | bytearray | memoryview):
        yield from data
        return
    view = memoryview(data).cast("B")
    for begin in range(0, len(view), _PIECE_SIZE):
        yield view[begin : begin + _PIECE_SIZE]
