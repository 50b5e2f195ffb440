"""When a log may be changed: by its owner, one thread at a time, until a change has failed.

After a failed write nobody knows what is durable, so the log takes no more of them until it is
reopened and recovered.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.disk import Lock
from holdfast.errors import CorruptError, HoldfastError, PoisonedError
from holdfast.group_commit import GroupCommit
from holdfast.logs.log import Damage

CLOSED = "the log is closed"

Item = TypeVar("Item")
Result = TypeVar("Result")


class Commits(GroupCommit[Item]):
    """Commits of a log, refused if it is damaged, closed or not ours, or if one has failed before.

    `append` writes what has gathered; `damage` is what opening found; `lock` is the owner's.
    """

    def __init__(
        self,
        append: Callable[[Sequence[Item]], None],
        damage: Callable[[], Sequence[Damage]],
        lock: Lock,
    ) -> None:
        super().__init__(self._append_all)
        self._append, self._damage, self._lock = append, damage, lock
        self.refusal: str | None = None  # why nothing can be written any more

    def change(self, step: Callable[[], Result]) -> Result:
        """Run `step` while no commit runs.  ValueError says that it has changed nothing."""

        def guarded() -> Result:
            self.refuse_if_unwritable()
            return self.guard(step)

        return self.exclusively(guarded)

    def guard(self, step: Callable[[], Result]) -> Result:
        """The same for who has the log to themselves already, and has asked if they may."""
        try:
            return step()
        except ValueError:
            raise  # refused before anything was done
        except BaseException as error:
            self.poison("an earlier change", error)
            raise

    def poison(self, what: str, error: BaseException) -> None:
        """Let nothing be written any more."""
        self.refusal = f"{what} failed ({error!r}); close and reopen it"

    @property
    def may_finish(self) -> bool:
        """Whether closing may write: nothing has failed, and this process is the owner."""
        return self.refusal is None and self._lock.is_ours

    def refuse_if_unwritable(self) -> None:
        """Raise unless a write is safe now.  It is called before each."""
        if damage := self._damage():
            why = f"{damage[0].why}; the log is read-only until it is repaired"
            raise CorruptError(damage[0].file, damage[0].offset, why)
        if self.refusal == CLOSED:
            raise HoldfastError(CLOSED)
        if self.refusal is not None:
            raise PoisonedError(self.refusal)
        self._lock.check()

    def _append_all(self, items: Sequence[Item]) -> None:
        self.refuse_if_unwritable()
        try:
            self._append(items)
        except BaseException as error:
            self.poison("an earlier append", error)
            raise
