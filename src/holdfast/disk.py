"""The first door to the world: one directory on a disk, and what it promises.

Nothing else syncs, locks or renames.  Every log and store relies on:

1. `File.write_at` promises nothing until it was called with `sync=True` or `File.sync` returned;
   then those bytes survive a power cut.
2. `Disk.create` makes a file that is whole and durable, name included, or no file at all.
3. `Disk.rename` and `Disk.remove` are durable when they return.
4. After a failed write, resize or sync a File refuses everything: the kernel may have dropped
   the dirty pages and forgotten the error, so a retry could report a lie as success.
5. Files are 0600 and directories 0700, whatever the umask.
6. `Volume.sync` makes durable whatever was written through the disk, names included.
7. No name leads out of the directory: not by its words, and not by a link.

`OsDisk` reaches the operating system through `holdfast.posix`, so that holdfast.testing can put a
simulated kernel under these very lines.
"""

import contextlib
import errno
import os
from collections.abc import Sequence
from typing import Protocol
from urllib.parse import unquote, urlsplit

from holdfast.errors import DiskFullError, LockedError, PoisonedError
from holdfast.posix import FULL, OsLock, OsVolume
from holdfast.posix import Posix as Posix  # for those who put another in its place

Path = str | os.PathLike[str]
Buffer = bytes | bytearray | memoryview
_TEMPORARY = ".half"  # not .tmp: MarketStore names so what an operator should look at
_LOCK = "LOCK"


class File(Protocol):
    """A file open for positional reads and writes."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Read `size` bytes, or fewer where the file ends."""
        ...

    def map(self) -> memoryview:
        """The whole file as it is now, without a copy.  Only for files that never shrink."""
        ...

    def write_at(self, offset: int, data: Buffer, *, sync: bool = False) -> None:
        """Write all of `data`, growing the file if need be; with `sync`, durably."""
        ...

    def resize(self, size: int) -> None:
        """Cut the file, or reserve space for it: growth is real blocks that read as zeros."""
        ...

    def sync(self, *, forget_from: int | None = None) -> None:
        """Make all that was written durable, the file's size included.

        Later reads behind byte `forget_from` come from the disk: after a sync that failed, in an
        earlier life perhaps, the cache goes on showing, as clean, what the disk does not hold.
        """
        ...

    def extend(self, size: int) -> None:
        """Grow the file to `size`, if it is smaller, by a hole that takes no space."""
        ...

    def size(self) -> int: ...

    def extents(self, start: int, stop: int) -> "list[tuple[int, int]]":
        """The parts between `start` and `stop` that may hold anything but zeros, in order."""
        ...

    def last_extent(self, start: int, stop: int) -> "tuple[int, int] | None":
        """Such a part, with nothing but zeros behind it, found without a look at what is before."""
        ...

    def close(self) -> None: ...


