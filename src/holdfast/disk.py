"""The first door: one directory on a disk, and what it promises.

Nothing else syncs, locks or renames.  Every log and store relies on:

1. `File.write_at` promises nothing until it was called with `sync=True` or `File.sync` returned;
   then those bytes survive a power cut.
2. `Disk.create` creates a file that is whole and durable, name included, or no file at all.  Of
   many processes that create one name, one succeeds, unless they ask to replace it.
3. `Disk.rename` and `Disk.remove` are durable when they return.
4. After a failed write, resize or sync a File refuses everything: the kernel may have dropped the
   dirty pages and forgotten the error, so a retry could report a success that is not one.
5. Files are 0600 and directories 0700, regardless of the umask.
6. `Volume.sync` makes everything durable that was written through the disk, names included.
7. No name leads out of the directory: neither `..` nor a link.
8. A disk stays with the directory that it first opened.  If that is moved, the disk follows it; if
   it is removed, nothing is created in its place.
9. Only regular files are opened.

`OsDisk` calls the operating system through `holdfast.posix`, so that holdfast.testing can run this
module on a simulated kernel.
"""

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol
from urllib.parse import unquote, urlsplit

from holdfast.errors import LockedError, UnsupportedError
from holdfast.file import Buffer as Buffer
from holdfast.file import File as File
from holdfast.file import OsFile as OsFile
from holdfast.file import OsVolume, Volume
from holdfast.file import explained as explained
from holdfast.forks import disown_in_children
from holdfast.linux import check_system
from holdfast.ownership import LOCK, Ownership, own, own_file
from holdfast.posix import Descriptor
from holdfast.posix import Posix as Posix  # for tests that replace it
from holdfast.reserve import RESERVE, give_up, keep

Path = str | os.PathLike[str]
_COLLECTIONS = 5  # of garbage, before a lock of this process counts as held
_OWN = {LOCK, RESERVE}  # in the directory of every store
_TEMPORARY = ".half"  # not .tmp: MarketStore uses that for files that an operator should inspect


class Disk(Protocol):
    """One directory tree.  Names are relative, with `/` between parts."""

    def list(self, directory: str = "") -> dict[str, int]:
        """Return names and sizes of the files in one directory, sorted, without temporary files."""
        ...

    def directories(self, directory: str = "") -> Sequence[str]:
        """Return the names of the directories in one directory, sorted."""
        ...

    def create(self, name: str, data: Buffer, *, replace: bool = False) -> None:
        """Create a whole, durable file, and its directories.  FileExistsError unless `replace`."""
        ...

    def open(self, name: str, *, writable: bool = False) -> File: ...

    def make(self, name: str) -> File:
        """Open a file, or create it and its directories; a new one is durable after Volume.sync."""
        ...

    def volume(self) -> Volume: ...

    def rename(self, name: str, new: str, *, replace: bool = False) -> None:
        """Rename a file durably; FileExistsError if `new` exists, unless `replace`."""
        ...

    def link(self, name: str, new: str) -> None:
        """Give a file a second name, durably; FileExistsError if `new` exists."""
        ...

    def remove(self, *names: str) -> None:
        """Remove files durably; a crash may leave any of them."""
        ...

    def give_up_reserve(self) -> bool:
        """If the disk is full, free the space that is kept for ways out, and return True."""
        ...

    def keep_reserve(self) -> None:
        """Keep space for ways out of a full disk.  For owners; see holdfast.reserve."""
        ...

    def sync_names(self, directory: str) -> None:
        """Make the names in one directory durable, also those that a killed process has changed.

        For the directory that is locked, lock() does that.
        """
        ...

    def lock(self, name: str | None = None) -> "Lock":
        """Become the owner and remove temporary files of a dead one, or raise LockedError.

        With `name`, lock only that file, which must exist: it is the lock of another program.
        """
        ...


class Lock(Protocol):
    """See holdfast.ownership."""

    def check(self) -> None:
        """Raise NotOwnerError if this process is not the owner, or no longer."""
        ...

    def refuse_fork(self) -> None:
        """Raise NotOwnerError in a fork of the owner's process."""
        ...

    @property
    def is_ours(self) -> bool:
        """Return whether this process may write: `check` without the error."""
        ...

    def note(self, number: int) -> None:
        """Write a number for readers into LOCK, after the pid.  It is not synced."""
        ...

    def release(self) -> None: ...


