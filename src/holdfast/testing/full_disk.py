"""A disk that fills up at any change, and stays full until a way out was taken.

Another program uses up all space at one change of a life.  The life ends there, or it goes on until
it ends by an error or is done.  Then the process is killed, or the power fails, and the disk is
still full:

1. If the store still has its reserve, the next owner opens it, and every way out works.
2. Without a reserve the owner opens the store, or it is read-only, or the open is refused, with
   DiskFullError.  What does not fit is not cut: not a byte of the store is changed.
3. Nothing that was acknowledged is lost, and what recovery has cut off is in a .cut file.
4. As soon as space is freed, the store can be opened and written.
"""

from fnmatch import fnmatch
from itertools import count
from random import Random
from typing import Any, Generic, TypeVar

from holdfast.errors import DiskFullError, HoldfastError
from holdfast.ownership import LOCK
from holdfast.posix import Posix
from holdfast.reserve import RESERVE
from holdfast.testing.explorer import LifeExplorer, undisturbed
from holdfast.testing.lives import BrokenPromiseError, Ledger, Mortal
from holdfast.testing.sim_disk import SimDisk

Life = TypeVar("Life", bound=Mortal[Any])


class FullDisks(Generic[Life, Ledger]):
    """Fills the disk of one kind of store; `explorer.fired` counts what came of it."""

    def __init__(
        self,
        explorer: LifeExplorer[Life, Ledger],
        *,
        has_reserve: bool = True,
        has_quota: bool = False,
    ) -> None:
        self._explorer, self._fired = explorer, explorer.fired
        self._reserve_size, self._has_quota = has_reserve * Posix.reserve_size, has_quota

    def explore(self, *sequence: str, first: int = 0, step: int = 1) -> None:
        """Let the disk fill up at each change of this sequence, in turn; or at each `step`-th."""
        with undisturbed():
            for at in count(first, step):
                if not self._fills(sequence, at):
                    return

    def _fills(self, sequence: tuple[str, ...], at: int) -> bool:
        """Run one life.  False if it ended before change number `at`."""
        explorer, disk = self._explorer, SimDisk()
        posix, ledger = disk.posix, explorer.new_ledger()
        random = Random(f"{explorer.seed}/{sequence}/{at}")
        life = explorer.new_life(disk, ledger, random)

        images: list[tuple[SimDisk, Ledger]] = []

        def crash() -> None:
            images.append((disk.copy_after_kill(), ledger.copy()))
            for _ in range(3):
                images.append((disk.after_power_cut(random), ledger.copy()))

        def fill() -> None:
            if posix.operations == at:
                posix.fill_up()
                crash()

        posix.fired, posix.witness = self._fired, fill
        posix.reserve_size, posix.has_quota = self._reserve_size, self._has_quota
        self._live(life, sequence)
        if posix.space is None:
            return False
        crash()
        for image, promised in images:
            try:
                self._outlive(image, promised, random)
            except BrokenPromiseError as error:
                error.add_note(f"in {sequence}, the disk is full from change {at} on")
                raise
        return True

    def _live(self, life: Life, sequence: tuple[str, ...]) -> None:
        try:
            life.begin()
            for name in sequence:
                self._explorer.steps()[name](life)
            life.close()
        except HoldfastError:  # any other error than one of ours is a bug
            if life.disk.posix.space is None:
                raise

    def _outlive(self, disk: SimDisk, ledger: Ledger, random: Random) -> None:
        """Open a store on a full disk, look for a way out, and then free space."""
        before = disk.files()
        disk.posix.fill_up()
        has_reserve = 0 < self._reserve_size <= len(before.get(RESERVE, b""))
        life = self._explorer.new_life(disk, ledger, random)
        try:
            self._begin(life)
        except DiskFullError as error:
            if has_reserve:
                raise BrokenPromiseError("hidden", f"it has a reserve: {error}") from error
            self._fired["refused"] += 1
        else:
            if life.refusal is None:
                self._fired["opened"] += 1
                self._take_ways_out(life, has_reserve=has_reserve)
            elif has_reserve:
                raise BrokenPromiseError("hidden", f"read-only with a reserve: {life.refusal}")
            else:
                self._fired["read-only"] += 1
                self._is_read_only(life, before)
        disk = disk.after_kill()
        disk.posix.space = None  # an operator has freed space
        life = self._explorer.new_life(disk, ledger, random)
        self._begin(life)
        life.go_on()
        life.look()

    def _begin(self, life: Life) -> None:
        before = life.disk.files()
        life.begin()
        self._is_kept(before, life.disk.files())

    def _take_ways_out(self, life: Life, *, has_reserve: bool) -> None:
        for name in self._explorer.ways_out:
            try:
                self._explorer.steps()[name](life)
            except HoldfastError as error:
                if has_reserve:
                    raise BrokenPromiseError("stuck", f"{name}: {error}") from error
                return
            self._fired["way out"] += 1
        life.look()

    def _is_read_only(self, life: Life, before: dict[str, bytes]) -> None:
        try:
            life.go_on()
        except DiskFullError as error:
            if "nothing was cut" in str(error):
                self._fired["not cut"] += 1
                if _content(life.disk.files()) != _content(before):
                    raise BrokenPromiseError("changed", f"in spite of: {error}") from error
        else:
            raise BrokenPromiseError("changed", "a read-only store was written")
        life.settle()
        life.look()

    def _is_kept(self, before: dict[str, bytes], after: dict[str, bytes]) -> None:
        """Compare bytes: what recovery has removed from the end of a file is in a .cut file."""
        cuts = [data for name, data in after.items() if name.endswith(".cut")]
        for name in before.keys() & after.keys():
            if fnmatch(name, self._explorer.cut_files):
                stop = len(after[name].rstrip(b"\0"))
                lost = before[name][stop:].strip(b"\0")
                is_record = lost.startswith(self._explorer.record_start)
                if lost and not is_record and not any(lost in cut for cut in cuts):
                    what = f"{len(lost)} bytes at the end of {name} are in no .cut file"
                    raise BrokenPromiseError("discarded", what)


def _content(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if name not in (LOCK, RESERVE)}
