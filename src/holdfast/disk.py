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
8. A disk stays with the directory that it first opened.  If that is moved, the disk follows it; if
   it is removed, nothing is made in its place.
9. Only regular files are opened.

`OsDisk` reaches the operating system through `holdfast.posix`, so that holdfast.testing can put a
simulated kernel under these very lines.
"""

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol
from urllib.parse import unquote, urlsplit

from holdfast.errors import (
    LockedError,
    UnsupportedError,
)
from holdfast.file import Buffer as Buffer
from holdfast.file import File as File
from holdfast.file import OsFile as OsFile
from holdfast.file import explained as explained
from holdfast.forks import disown_in_children
from holdfast.ownership import LOCK, Ownership, own, own_file
from holdfast.posix import Descriptor, OsVolume
from holdfast.posix import Posix as Posix  # for those who put another in its place

Path = str | os.PathLike[str]
_COLLECTIONS = 5  # of garbage, before a lock of this very process counts as held
_TEMPORARY = ".half"  # not .tmp: MarketStore names so what an operator should look at


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
    """See holdfast.ownership."""

    def check(self) -> None:
        """Raise NotOwnerError if this process is not the owner, or not any more."""
        ...

    def refuse_fork(self) -> None:
        """Raise NotOwnerError in a fork of the owner's process."""
        ...

    @property
    def is_ours(self) -> bool:
        """Whether this process may write: `check` without the error."""
        ...

    def release(self) -> None: ...