class Volume(Protocol):
    """What all files of a disk lie on.  Open it before the writes that it shall vouch for."""

    def sync(self) -> None:
        """Make durable all that was written, in any file, all sizes and all names."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """One directory tree.  Names are relative, with `/` between parts."""

    def list(self, directory: str = "") -> dict[str, int]:
        """Names and sizes of the files in one directory, sorted; nothing half made."""
        ...

    def directories(self, directory: str = "") -> Sequence[str]:
        """Names of the directories in one directory, sorted."""
        ...

    def create(self, name: str, data: Buffer, *, replace: bool = False) -> None:
        """Make a whole, durable file, and its directories.  FileExistsError unless `replace`."""
        ...

    def open(self, name: str, *, writable: bool = False) -> File: ...

    def make(self, name: str) -> File:
        """Open what is there, or a new file in new directories; durable only by Volume.sync."""
        ...

    def volume(self) -> Volume: ...

    def rename(self, name: str, new: str, *, replace: bool = False) -> None:
        """Durably rename; FileExistsError if `new` is there, unless `replace`."""
        ...

    def link(self, name: str, new: str) -> None:
        """Durably give a file a second name; FileExistsError if `new` is there."""
        ...

    def remove(self, *names: str) -> None:
        """Durably remove; of several, a crash may leave any."""
        ...

    def sync_names(self, directory: str) -> None:
        """Make durable what a killed process has made, renamed or removed in one directory.

        For the directory that is locked, lock() does that.
        """
        ...

    def lock(self, name: str | None = None) -> "Lock":
        """Become the owner, sweep up what a dead owner left half made, or raise LockedError.

        With `name`, hold that file, which must exist, and no more: the lock of another program.
        """
        ...


class Lock(Protocol):
    def release(self) -> None: ...


class OsFile:
    """See File.  One thread writes at a time; any number may read."""

    def __init__(self, posix: Posix, path: str, fd: int) -> None:
        self._posix, self._path, self._fd = posix, path, fd
        self._poison: str | None = None

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
            self._posix.close(self._fd)
            self._fd = -1

    __del__ = close  # a reader may be the last to let go of a file that was rotated away

    def _refuse_if_poisoned(self) -> None:
        if self._poison:
            raise PoisonedError(f"{self._path}: {self._poison}; close and reopen the store")

    def _poisoned_by(self, error: OSError) -> OSError:
        self._poison = f"an earlier write or sync failed ({error.strerror})"
        return explained(error, self._path)


class OsDisk:
    """See Disk.  A path or a file:// URL; what is missing of it is made, durably, when needed."""

    def __init__(self, path: Path, *, posix: Posix | None = None) -> None:
        self._path = os.path.abspath(_local_path(os.fspath(path)))
        self._posix = posix or Posix()
        self._inside = {self._path}  # directories that are known to be ones, and no links

    @property
    def path(self) -> str:
        return self._path

    def __repr__(self) -> str:
        return f"OsDisk({self._path!r})"

    def __str__(self) -> str:
        return self._path

    def directories(self, directory: str = "") -> Sequence[str]:
        return sorted(self._posix.directories(self._directory(directory)))

    def list(self, directory: str = "") -> dict[str, int]:
        sizes = self._posix.sizes(self._directory(directory))
        return {n: sizes[n] for n in sorted(sizes) if not n.endswith(_TEMPORARY) and n != _LOCK}

    def create(self, name: str, data: Buffer, *, replace: bool = False) -> None:
        path = self._at(name, free=not replace)
        self._make_directory(os.path.dirname(path))
        flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY
        file = OsFile(self._posix, path, self._open(path + _TEMPORARY, flags))
        try:
            file.write_at(0, data)
            file.sync()
        except OSError:
            with contextlib.suppress(OSError):  # the first error is the one to tell
                self._posix.unlink(path + _TEMPORARY)  # it may hold the last free space
            raise
        finally:
            file.close()
        self._posix.rename(path + _TEMPORARY, path)
        self._sync_parents(path)

    def open(self, name: str, *, writable: bool = False) -> OsFile:
        path = self._at(name)
        flags = os.O_RDWR if writable else os.O_RDONLY
        return OsFile(self._posix, path, self._open(path, flags))

    def make(self, name: str) -> OsFile:
        path = self._at(name)
        self._make_directory(os.path.dirname(path), durably=False)
        return OsFile(self._posix, path, self._open(path, os.O_RDWR | os.O_CREAT))

    def volume(self) -> OsVolume:
        return OsVolume(self._posix, self._posix.open_directory(self._path))

    def rename(self, name: str, new: str, *, replace: bool = False) -> None:
        source, target = self._at(name), self._at(new, free=not replace)
        self._posix.rename(source, target)
        if source in self._inside:  # a directory, so what was below is not there any more
            moved = f"{source}/"
            self._inside = {path for path in self._inside if not f"{path}/".startswith(moved)}
        self._sync_parents(source, target)

    def link(self, name: str, new: str) -> None:
        target = self._at(new, free=True)
        self._posix.link(self._at(name), target)
        self._sync_parents(target)

    def remove(self, *names: str) -> None:
        paths = [self._at(name) for name in names]
        for path in paths:
            self._posix.unlink(path)
        self._sync_parents(*paths)

    def sync_names(self, directory: str) -> None:
        self._posix.sync_directory(self._at(directory))

    def lock(self, name: str | None = None) -> OsLock:
        if name is not None:
            return self._lock(name, os.O_RDWR)
        self._make_directory(self._path)
        lock = self._lock(_LOCK, os.O_CREAT | os.O_RDWR)
        try:
            lock.sign()
            for name in self._posix.sizes(self._path):
                if name.endswith(_TEMPORARY):  # its create never returned, so nobody relies on it
                    self._posix.unlink(os.path.join(self._path, name))
            # What a killed owner renamed or removed without syncing is about to be relied on.
            self._posix.sync_directory(self._path)
        except BaseException:
            lock.release()
            raise
        return lock

    def lock_holder(self, name: str) -> str:
        """The process that has a file locked, told without touching the lock; else nothing."""
        with contextlib.closing(self.open(name)) as file:
            return self._posix.lock_holder(file._fd)

    def _lock(self, name: str, flags: int) -> OsLock:
        fd = self._open(self._at(name), flags)
        if self._posix.try_lock(fd):
            return OsLock(self._posix, fd)
        holder = self._posix.lock_holder(fd)
        if name == _LOCK:
            holder = self._posix.pread(fd, 20, 0).decode("ascii", "replace").strip()
        self._posix.close(fd)
        raise LockedError(
            f"{self._path} is owned by process {holder or 'unknown'}; "
            "stop it, or open the store read-only"
        )

    def _at(self, name: str, *, free: bool = False) -> str:
        if not name or name[0] == "/" or "\0" in name or ".." in name.split("/"):
            raise ValueError(f"{name!r} is not a name inside {self._path}")
        path = f"{self._path}/{name}"
        if "/" in name and (parent := path[: path.rindex("/")]) not in self._inside:
            self._refuse_links(parent)
        if free and self._posix.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return path

    def _directory(self, name: str) -> str:
        if not name:
            return self._path
        path = self._at(name)
        self._refuse_links(path)
        return path

    def _refuse_links(self, directory: str) -> None:
        """A link could lead out of the root, and names come from files that others wrote."""
        if directory in self._inside:
            return
        self._refuse_links(os.path.dirname(directory))
        if self._posix.is_link(directory):
            raise OSError(errno.ELOOP, "a link, not a directory of this store", directory)
        if self._posix.exists(directory):
            self._inside.add(directory)

    def _sync_parents(self, *paths: str) -> None:
        for parent in {path[: path.rindex("/")] for path in paths}:
            self._posix.sync_directory(parent)

    def _open(self, path: str, flags: int) -> int:
        try:
            return self._posix.open(path, flags)
        except OSError as error:
            raise explained(error, path) from error

    def _make_directory(self, path: str, *, durably: bool = True) -> None:
        known = not durably and path in self._inside and path != self._path
        if known or self._posix.exists(path):
            return
        parent = os.path.dirname(path)
        self._make_directory(parent, durably=durably)
        with contextlib.suppress(FileExistsError):  # another process was faster
            self._posix.mkdir(path)
            self._inside.add(path)
        if durably:
            self._posix.sync_directory(parent)


def explained(error: OSError, path: str) -> OSError:
    """The same, with the path, and with advice where the disk is full."""
    if error.errno not in FULL:
        return OSError(error.errno, error.strerror, path)
    advice = "free some space and reopen; what was acknowledged is safe"
    return DiskFullError(error.errno, f"{error.strerror}: {advice}", path)


def _local_path(path: str) -> str:
    if path.startswith("file://"):
        return unquote(urlsplit(path).path)
    if "://" in path:
        raise ValueError(f"this lives in a local directory, not at {path}")
    return path
