"""One owner: every store against forks, moves, removed locks, signals and strange files."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.testing import OwnerContract
from holdfast.testing.owners.contract import ForkContract
from holdfast.testing.owners.lives import SCENARIOS


class TestShanghai(OwnerContract):
    kind = "shanghai"


class TestRaftWal(OwnerContract):
    kind = "raft-wal"


class TestFileLog(OwnerContract):
    kind = "file-log"


class TestBars(OwnerContract):
    kind = "bars"


class TestKv(ForkContract):
    kind = "kv"


def test_every_scenario_is_in_the_contract() -> None:
    text = inspect.getsource(inspect.getmodule(OwnerContract) or OwnerContract)
    scenarios = set(SCENARIOS) - {"knock", "hold"}
    assert {name for name in scenarios if f'"{name}"' not in text} == set()


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
        "Db.disown = lambda self: None; wal.process_id = lambda parent=os.getpid(): parent",
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
}
IMPORTS = """
import os
from holdfast import ownership
from holdfast.disk import OsDisk, OsFile
from holdfast.group_commit import Alone
from holdfast.kv import Db, wal
from holdfast.ownership import Ownership
from holdfast.testing.owners.lives import main
"""


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_caught(bug: str, tmp_path: Path) -> None:
    kind, scenario, plant = PLANTED[bug]
    command = [sys.executable, "-c", f"{IMPORTS}\n{plant}\nmain()", kind, scenario]
    result = subprocess.run(
        [*command, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 1, result.stderr
    assert "Error" in result.stderr