class OsDisk:
    """See Disk.  A path or a file:// URL; what is missing of it is made, durably, when needed."""

    def __init__(self, path: Path, *, posix: Posix | None = None) -> None:
        self._path = os.path.abspath(_local_path(os.fspath(path)))
        self._posix = posix or Posix()
        self._root: Descriptor | None = None

    @property
    def path(self) -> str:
        """Where the directory was when it was opened."""
        return self._path

    def __repr__(self) -> str:
        return f"OsDisk({self._path!r})"

    def __str__(self) -> str:
        return self._path

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return OsDisk, (self._path,)  # a task in another process opens the directory for itself

    def directories(self, directory: str = "") -> Sequence[str]:
        with self._opened(directory) as fd:
            return sorted(self._posix.directories(fd))

    def list(self, directory: str = "") -> dict[str, int]:
        with self._opened(directory) as fd:
            sizes = self._posix.sizes(fd)
        return {n: sizes[n] for n in sorted(sizes) if not n.endswith(_TEMPORARY) and n != LOCK}

    def create(self, name: str, data: Buffer, *, replace: bool = False) -> None:
        with self._parent(name, make="durably") as (parent, base):
            if not replace:
                self._refuse_if_taken(parent, base)
            temporary, path = base + _TEMPORARY, f"{self._path}/{name}"
            flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY
            file = OsFile(self._posix, path, self._open(temporary, flags, parent))
            try:
                file.write_at(0, data)
                file.sync()
            except OSError:
                with contextlib.suppress(OSError):  # the first error is the one to report
                    self._posix.unlink(temporary, parent)  # it may hold the last free space
                raise
            finally:
                file.close()
            self._posix.rename(temporary, base, parent, parent)
            self._posix.sync_directory(parent)

    def open(self, name: str, *, writable: bool = False) -> OsFile:
        flags = os.O_RDWR if writable else os.O_RDONLY
        return self._file(name, flags)

    def make(self, name: str) -> OsFile:
        flags = os.O_RDWR | os.O_CREAT
        try:
            return self._file(name, flags)
        except FileNotFoundError:
            with self._parent(name, make="later"):
                return self._file(name, flags)

    def volume(self) -> OsVolume:
        return OsVolume(self._posix, self._posix.open_directory(".", self._at_root()))

    def rename(self, name: str, new: str, *, replace: bool = False) -> None:
        with self._parent(name) as (source, old_base), self._parent(new) as (target, base):
            if not replace:
                self._refuse_if_taken(target, base)
            self._posix.rename(old_base, base, source, target)
            self._posix.sync_directory(source)
            if self._parent_of(name) != self._parent_of(new):
                self._posix.sync_directory(target)

    def link(self, name: str, new: str) -> None:
        with self._parent(name) as (source, old_base), self._parent(new) as (target, base):
            self._refuse_if_taken(target, base)
            self._posix.link(old_base, base, source, target)
            self._posix.sync_directory(target)

    def remove(self, *names: str) -> None:
        for parent in dict.fromkeys(map(self._parent_of, names)):
            with self._opened(parent) as fd:
                for name in names:
                    if self._parent_of(name) == parent:
                        self._posix.unlink(name.rpartition("/")[2], fd)
                self._posix.sync_directory(fd)

    def sync_names(self, directory: str) -> None:
        with self._opened(directory) as fd:
            self._posix.sync_directory(fd)

    def lock(self, name: str | None = None) -> Ownership:
        if name is not None:
            return self._own(self._checked(name))
        root = self._at_root(make=True)
        lock = self._own(LOCK)
        try:
            with self._opened("") as fd:
                for name in self._posix.sizes(fd):
                    if name.endswith(_TEMPORARY):  # its create never returned: nobody relies on it
                        self._posix.unlink(name, fd)
            # What a killed owner renamed or removed without syncing is about to be relied on.
            self._posix.sync_directory(root)
        except BaseException:
            lock.release()
            raise
        return lock

    def lock_holder(self, name: str) -> str:
        """The process that has a file locked, found without touching the lock; else nothing."""
        with contextlib.closing(self.open(name)) as file:
            return self._posix.lock_holder(file._fd)

    def _own(self, name: str) -> Ownership:
        """Own the directory by its LOCK, or only a file of another name."""
        take = own if name == LOCK else partial(own_file, name=name)
        with self._explained(name):
            for _ in range(_COLLECTIONS):
                try:
                    return take(self._posix, self._path, self._at_root())
                except LockedError as error:
                    if error.holder not in ("", str(self._posix.process_id())):
                        raise
                # An owner that was interrupted as it was opened, or a copy that exec is closing.
                self._posix.collect()
            return take(self._posix, self._path, self._at_root())

    # Names and descriptors

    def _checked(self, name: str) -> str:
        if not name or name[0] == "/" or "\0" in name or ".." in name.split("/"):
            raise ValueError(f"{name!r} is not a name inside {self._path}")
        return name

    def _parent_of(self, name: str) -> str:
        return self._checked(name).rpartition("/")[0]

    def _at_root(self, *, make: bool = False) -> int:
        """The descriptor of the directory.  It is opened once: see promise 8."""
        if self._root is None:
            try:
                fd = self._posix.open_directory(self._path)
            except FileNotFoundError:
                if not make:
                    raise
                fd = self._make_root(self._path)
            self._root = Descriptor(self._posix, fd)
        return self._root.fd

    def _make_root(self, path: str) -> int:
        """Make a directory and all above it that is missing, durably; return its descriptor."""
        with contextlib.suppress(FileNotFoundError):
            return self._posix.open_directory(path)
        above, _, base = path.rpartition("/")
        parent = self._make_root(above or "/")
        try:
            self._make_directory(base, parent)
            self._posix.sync_directory(parent)
        finally:
            self._posix.close(parent)
        return self._posix.open_directory(path)

    @contextmanager
    def _opened(self, directory: str) -> Iterator[int]:
        """A directory of the store, open for as long as it takes.

        For listing, the root is opened too: readers of one descriptor share its position.
        """
        root = self._at_root()
        with self._explained(directory):
            fd = self._posix.open_directory(self._checked(directory) if directory else ".", root)
        try:
            yield fd
        finally:
            self._posix.close(fd)

    @contextmanager
    def _parent(self, name: str, *, make: str = "") -> Iterator[tuple[int, str]]:
        """The directory of a file, open, and the file's name in it.

        `make` it, and what is missing above it, "durably" or to be synced "later".
        """
        directory, _, base = self._checked(name).rpartition("/")
        root = self._at_root(make=bool(make))
        if not directory:
            yield root, base
            return
        if make:
            self._make_directories(directory, durably=make == "durably")
        with self._opened(directory) as fd:
            yield fd, base

    def _make_directories(self, directory: str, *, durably: bool) -> None:
        with contextlib.suppress(FileNotFoundError), self._opened(directory):
            return
        above, _, base = directory.rpartition("/")
        if above:
            self._make_directories(above, durably=durably)
        with self._opened(above) as fd:
            self._make_directory(base, fd)
            if durably:
                self._posix.sync_directory(fd)

    def _make_directory(self, name: str, at: int) -> None:
        with contextlib.suppress(FileExistsError):  # another process was faster
            self._posix.mkdir(name, at)

    def _refuse_if_taken(self, at: int, name: str) -> None:
        if self._posix.exists(name, at):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), f"{self._path}/{name}")

    def _file(self, name: str, flags: int) -> OsFile:
        fd = self._open(self._checked(name), flags, self._at_root(make=bool(flags & os.O_CREAT)))
        file = OsFile(self._posix, f"{self._path}/{name}", fd)
        if flags & os.O_RDWR:
            disown_in_children(file)
        return file

    def _open(self, path: str, flags: int, at: int) -> int:
        with self._explained(path):
            return self._posix.open(path, flags, at)

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        """Errors name the whole path, and what to do."""
        try:
            yield
        except OSError as error:
            raise explained(error, f"{self._path}/{name}") from error
        except UnsupportedError as error:
            raise UnsupportedError(f"{self._path}/{error}") from None


def _local_path(path: str) -> str:
    if path.startswith("file://"):
        return unquote(urlsplit(path).path)
    if "://" in path:
        raise ValueError(f"this lives in a local directory, not at {path}")
    return path
