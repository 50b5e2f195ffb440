"""An OsDisk on simulated system calls.  The fault model: holdfast.testing.sim_posix"""

from random import Random

from holdfast.disk import OsDisk
from holdfast.testing.faults import FAILING as FAILING
from holdfast.testing.faults import Fault as Fault
from holdfast.testing.faults import PowerLost as PowerLost
from holdfast.testing.platter import (
    Inode,
    files_in,
    landed,
)
from holdfast.testing.sim_posix import SimPosix as SimPosix

ROOT = "/sim"
MOVED = "/sim.moved"  # where another process may have moved it


class SimDisk(OsDisk):
    """An OsDisk whose kernel and platter are simulated.

    >>> disk = SimDisk()
    >>> disk.create("x", b"durable")
    >>> disk.open("x", writable=True).write_at(0, b"perhaps")
    >>> disk.files()["x"]
    b'perhaps'
    >>> disk.after_power_cut(Random(7)).files()["x"]  # one of many images
    b'perhale'
    """

    def __init__(self, posix: SimPosix | None = None, path: str = ROOT) -> None:
        if posix is None:
            posix = SimPosix()
            posix.mkdir(ROOT)
            posix.sync_directory("/")
            posix.operations = posix.calls = 0
            posix.trace.clear()
        self.posix = posix
        super().__init__(path, posix=posix)

    def after_power_cut(self, random: Random) -> "SimDisk":
        return self._on(self.posix.after_power_cut(random))

    def after_kill(self) -> "SimDisk":
        self.posix.kill()
        self.forget_process()
        return self

    def forget_process(self) -> None:
        """Forget the descriptors, as after the end of the process; find the directory by name."""
        self._root, self._path = None, self._place_on(self.posix)

    def copy_after_kill(self) -> "SimDisk":
        return self._on(self.posix.copy_after_kill())

    def _on(self, posix: SimPosix) -> "SimDisk":
        """Return the same directory on another platter."""
        disk = SimDisk.__new__(SimDisk)  # the path is known to be absolute
        disk.posix = disk._posix = posix
        disk._path, disk._root = self._place_on(posix), None
        return disk

    def _place_on(self, posix: SimPosix) -> str:
        """Return where the directory is now: it may have been moved."""
        if self._path == ROOT or self._path == MOVED:
            return MOVED if MOVED[1:] in posix._root.live else ROOT
        return self._path

    def files(self) -> dict[str, bytes]:
        """Return the files in and below the directory, as a reader finds them."""
        return dict(files_in(self.posix._directory(self._path)))

    def replace_content(self, name: str, data: bytes | None) -> None:
        """Give a file other bytes, durably; None removes it."""
        directory, base = self.posix._parent(f"{self._path}/{name}")
        if data is None:
            for names in (directory.live, directory.durable):
                names.pop(base, None)
        else:
            directory.live[base] = directory.durable[base] = Inode(data, data)

    def flip(self, name: str, bit: int) -> None:
        """Flip one bit."""
        directory, name = self.posix._parent(f"{self._path}/{name}")
        node = directory.live[name]
        assert isinstance(node, Inode)
        damaged = node.live[bit // 8] ^ 1 << bit % 8
        node.live = node.durable = landed(node.live, bit // 8, bytes([damaged]))
        self.posix.fired["bit flip"] += 1
