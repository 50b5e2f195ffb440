"""One file of a disk, and its file system: what they promise is in holdfast.disk."""

import errno
from typing import Protocol

from holdfast.errors import DiskFullError, HoldfastError, NotOwnerError, PoisonedError
from holdfast.posix import FULL, Descriptor, Posix

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """A file open for positional reads and writes."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Read `size` bytes, or fewer at the end of the file."""
        ...

    def map(self) -> memoryview:
        """Map the whole file in its current size, without a copy.  Only for files that never
        shrink.
        """
        ...

    def write_at(self, offset: int, data: Buffer, *, sync: bool = False) -> None:
        """Write all of `data`, growing the file if need be; with `sync`, durably."""
        ...

    def resize(self, size: int) -> None:
        """Cut the file, or reserve space for it: growth is real blocks that read as zeros."""
        ...

    def sync(self, *, forget_from: int | None = None) -> None:
        """Make all that was written durable, the file's size included.

        Later reads after byte `forget_from` come from the disk.  After a failed sync, also one of a
        previous process, the page cache may show bytes as clean that the disk does not hold.
        """
        ...

    def extend(self, size: int) -> None:
        """Grow the file to `size`, if it is smaller, by a hole that takes no space."""
        ...

    def size(self) -> int: ...

    def allocated(self) -> int:
        """Return the bytes that the file takes on the disk; holes take none."""
        ...

    def extents(self, start: int, stop: int) -> "list[tuple[int, int]]":
        """Return the parts from `start` to `stop` that may hold anything but zeros, in order."""
        ...

    def last_extent(self, start: int, stop: int) -> "tuple[int, int] | None":
        """Return the last such part: after it are only zeros.  Parts before it are not examined."""
        ...

    def close(self) -> None: ...


class OsFile:
    """See File.  One thread writes at a time; any number may read."""

    def __init__(self, posix: Posix, path: str, fd: int) -> None:
        self._posix, self._path, self._fd = posix, path, fd
        self._poison: HoldfastError | None = None

    def read_at(self, offset: int, size: int) -> bytes:
        self._refuse_if_poisoned()
        data = self._posix.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]  # a read over 2 GiB comes back short before the end
        got = len(data)
        while got < size and (data := self._posix.pread(self._fd, size - got, offset + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def map(self) -> memoryview:
        self._refuse_if_poisoned()
        return self._posix.map(self._fd)

    def write_at(self, offset: int, data: Buffer, *, sync: bool = False) -> None:
        self._refuse_if_poisoned()
        try:
            written = self._posix.pwrite(self._fd, data, offset, sync=sync)
            while written < len(data):
                rest = memoryview(data)[written:]
                written += self._posix.pwrite(self._fd, rest, offset + written, sync=sync)
        except OSError as error:
            raise self._poisoned_by(error) from error

    def resize(self, size: int) -> None:
        self._refuse_if_poisoned()
        try:
            self._posix.resize(self._fd, size)
        except OSError as error:
            raise self._poisoned_by(error) from error

    def extend(self, size: int) -> None:
        self._refuse_if_poisoned()
        try:
            self._posix.extend(self._fd, size)
        except OSError as error:
            raise self._poisoned_by(error) from error

    def size(self) -> int:
        return self._posix.size(self._fd)

    def allocated(self) -> int:
        return self._posix.allocated(self._fd)

    def extents(self, start: int, stop: int) -> list[tuple[int, int]]:
        return self._posix.extents(self._fd, start, stop)

    def last_extent(self, start: int, stop: int) -> tuple[int, int] | None:
        return self._posix.last_extent(self._fd, start, stop)

    def sync(self, *, forget_from: int | None = None) -> None:
        self._refuse_if_poisoned()
        try:
            self._posix.fdatasync(self._fd)
            if forget_from is not None:
                self._posix.drop_cache(self._fd, forget_from)  # only clean pages, and now all are
        except OSError as error:
            raise self._poisoned_by(error) from error

    def close(self) -> None:
        if self._fd >= 0:
            try:
                self._posix.close(self._fd)
            finally:  # also after Ctrl-C: another file may get this number
                self._fd = -1

    __del__ = close  # a reader may hold the last reference to a file of a previous segment

    def disown(self) -> None:
        """See holdfast.forks."""
        self._poison = NotOwnerError(
            f"{self._path} was opened by the process that this one is a fork of; "
            "open the store read-only here"
        )
        self.close()

    def _refuse_if_poisoned(self) -> None:
        if self._poison is not None:
            raise self._poison

    def _poisoned_by(self, error: OSError) -> OSError:
        why = f"an earlier write or sync failed ({error.strerror})"
        self._poison = PoisonedError(f"{self._path}: {why}; close and reopen the store")
        return explained(error, self._path)


class Volume(Protocol):
    """The file system of a disk.  Open it before the writes that it has to sync."""

    def sync(self) -> None:
        """Make all writes to all files durable, with all sizes and names."""
        ...

    def close(self) -> None: ...


class OsVolume:
    """See Volume in holdfast.disk.  One call syncs all files: one by one takes too long."""

    def __init__(self, posix: Posix, path: str, fd: int) -> None:
        self._posix, self._path, self._directory = posix, path, Descriptor(posix, fd)

    def sync(self) -> None:
        if self._directory.fd < 0:
            raise PoisonedError("the volume is closed, or its sync has failed; reopen the store")
        try:
            self._posix.syncfs(self._directory.fd)
        except OSError as error:
            self.close()  # the kernel would not report it a second time
            raise explained(error, self._path) from error

    def close(self) -> None:
        self._directory.close()


def explained(error: OSError, path: str) -> OSError:
    """Return the same error with the path, and with advice if the disk is full."""
    if isinstance(error, HoldfastError):
        return error
    if error.errno == errno.ELOOP:
        why = "a symbolic link; put the file or directory itself in its place"
        return OSError(error.errno, why, path)
    if error.errno == errno.EISDIR:
        return OSError(error.errno, "a directory, where a file is expected; move it away", path)
    if error.errno == errno.EROFS:
        return OSError(error.errno, f"{error.strerror}: open it read-only", path)
    if error.errno not in FULL:
        return OSError(error.errno, error.strerror, path)
    advice = "free some space and reopen; what was acknowledged is safe"
    return DiskFullError(error.errno, f"{error.strerror}: {advice}", path)
