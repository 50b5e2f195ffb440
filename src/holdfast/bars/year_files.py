"""Year files that are open for writing."""

from collections import OrderedDict
from contextlib import closing

from holdfast.bars.catalog import CATEGORIES, CATEGORY
from holdfast.disk import Disk, File
from holdfast.formats import year_file as fmt


class Files:
    """Year files that are open for writing, up to a limit.

    Nothing written here is durable before the volume is synced.
    """

    def __init__(self, disk: Disk, open_max: int) -> None:
        self._disk, self._open_max = disk, open_max
        self._open: OrderedDict[str, File] = OrderedDict()  # oldest first
        self._named: set[str] = set()  # category files that are right

    def get(self, path: str) -> File:
        file = self._open.get(path)
        if file is None:
            self._make_room()
            file = self._open[path] = self._disk.open(path, writable=True)
        return file

    def make(self, path: str, header: fmt.Header) -> None:
        """Create a year file or write its header again, with the category files above it."""
        parts = path.split("/")
        for depth, category in enumerate(CATEGORIES):
            self._name_category("/".join([*parts[:depth], CATEGORY]), category)
        self._make_room()
        file = self._disk.make(path)
        self._open.pop(path, None)
        self._open[path] = file
        # Also if it looks right: after a sync that failed the cache shows what the disk lacks.
        for offset, block in fmt.encode_header_blocks(header):
            file.write_at(offset, block)
        file.extend(header.stop)

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _make_room(self) -> None:
        while len(self._open) >= self._open_max:
            self._open.popitem(last=False)[1].close()

    def _name_category(self, name: str, category: bytes) -> None:
        if name in self._named:
            return
        with closing(self._disk.make(name)) as file:
            file.write_at(0, category)
        self._named.add(name)
