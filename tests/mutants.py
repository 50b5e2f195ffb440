"""Planted bugs, and the short look that must notice them: what all suites on a disk share."""

import inspect
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from holdfast import ownership
from holdfast.disk import Buffer, OsDisk, OsFile
from holdfast.handle import Handle
from holdfast.ownership import Ownership
from holdfast.testing.explorer import LifeExplorer
from holdfast.testing.meddler import WAYS
from holdfast.testing.sim_disk import SimPosix

Patch = Callable[[pytest.MonkeyPatch], None]


class Mutants(dict[str, Patch]):
    """The bugs that one suite must catch, by name.  A call adds one: it decorates."""

    def __init__(self, *shared: Patch) -> None:
        super().__init__({patch.__name__: patch for patch in shared})

    def __call__(self, patch: Patch) -> Patch:
        self[patch.__name__] = patch
        return patch


def rewrite(patch: pytest.MonkeyPatch, owner: Any, name: str, old: str, new: str) -> None:
    """Replace a piece of the source of a function, which must be there once."""
    function = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{name} has {source.count(old)} times {old!r}"
    changed: dict[str, Any] = {}
    exec(source.replace(old, new), function.__globals__, changed)
    patch.setattr(owner, name, changed[name])


def explore(
    explorer: LifeExplorer[Any, Any],
    sequences: Iterable[Sequence[str]],
    seeds: Iterable[int],
    faulty: Sequence[str] = ("batch", "append", "append"),
    faults: Sequence[str] = ("sync eio",),
    meddled: Sequence[str] = ("append", "large", "append"),
) -> None:
    """A short form of what the whole suite does."""
    for kind in faults:
        explorer.every_fault(faulty, kind, always=False)
    for kind, locks_directories in WAYS:
        explorer.every_meddling(meddled, kind, locks_directories=locks_directories)
    for sequence in sequences:
        explorer.every_crash_point(sequence)
    for seed in seeds:
        explorer.lives(seed)


def writes_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    original = OsFile.write_at

    def write_at(self: OsFile, offset: int, data: Buffer, *, sync: bool = False) -> None:
        original(self, offset, data)

    patch.setattr(OsFile, "write_at", write_at)


def directories_are_never_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimPosix, "sync_directory", lambda self, path: None)


def a_failed_write_does_not_poison(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OsFile, "_refuse_if_poisoned", lambda self: None)
    patch.setattr(Handle, "poison", lambda self, what, error: None)


def a_fork_may_write(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ownership, "refuse_fork", lambda self: None)


def the_root_is_made_again(patch: pytest.MonkeyPatch) -> None:
    """Every path is looked up by name, and what is missing is made."""
    original, opened = OsDisk._at_root, []

    def at_root(self: OsDisk, *, make: bool = False) -> int:
        opened.append(self._root)  # its descriptor stays open
        self._root = None
        return original(self, make=True)

    patch.setattr(OsDisk, "_at_root", at_root)


def only_the_lock_file_is_locked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ownership, "_lock_directory", lambda posix, directory: True)


def the_lock_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ownership, "check", Ownership.refuse_fork)


def a_second_owner_is_admitted(patch: pytest.MonkeyPatch) -> None:
    original = SimPosix.try_lock

    def try_lock(self: SimPosix, fd: int) -> bool:
        original(self, fd)
        return True

    patch.setattr(SimPosix, "try_lock", try_lock)


OF_THE_OWNER = (
    a_fork_may_write,
    the_root_is_made_again,
    only_the_lock_file_is_locked,
    the_lock_is_not_checked,
    a_second_owner_is_admitted,
)
BELOW_EVERY_LOG = (
    writes_are_not_synced,
    directories_are_never_synced,
    a_failed_write_does_not_poison,
    *OF_THE_OWNER,
)