class OsDisk:
    """See Disk.  Takes a path or a file:// URL; creates missing directories durably when needed."""

    def __init__(self, path: Path, *, posix: Posix | None = None) -> None:
        if posix is None:
            check_system()
        self._path, self._posix = local_path(path), posix or Posix()
        self._root: Descriptor | None = None

    @property
    def path(self) -> str:
        """Return where the directory was when it was opened."""
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
        return {n: sizes[n] for n in sorted(sizes) if not n.endswith(_TEMPORARY) and n not in _OWN}

    def create(self, name: str, data: Buffer, *, replace: bool = False) -> None:
        with self._explained(name), self._parent(name, make="durably") as (parent, base):
            if not replace:
                self._refuse_if_taken(parent, base)
            temporary, fd = self._temporary(base, parent)
            file = OsFile(self._posix, f"{self._path}/{name}", fd)
            try:
                file.write_at(0, data)
                file.sync()
                self._move((temporary, parent), (base, parent), replace=replace)
            except OSError:
                with contextlib.suppress(OSError):  # report the first error
                    self._posix.unlink(temporary, parent)  # it may hold the last free space
                raise
            finally:
                file.close()
            self._posix.sync_directory(parent)

    def open(self, name: str, *, writable: bool = False) -> OsFile:
        return self._file(name, os.O_RDWR if writable else os.O_RDONLY)

    def make(self, name: str) -> OsFile:
        flags = os.O_RDWR | os.O_CREAT
        try:
            return self._file(name, flags)
        except FileNotFoundError:
            with self._explained(name), self._parent(name, make="later"):
                return self._file(name, flags)

    def volume(self) -> OsVolume:
        return OsVolume(self._posix, self._path, self._posix.open_directory(".", self._at_root()))

    def rename(self, name: str, new: str, *, replace: bool = False) -> None:
        with self._pair(name, new) as (source, old_base, target, base):
            self._move((old_base, source), (base, target), replace=replace)
            self._posix.sync_directory(source)
            if self._parent_of(name) != self._parent_of(new):
                self._posix.sync_directory(target)

    def link(self, name: str, new: str) -> None:
        with self._pair(name, new) as (source, old_base, target, base):
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

    def give_up_reserve(self) -> bool:
        return give_up(self._posix, self._at_root())

    def keep_reserve(self) -> None:
        keep(self._posix, self._at_root())

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
                    if name.endswith(_TEMPORARY):  # its create never returned: nothing relies on it
                        self._posix.unlink(name, fd)
            # From now on, stores rely on names that a killed owner changed without a sync.
            self._posix.sync_directory(root)
            give_up(self._posix, root)
        except BaseException:
            lock.release()
            raise
        return lock

    def lock_holder(self, name: str) -> str:
        """Return the process that has a file locked, without touching the lock; else ""."""
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
        """Return the descriptor of the directory.  It is opened once: see promise 8."""
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
        """Create a directory and its missing parents, durably; return its descriptor."""
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
        """Yield the descriptor of a directory of the store.

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
        """Yield the descriptor of the directory of a file, and the file's name in it.

        `make` creates it and its missing parents, "durably" or to be synced "later".
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

    @contextmanager
    def _pair(self, name: str, new: str) -> Iterator[tuple[int, str, int, str]]:
        """Yield the directories and the names in them of two files."""
        with self._explained(new), self._parent(name) as one, self._parent(new) as two:
            yield *one, *two

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

    def _move(self, old: tuple[str, int], new: tuple[str, int], *, replace: bool) -> None:
        """Rename a file; each is a name and the descriptor of its directory."""
        move = self._posix.rename if replace else self._posix.rename_new
        with self._explained(new[0]):
            move(old[0], new[0], old[1], new[1])

    def _refuse_if_taken(self, at: int, name: str) -> None:
        if self._posix.exists(name, at):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), f"{self._path}/{name}")

    def _file(self, name: str, flags: int) -> OsFile:
        fd = self._open(self._checked(name), flags, self._at_root(make=bool(flags & os.O_CREAT)))
        file = OsFile(self._posix, f"{self._path}/{name}", fd)
        if flags & os.O_RDWR:
            disown_in_children(file)
        return file

    def _temporary(self, base: str, at: int, number: int = 0) -> tuple[str, int]:
        """Create a file that no other process writes to, nor a thread; return its name."""
        name = f"{base}{f'-{number}' if number else ''}{_TEMPORARY}"
        try:
            return name, self._open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, at)
        except FileExistsError:  # another creates it now, or was killed
            return self._temporary(base, at, number + 1)

    def _open(self, path: str, flags: int, at: int) -> int:
        with self._explained(path):
            return self._posix.open(path, flags, at)

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        """Replace an OSError by one that names the whole path, and what to do."""
        try:
            yield
        except OSError as error:
            raise explained(error, f"{self._path}/{name}") from error
        except UnsupportedError as error:
            raise UnsupportedError(f"{self._path}/{error}") from None


def local_path(path: Path) -> str:
    """Return the absolute path that a path or a file:// URL names."""
    text = os.fspath(path)
    if text.startswith("file://"):
        url = urlsplit(text)
        if url.netloc not in ("", "localhost"):
            raise ValueError(f"a file URL cannot name a host: use file://{url.path}")
        text = unquote(url.path)
    elif "://" in text:
        raise ValueError(f"a local directory is needed, not {text}")
    return os.path.abspath(text)
