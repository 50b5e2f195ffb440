"""The scenarios of the owner contract, one process after the other, for a torture."""

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from holdfast.testing.lives import BrokenPromiseError
from holdfast.testing.owners.volumes import NAMESPACE, may_mount

FORKS = ("a_forked_child_is_refused", "a_child_that_outlives_its_parent_keeps_no_lock")
PLACES = ("the_directory_is_moved", "the_lock_is_removed", "the_lock_is_replaced")
VOLUMES = ("a_full_disk", "readers_where_nothing_can_be_written")


class OwnerRounds:
    """Lives of owners that are forked, moved, robbed of their lock, or run out of space."""

    def __init__(self, format: str, directory: Path, turn: int = 0) -> None:
        self._format, self._directory, self._turn = format, directory, turn
        self.impossible = () if may_mount() else VOLUMES
        scenarios = (*FORKS, *(PLACES if format != "kv" else ()), *VOLUMES)
        self.scenarios = [name for name in scenarios if name not in self.impossible]
        self.counts: Counter[str] = Counter(dict.fromkeys(self.scenarios, 0))
        self._life: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the next scenario, in a process and a directory of its own."""
        scenario = self.scenarios[self._turn % len(self.scenarios)]
        self._place = self._directory / f"life-{self._turn}"
        self._place.mkdir()
        command = [sys.executable, "-m", "holdfast.testing.owners.lives", self._format, scenario]
        if scenario in VOLUMES:
            command = ["unshare", *NAMESPACE, *command]
        with (self._place / "errors").open("wb") as errors:
            self._life = subprocess.Popen(
                [*command, str(self._place / "store")],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                process_group=0,
            )

    @property
    def is_running(self) -> bool:
        return self._life is not None and self._life.poll() is None

    def judge(self) -> None:
        """Wait for the end.  BrokenPromiseError if the scenario has failed."""
        assert self._life is not None
        code, self._life = self._life.wait(), None
        scenario = self.scenarios[self._turn % len(self.scenarios)]
        self._turn += 1
        if code:
            lines = (self._place / "errors").read_text(errors="replace").strip().splitlines()
            raise BrokenPromiseError("broken", f"{scenario}: {lines[-1] if lines else code}")
        shutil.rmtree(self._place)
        self.counts[scenario] += 1

    def stop(self) -> None:
        if self._life is not None:
            self._life.kill()
            self._life.wait()
