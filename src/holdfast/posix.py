"""The system calls behind the first door, one method each: what a simulated kernel stands in for.

Nothing is decided here; holdfast.disk says what is promised, and is the only one that calls.
"""

import contextlib
import fcntl
import mmap
import os


class Posix:
    """The system calls that OsDisk makes."""

    def open(self, path: str, flags: int) -> int:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if flags & os.O_CREAT:
            os.fchmod(fd, 0o600)
        return fd

    def close(self, fd: int) -> None:
        os.close(fd)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        return os.pread(fd, size, offset)

    def map(self, fd: int) -> memoryview:
        if os.fstat(fd).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ))

    def pwrite(self, fd: int, data: memoryview, offset: int, *, sync: bool) -> int:
        """One call, and one hand-over of the interpreter, for a write and its sync."""
        return os.pwritev(fd, [data], offset, os.RWF_DSYNC if sync else 0)

    def resize(self, fd: int, size: int) -> None:
        grown_from = os.fstat(fd).st_size
        if size > grown_from:
            os.posix_fallocate(fd, grown_from, size - grown_from)
        else:
            os.ftruncate(fd, size)

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def drop_cache(self, fd: int, offset: int) -> None:
        page = offset // mmap.PAGESIZE * mmap.PAGESIZE  # of a page in part nothing is dropped
        os.posix_fadvise(fd, page, 0, os.POSIX_FADV_DONTNEED)

    def try_lock(self, fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def lock_holder(self, fd: int) -> str:
        """The process that has the file locked, as far as the kernel tells; else nothing."""
        device, inode = (status := os.fstat(fd)).st_dev, status.st_ino
        place = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
        try:
            with open("/proc/locks", encoding="ascii") as locks:
                held = [line.split() for line in locks]
        except OSError:  # not on this system; the lock is as good
            return ""
        pids = [words[-4] for words in held if words[-3] == place and "->" not in words]
        return pids[0] if pids and pids[0] != "0" else ""

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def sizes(self, path: str) -> dict[str, int]:
        found = {}
        with os.scandir(path) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # removed by the owner meanwhile
                    if entry.is_file(follow_symlinks=False):
                        found[entry.name] = entry.stat(follow_symlinks=False).st_size
        return found

    def directories(self, path: str) -> list[str]:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]

    def link(self, path: str, new: str) -> None:
        os.link(path, new, follow_symlinks=False)

    def mkdir(self, path: str) -> None:
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)

    def rename(self, path: str, new: str) -> None:
        os.rename(path, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
