"""Planted bugs, and the short look that must notice them: what all suites on a disk share."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from holdfast.disk import Buffer, OsFile
from holdfast.logs.commits import Commits
from holdfast.testing.explorer import LifeExplorer
from holdfast.testing.sim_disk import SimPosix

Patch = Callable[[pytest.MonkeyPatch], None]


class Mutants(dict[str, Patch]):
    """The bugs that one suite must catch, by name.  A call adds one: it decorates."""

    def __init__(self, *shared: Patch) -> None:
        super().__init__({patch.__name__: patch for patch in shared})

    def __call__(self, patch: Patch) -> Patch:
        self[patch.__name__] = patch
        return patch


def explore(
    explorer: LifeExplorer[Any, Any],
    sequences: Iterable[Sequence[str]],
    seeds: Iterable[int],
    faulty: Sequence[str] = ("batch", "append", "append"),
    faults: Sequence[str] = ("sync eio",),
) -> None:
    """A short form of what the whole suite does."""
    for kind in faults:
        explorer.every_fault(faulty, kind, for_ever=False)
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
    patch.setattr(Commits, "refuse_if_unwritable", lambda self: None)


BELOW_EVERY_LOG = (
    writes_are_not_synced,
    directories_are_never_synced,
    a_failed_write_does_not_poison,
)
