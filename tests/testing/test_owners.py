"""The owner contract is whole and notices bugs.  tests/test_store_contract.py runs it."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.testing import OwnerContract
from holdfast.testing.owners import forks, places, signals, volumes
from holdfast.testing.owners.lives import SCENARIOS


def test_every_scenario_is_in_the_contract() -> None:
    written = {
        name
        for module in (forks, places, signals, volumes)
        for name, found in inspect.getmembers(module, inspect.isfunction)
        if found.__module__ == module.__name__ and not name.startswith("_") and name != "may_mount"
    }
    assert written == set(SCENARIOS) - {"knock", "hold"}
    tests = inspect.getmembers(OwnerContract, inspect.isfunction)
    marks = [mark for _, test in tests for mark in getattr(test, "pytestmark", ())]
    run = {name for mark in marks if mark.name == "parametrize" for name in mark.args[1]}
    assert run == written


NOT_DISOWNED = "Ownership.disown = OsFile.disown = Alone.disown = lambda self: None"
PLANTED = {
    "a fork may write": (
        "shanghai",
        "a_forked_child_is_refused",
        f"{NOT_DISOWNED}; Ownership.refuse_fork = lambda self: None",
    ),
    "a child keeps the lock": (
        "raft-wal",
        "a_child_that_outlives_its_parent_keeps_no_lock",
        NOT_DISOWNED,
    ),
    "a fork of a kv writer may write": (
        "kv",
        "a_forked_child_is_refused",
        "Kv.disown = lambda self: None; wal.process_id = lambda parent=os.getpid(): parent",
    ),
    "only the file LOCK is locked": (
        "file-log",
        "the_lock_is_removed",
        "ownership._lock_directory = lambda posix, directory: True",
    ),
    "the directory is found by its path": (
        "bars",
        "the_directory_is_moved",
        "OsDisk._at_root = lambda self, make=False: self._make_root(self._path)",
    ),
    "a removed directory is not noticed": (
        "bars",
        "the_directory_is_removed",
        "Ownership.check = Ownership.refuse_fork",
    ),
    "a reader insists on a snapshot": (
        "kv",
        "readers_where_nothing_can_be_written",
        "reader._refuses_writes = lambda error: False",
    ),
    "a write that did not fit is acknowledged": (
        "shanghai",
        "a_full_disk",
        """
write = Posix.pwrite
def pwrite(self, fd, data, offset, *, sync):
    try:
        return write(self, fd, data, offset, sync=sync)
    except OSError:
        return len(data)
Posix.pwrite = pwrite""",
    ),
}
IMPORTS = """
import os
from holdfast import ownership
from holdfast.disk import OsDisk, OsFile
from holdfast.group_commit import Alone
from holdfast.kv import Kv, reader, wal
from holdfast.ownership import Ownership
from holdfast.posix import Posix
from holdfast.testing.owners.lives import main
"""


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_caught(bug: str, tmp_path: Path) -> None:
    kind, scenario, plant = PLANTED[bug]
    command = [sys.executable, "-c", f"{IMPORTS}\n{plant}\nmain()", kind, scenario]
    if hasattr(volumes, scenario):
        if not volumes.may_mount():
            pytest.skip("this user may not mount anything, not even in a namespace")
        command = ["unshare", *volumes.NAMESPACE, *command]
    result = subprocess.run(
        [*command, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 1, result.stderr
    assert "Error" in result.stderr
