"""What every store must pass about its owner, with real processes, signals and file systems.

    class TestMine(OwnerContract):
        kind = "shanghai"

`kind` is one of holdfast.testing.owners.stores.KINDS.  Each test is a scenario of
holdfast.testing.owners.lives, run by a process of its own.  A bucket has no owner to deceive: there
ForkContract is enough.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.testing.owners.stores import KINDS

_LIMIT_S = 300


class ForkContract:
    """For every store, on a bucket too."""

    kind: str

    def live(self, scenario: str, directory: Path, *before: str) -> None:
        """Run one scenario in a new process, and show what it said if it failed."""
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

    def test_a_forked_child_is_refused(self, tmp_path: Path) -> None:
        self.live("a_forked_child_is_refused", tmp_path)

    def test_a_child_reads_as_a_guest_and_owns_what_is_free(self, tmp_path: Path) -> None:
        self.live("a_child_reads_as_a_guest_and_owns_what_is_free", tmp_path)

    def test_forks_among_writing_threads(self, tmp_path: Path) -> None:
        self.live("forks_among_writing_threads", tmp_path)

    def test_a_child_that_outlives_its_parent_keeps_no_lock(self, tmp_path: Path) -> None:
        self.live("a_child_that_outlives_its_parent_keeps_no_lock", tmp_path)

    def test_multiprocessing_in_every_way(self, tmp_path: Path) -> None:
        self.live("multiprocessing_in_every_way", tmp_path)

    def test_a_program_with_our_descriptors_keeps_no_lock(self, tmp_path: Path) -> None:
        self.live("a_program_with_our_descriptors_keeps_no_lock", tmp_path)

    def test_ctrl_c_at_any_moment(self, tmp_path: Path) -> None:
        self.live("ctrl_c_at_any_moment", tmp_path)


class OwnerContract(ForkContract):
    """For every store that lies in a directory."""

    def test_a_second_owner_is_refused_until_the_first_is_gone(self, tmp_path: Path) -> None:
        self.live("a_second_owner_is_refused_until_the_first_is_gone", tmp_path)

    def test_the_directory_is_moved(self, tmp_path: Path) -> None:
        self.live("the_directory_is_moved", tmp_path)

    def test_the_lock_is_removed(self, tmp_path: Path) -> None:
        self.live("the_lock_is_removed", tmp_path)

    def test_the_lock_is_replaced(self, tmp_path: Path) -> None:
        self.live("the_lock_is_replaced", tmp_path)

    def test_the_directory_is_removed(self, tmp_path: Path) -> None:
        self.live("the_directory_is_removed", tmp_path)

    def test_a_signal_handler_writes(self, tmp_path: Path) -> None:
        self.live("a_signal_handler_writes", tmp_path)

    def test_something_else_in_the_place_of_each_file(self, tmp_path: Path) -> None:
        self.live("something_else_in_the_place_of_each_file", tmp_path)

    def test_a_file_system_that_becomes_read_only(self, tmp_path: Path) -> None:
        namespace = shutil.which("unshare") or "false", "--map-root-user", "--mount"
        if subprocess.run([*namespace, "true"], check=False).returncode:
            pytest.skip("this user may not mount anything, not even in a namespace")
        self.live("a_file_system_that_becomes_read_only", tmp_path, *namespace)
