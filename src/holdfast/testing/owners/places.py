"""Owners whose directory, lock or files are moved, removed or replaced."""

import os
import shutil
import signal
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from holdfast.errors import HoldfastError, LockedError, NotOwnerError
from holdfast.testing.owners.stores import OwnedStore
from holdfast.testing.owners.tools import (
    LIMIT_S,
    compare,
    elsewhere,
    must_raise,
    must_refuse_a_second_owner,
)


def a_second_owner_is_refused_until_the_first_is_gone(kind: OwnedStore, path: Path) -> None:
    with elsewhere(kind, path, "hold") as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        error = must_raise(LockedError, lambda: kind.open(path))
        assert str(holder.pid) in str(error), error
        compare(kind, path, [1])
        holder.kill()
    store = kind.open(path)
    kind.write(store, 2)
    must_refuse_a_second_owner(kind, path)
    store.close()
    compare(kind, path, [1, 2])


def the_directory_is_moved(kind: OwnedStore, path: Path) -> None:
    store, moved = kind.open(path), path.with_name("moved")
    kind.write(store, 1)
    path.rename(moved)
    for number in range(2, 5):
        kind.write(store, number)
        kind.change(store)
    assert not path.exists(), "the owner has made the directory again"
    must_refuse_a_second_owner(kind, moved)
    other = kind.open(path)
    kind.write(other, 100)
    kind.write(store, 5)
    kind.change(store)
    other.close()
    store.close()
    compare(kind, path, [100])
    compare(kind, moved, [1, 2, 3, 4, 5])


def the_lock_is_removed(kind: OwnedStore, path: Path) -> None:
    store = kind.open(path)
    kind.write(store, 1)
    (path / "LOCK").unlink()
    must_refuse_a_second_owner(kind, path)
    kind.write(store, 2)
    must_refuse_a_second_owner(kind, path)
    kind.change(store)
    store.close()
    compare(kind, path, [1, 2])
    kind.open(path).close()


def the_lock_is_replaced(kind: OwnedStore, path: Path) -> None:
    store = kind.open(path)
    kind.write(store, 1)
    (path / "LOCK").rename(path.with_name("taken"))
    (path / "LOCK").write_bytes(b"7")
    must_refuse_a_second_owner(kind, path)
    kind.write(store, 2)
    kind.change(store)
    must_refuse_a_second_owner(kind, path)
    store.close()
    compare(kind, path, [1, 2])


def the_directory_is_removed(kind: OwnedStore, path: Path) -> None:
    store = kind.open(path)
    kind.write(store, 1)
    while path.exists():  # a background thread of the owner may still create a file in it
        shutil.rmtree(path, ignore_errors=True)
    for step in (lambda: kind.write(store, 2), lambda: kind.change(store)):
        error = must_raise(NotOwnerError, step)
        assert "removed" in str(error), error
    with suppress(HoldfastError, OSError):
        store.close()
    assert not path.exists(), "the owner has made the directory again"
    store = kind.open(path)
    kind.write(store, 7)
    store.close()
    compare(kind, path, [7])


def _fifo(place: Path, outside: Path) -> None:
    os.mkfifo(place)


def _directory(place: Path, outside: Path) -> None:
    place.mkdir()


def _link(place: Path, outside: Path) -> None:
    place.symlink_to(outside)


def _device(place: Path, outside: Path) -> None:
    try:
        os.mknod(place, 0o600 | stat.S_IFCHR, os.makedev(1, 3))  # as /dev/null
    except PermissionError:  # a socket can be made by anyone, and is as special
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(os.path.relpath(place))


def something_else_in_the_place_of_each_file(kind: OwnedStore, path: Path) -> None:
    store = kind.open(path)
    for number in range(1, 6):
        kind.write(store, number)
        kind.change(store)
    store.close()
    files = [file.relative_to(path) for file in sorted(path.rglob("*")) if file.is_file()]
    assert len(files) > 1
    signal.alarm(LIMIT_S)
    noticed = sum(
        _is_noticed(kind, path, name, make)
        for name in files
        for make in (_fifo, _directory, _link, _device)
    )
    assert noticed > len(files), "most of them must be noticed"


def _is_noticed(kind: OwnedStore, path: Path, name: Path, make: Callable[..., None]) -> bool:
    """Return whether opening or reading reports it; it must end and harm nothing outside."""
    trial, outside = path.with_name("trial"), path.with_name("outside")
    shutil.copytree(path, trial)
    (trial / name).rename(path.with_name("aside"))
    outside.write_bytes(b"must not change")
    make(trial / name, outside)
    is_noticed = False
    try:
        kind.read(trial)
    except (HoldfastError, OSError):
        is_noticed = True
    try:
        kind.open(trial).close()
    except (HoldfastError, OSError):
        is_noticed = True
        place = trial / name
        if place.is_dir() and not place.is_symlink():
            place.rmdir()
        else:
            place.unlink()
        path.with_name("aside").rename(place)
        kind.open(trial).close()
        compare(kind, trial, [1, 2, 3, 4, 5])
    assert outside.read_bytes() == b"must not change"
    shutil.rmtree(trial)
    path.with_name("aside").unlink(missing_ok=True)
    return is_noticed
