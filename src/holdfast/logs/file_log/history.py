"""Replace files and keep the old ones, named as the original does: snapshots, states, logs.

snap-2024-01-02-030405-6780     when, to the millisecond, then a number in base 36
snap.tmp-4242-1                 a file that process 4242 is writing
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing

from holdfast.disk import Disk
from holdfast.formats import snapshot_file
from holdfast.formats.token_file import Meta
from holdfast.logs.file_log.directory import SNAPSHOT
from holdfast.runtime import Runtime, from_rfc3339, to_rfc3339

KEPT_MAX = 60  # old snapshots and old states, of each

Data = bytes | bytearray | memoryview | Iterable[bytes]

_PIECE_SIZE = 16 * 2**20
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_DATE = r"-\d{4}-\d\d-\d\d-\d{6}-\d{3}[0-9a-z]+"


class Stamps:
    """Dates and numbers for names.  A log has one, so that no two names are equal."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._last_ms, self._number, self._temporary = -1, 0, 0

    def meta(self) -> Meta:
        return Meta(iso_time(self._runtime.now_ms()), self._runtime.hostname())

    def history(self, name: str, taken: Callable[[str], bool]) -> str:
        """Return the next free name under which to keep the present `name`."""
        while True:
            moment_ms = self._runtime.now_ms()
            self._number = self._number + 1 if moment_ms == self._last_ms else 0
            self._last_ms = moment_ms
            date, _, time = iso_time(moment_ms).partition("T")
            digits = f"{time[:8].replace(':', '')}-{time[9:12]}"
            found = f"{name}-{date}-{digits}{_base36(self._number)}"
            if not taken(found):
                return found

    def temporary(self, name: str) -> str:
        self._temporary += 1
        return f"{name}.tmp-{self._runtime.process_id()}-{_base36(self._temporary)}"


def iso_time(unix_ms: int) -> str:
    """Format a time as JavaScript does: 2024-01-02T03:04:05.678Z"""
    whole, _, fraction = to_rfc3339(unix_ms)[:-1].partition(".")
    return f"{whole}.{fraction:0<3}Z"


def created_ms(meta: Meta) -> int:
    """Return when a file was created; 0 if its date cannot be parsed."""
    try:
        return from_rfc3339(meta.created)
    except (ValueError, TypeError):
        return 0


def kept(disk: Disk, name: str) -> list[str]:
    """Return the names of the old files that `name` has replaced, oldest first."""
    pattern = re.compile(re.escape(name) + _DATE, re.ASCII)
    return [each for each in disk.list() if pattern.fullmatch(each)]


def replace(disk: Disk, temporary: str, name: str, old: str) -> None:
    """Durably replace a file by a complete, synced one; keep the present one as `old`."""
    names = disk.list()
    if name in names and old not in names:  # it is there already if a crash interrupted this
        disk.link(name, old)
    disk.rename(temporary, name, replace=True)
    if surplus := kept(disk, name)[:-KEPT_MAX]:
        disk.remove(*surplus)


def sweep(disk: Disk, name: str, needed: str = "") -> None:
    """Remove the temporary files of `name` that previous processes have left."""
    left = [n for n in disk.list() if n.startswith(f"{name}.tmp-") and n != needed]
    if left:
        disk.remove(*left)


def write_snapshot(disk: Disk, index: int, term: int, data: Data, stamps: Stamps) -> str:
    """Write and sync a snapshot under a temporary name; return that name.

    If `data` raises, the file is removed.
    """
    name = stamps.temporary(SNAPSHOT)
    head = snapshot_file.encode_head(index, term, 0, stamps.meta())
    disk.create(name, head, replace=True)
    try:
        with closing(disk.open(name, writable=True)) as file:
            size = 0
            for piece in _pieces(data):
                file.write_at(len(head) + size, piece)
                size += len(piece)
            file.write_at(snapshot_file.DATA_SIZE_OFFSET, snapshot_file.encode_data_size(size))
            file.sync()
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


def _base36(number: int) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits
