"""A bucket in a directory, as durable as the disk: several processes may share it.

An object is written to a temporary file beside its place and synced.  Then it is linked to its own
name, which fails if the name is taken, and the directory is synced.  So a name appears with all of
its bytes, or not at all.

Other processes can see the name before that last sync, when a power cut may still remove it.  So a
bucket syncs a directory before it shows an object that is newer than its last sync of the
directory.  After a failed sync of a directory the bucket refuses everything.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter

from holdfast.bucket.bucket import (
    Buffer,
    ObjectInfo,
    checked,
    checked_prefix,
    checked_range,
)
from holdfast.disk import OsDisk, OsFile, Path, explained
from holdfast.errors import PoisonedError, UnsupportedError
from holdfast.posix import Descriptor, Posix
from holdfast.reserve import RESERVE, give_up, keep
from holdfast.runtime import now_ms

_TEMPORARY = "~"  # no object's name has it
# The kernel stamps files by a clock that ticks every few milliseconds.
_TICK_MS = 25


@dataclass(frozen=True, slots=True)
class Status:
    """A file's size and times; a new name for it counts as a change."""

    size: int
    modified_ms: int
    changed_ms: int


class BucketPosix(Posix):
    """The system calls that a bucket needs beyond those of a disk."""

    def status(self, file: str | int) -> Status:
        """Return the status of a path or a descriptor; FileNotFoundError unless it is a file."""
        found = os.stat(file) if isinstance(file, int) else os.lstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file)
        return Status(found.st_size, found.st_mtime_ns // 1_000_000, found.st_ctime_ns // 1_000_000)

    def names(self, path: str) -> tuple[list[str], list[str]]:
        """Return the files and the directories in a directory."""
        files, directories = [], []
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    files.append(entry.name)
                elif entry.is_dir(follow_symlinks=False):
                    directories.append(entry.name)
        return files, directories


class DirectoryBucket:
    """See Bucket.  Missing directories are created when needed: 0700, and the objects 0600."""

    def __init__(
        self,
        path: Path,
        *,
        posix: BucketPosix | None = None,
        clock: Callable[[], int] = now_ms,
        token: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._path = OsDisk(path).path
        self._posix = posix or BucketPosix()
        self._clock, self._token = clock, token
        self._synced_ms: dict[str, int] = {}  # names older than that are durable, by directory
        self._poison = ""

    def __repr__(self) -> str:
        return f"DirectoryBucket({self._path!r})"

    def __str__(self) -> str:
        return self._path

    @property
    def path(self) -> str:
        return self._path

    def get(self, name: str) -> bytes:
        return self._read(name, 0, None)

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        return self._read(name, start, checked_range(start, stop))

    def put_if_absent(
        self, name: str, data: Buffer, *, metadata: Mapping[str, str] | None = None
    ) -> None:
        path = self._at(name)
        if self._posix.exists(path):
            raise self._taken(name, path)
        temporary = self._write_beside(path, data)
        try:
            self._posix.link(temporary, path)
        except FileExistsError:
            raise self._taken(name, path) from None
        except OSError as error:
            raise _without_links(error, self._path) from error
        finally:
            self._posix.unlink(temporary)
        self._sync(os.path.dirname(path))

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        self._refuse_if_poisoned()
        return sorted(self._found(checked_prefix(prefix), after), key=attrgetter("name"))

    def delete(self, *names: str) -> None:
        parents = set()
        for path in [self._at(name) for name in names]:
            with contextlib.suppress(FileNotFoundError):
                self._posix.unlink(path)
                parents.add(os.path.dirname(path))
        for parent in parents:
            self._sync(parent)

    def copy(self, source: str, destination: str) -> None:
        path = self._at(destination)
        temporary = self._write_beside(path, self.get(source))
        try:
            self._posix.rename(temporary, path)
        except OSError as error:
            raise explained(error, path) from error
        self._sync(os.path.dirname(path))

    def sweep(self, before_ms: int) -> int:
        """See Sweepable."""
        self._refuse_if_poisoned()
        return self._sweep(self._path, before_ms)

    def give_up_reserve(self) -> bool:
        """See HasReserve."""
        with self._root() as root:
            return root is not None and give_up(self._posix, root)

    def keep_reserve(self) -> None:
        """See HasReserve."""
        with self._root() as root:
            if root is not None:
                keep(self._posix, root)

    @contextlib.contextmanager
    def _root(self) -> Iterator[int | None]:
        """The directory, open; None if nothing was created in it yet."""
        try:
            fd = self._posix.open_directory(self._path)
        except FileNotFoundError:
            yield None
            return
        with contextlib.closing(Descriptor(self._posix, fd)) as root:
            yield root.fd

    def _read(self, name: str, start: int, size: int | None) -> bytes:
        path = self._at(name)
        try:
            fd = self._posix.open(path, os.O_RDONLY)
            with contextlib.closing(OsFile(self._posix, path, fd)) as file:
                status = self._posix.status(fd)
                stop = status.size if size is None else min(start + size, status.size)
                data = file.read_at(start, stop - start) if start < stop else b""
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise FileNotFoundError(errno.ENOENT, f"no object {name}", self._path) from None
        self._show(os.path.dirname(path), status.changed_ms)
        return data

    def _write_beside(self, path: str, data: Buffer) -> str:
        temporary = f"{path}{_TEMPORARY}{self._token()}"
        file = OsFile(self._posix, path, self._create(temporary))
        try:
            file.write_at(0, data, sync=True)
            if not data:
                file.sync()  # nothing was written, but the file must exist
        except OSError:
            with contextlib.suppress(OSError):  # report the first error
                self._posix.unlink(temporary)  # it may hold the last free space
            raise
        finally:
            file.close()
        return temporary

    def _create(self, path: str) -> int:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        try:
            try:
                return self._posix.open(path, flags)
            except FileNotFoundError:
                self._make_directory(os.path.dirname(path))
                return self._posix.open(path, flags)
        except OSError as error:
            raise explained(error, path) from error

    def _found(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        directory = f"{self._path}/{prefix}".rstrip("/")
        try:
            files, directories = self._posix.names(directory)
        except (FileNotFoundError, NotADirectoryError):
            return
        changed_ms = -1
        for name in files:
            if prefix + name > after and _TEMPORARY not in name and prefix + name != RESERVE:
                with contextlib.suppress(FileNotFoundError):  # removed by another meanwhile
                    status = self._posix.status(f"{directory}/{name}")
                    changed_ms = max(changed_ms, status.changed_ms)
                    yield ObjectInfo(prefix + name, status.size, status.modified_ms)
        if changed_ms >= 0:
            self._show(directory, changed_ms)
        for name in directories:
            yield from self._found(f"{prefix}{name}/", after)

    def _sweep(self, directory: str, before_ms: int) -> int:
        swept = 0
        files, directories = self._posix.names(directory)
        for path in [f"{directory}/{name}" for name in files if _TEMPORARY in name]:
            with contextlib.suppress(FileNotFoundError):  # its owner lives, and was faster
                if self._posix.status(path).modified_ms < before_ms:
                    self._posix.unlink(path)
                    swept += 1
        return swept + sum(self._sweep(f"{directory}/{name}", before_ms) for name in directories)

    def _taken(self, name: str, path: str) -> FileExistsError:
        """Sync the directory: the process that created the object may not have done so yet."""
        self._sync(os.path.dirname(path))
        return FileExistsError(errno.EEXIST, f"object {name} exists", self._path)

    def _show(self, directory: str, changed_ms: int) -> None:
        if changed_ms >= self._synced_ms.get(directory, 0):
            self._sync(directory)

    def _sync(self, directory: str) -> None:
        try:
            if directory not in self._synced_ms:
                self._sync_way_to(directory)
            began_ms = self._clock()
            self._posix.sync_directory(directory)
        except OSError as error:
            self._poison = f"a sync of {directory} failed ({error.strerror})"
            raise explained(error, directory) from error
        self._synced_ms[directory] = began_ms - _TICK_MS

    def _sync_way_to(self, directory: str) -> None:
        """Sync the parents: another process may have created one, and not synced it yet."""
        while directory != os.path.dirname(self._path):
            directory = os.path.dirname(directory)
            # The parent of the bucket may be another user's, and unreadable.
            with contextlib.suppress(PermissionError):
                self._posix.sync_directory(directory)

    def _make_directory(self, path: str) -> None:
        if self._posix.exists(path):
            return
        parent = os.path.dirname(path)
        self._make_directory(parent)
        with contextlib.suppress(FileExistsError):  # another process was faster
            self._posix.mkdir(path)
        self._posix.sync_directory(parent)

    def _at(self, name: str) -> str:
        self._refuse_if_poisoned()
        return f"{self._path}/{checked(name)}"

    def _refuse_if_poisoned(self) -> None:
        if self._poison:
            raise PoisonedError(f"{self._poison}; reopen the bucket")


def _without_links(error: OSError, path: str) -> Exception:
    if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
        return explained(error, path)
    return UnsupportedError(
        f"the file system of {path} has no hard links; use another for a bucket"
    )
