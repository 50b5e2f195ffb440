"""Stores on a file system that is full, or that becomes read-only.

Each scenario mounts a small file system, so it needs a mount namespace of its own:
`unshare --map-root-user --mount`.
"""

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from holdfast.errors import DiskFullError, HoldfastError, PoisonedError
from holdfast.testing.owners.stores import OwnedStore
from holdfast.testing.owners.tools import compare, copy_as_killed, must_raise

NAMESPACE = "--map-root-user", "--mount"
SMALL, LARGE, BALLAST = 2 << 20, 32 << 20, 512 << 10
BATCH = 40


def may_mount() -> bool:
    """Return whether this user may mount a file system, in a namespace of its own."""
    unshare = shutil.which("unshare")
    command = [unshare or "false", *NAMESPACE, "true"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _mount(path: Path, *arguments: str) -> int:
    command = ["mount", *arguments, str(path)]
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode


def _volume(path: Path, size: int = SMALL) -> Path:
    """Mount an empty file system, and return the place of a store on it."""
    path.mkdir()
    assert _mount(path, "-t", "tmpfs", "-o", f"size={size}", "none") == 0
    return path / "store"


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 14))


def a_file_system_that_becomes_read_only(kind: OwnedStore, path: Path) -> None:
    place = _volume(path)
    store = kind.open(place)
    kind.write(store, 1)
    assert _mount(path, "-o", "remount,ro") != 0, "the kernel lets no one do that to an open owner"
    store.close()
    assert _mount(path, "-o", "remount,ro") == 0
    error = must_raise(OSError, lambda: kind.open(place))
    assert "Read-only" in str(error), error
    compare(kind, place, [1])
    assert _mount(path, "-o", "remount,rw") == 0
    store = kind.open(place)
    kind.write(store, 2)
    store.close()
    compare(kind, place, [1, 2])


def readers_where_nothing_can_be_written(kind: OwnedStore, path: Path) -> None:
    """On a full and on a read-only file system, after a kill and after a clean close."""
    place, killed = _volume(path, LARGE), path / "killed"  # a copy of a sparse file is not sparse
    store = kind.open(place)
    kind.write(store, 1)
    kind.change(store)
    kind.write(store, 2)
    copy_as_killed(place, killed)
    store.close()
    _fill(path / "ballast")
    for copy in (place, killed):
        compare(kind, copy, [1, 2])
    (path / "ballast").unlink()
    assert _mount(path, "-o", "remount,ro") == 0
    for copy in (place, killed):
        compare(kind, copy, [1, 2])


def a_full_disk(kind: OwnedStore, path: Path) -> None:
    """The owner reports it; all that was acknowledged is there; with space it goes on."""
    place, ballast = _volume(path), path / "ballast"
    ballast.write_bytes(bytes(BALLAST))
    store, written = kind.open(place), list[int]()

    def write_without_end() -> None:
        while len(written) < SMALL // 4:  # less than a number takes in any format
            batch = range(len(written) + 1, len(written) + 1 + BATCH)
            kind.write(store, *batch)
            written.extend(batch)

    # What is written in the background fails first in some stores: the next commit is refused.
    error = must_raise((DiskFullError, PoisonedError), write_without_end)
    assert "No space left" in str(error), error
    assert len(written) > BATCH, "the disk was full before anything was acknowledged"
    _holds(kind.scan(store), written)
    with suppress(HoldfastError, OSError):  # it was reported already
        store.close()
    _holds(kind.read(place), written)
    ballast.unlink()
    store = kind.open(place)
    shown = kind.scan(store)
    _holds(shown, written)
    kind.write(store, len(shown) + 1)
    store.close()
    compare(kind, place, [*shown, len(shown) + 1])


def _holds(shown: list[int], written: list[int]) -> None:
    """All that was acknowledged, and at most a prefix of the batch that failed."""
    count = len(shown)
    assert shown == [*range(1, count + 1)], "not what was written"
    assert len(written) <= count <= len(written) + BATCH, f"{count} of {len(written)}"
