"""The tests of the owner that every store must pass, with real processes, signals and files.

    class TestMine(OwnerContract):
        kind = "shanghai"

`kind` is one of holdfast.testing.owners.stores.KINDS.  Each test is a scenario of
holdfast.testing.owners.lives, run by a process of its own.  A bucket has no owner: there
ForkContract is enough.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.testing.owners.lives import (
    EVERYWHERE,
    IN_DIRECTORIES,
    ON_OWNED_VOLUMES,
    ON_VOLUMES,
)
from holdfast.testing.owners.stores import KINDS
from holdfast.testing.owners.volumes import NAMESPACE, may_mount

_LIMIT_S = 300


class ForkContract:
    """For every store, on a bucket too."""

    kind: str

    def live(self, scenario: str, directory: Path, *before: str) -> None:
        """Run one scenario in a new process, and show its output if it failed."""
        assert self.kind in KINDS
        command = [sys.executable, "-m", "holdfast.testing.owners.lives", self.kind, scenario]
        result = subprocess.run(
            [*before, *command, str(directory / "store")],
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        assert result.returncode == 0, f"exit code {result.returncode}\n{result.stderr}"

    @pytest.mark.parametrize("scenario", EVERYWHERE)
    def test_forks_and_interruptions(self, scenario: str, tmp_path: Path) -> None:
        self.live(scenario, tmp_path)

    @pytest.mark.parametrize("scenario", ON_VOLUMES)
    def test_full_and_read_only_volumes(self, scenario: str, tmp_path: Path) -> None:
        self.live_on_a_volume(scenario, tmp_path)

    def live_on_a_volume(self, scenario: str, directory: Path) -> None:
        """Do the same for a scenario that mounts a file system."""
        if not may_mount():
            pytest.skip("this user may not mount anything, not even in a namespace")
        self.live(scenario, directory, "unshare", *NAMESPACE)


class OwnerContract(ForkContract):
    """For every store that lies in a directory."""

    @pytest.mark.parametrize("scenario", IN_DIRECTORIES)
    def test_there_is_one_owner(self, scenario: str, tmp_path: Path) -> None:
        self.live(scenario, tmp_path)

    @pytest.mark.parametrize("scenario", ON_OWNED_VOLUMES)
    def test_there_is_one_owner_on_a_volume(self, scenario: str, tmp_path: Path) -> None:
        self.live_on_a_volume(scenario, tmp_path)
