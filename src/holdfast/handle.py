"""The state of an open store, and what every handle of a store has in common.

    state       refusal         read  write
    open        None            yes   yes
    damaged     CorruptError    yes   no     until it is repaired
    full        DiskFullError   yes   no     what opening must write does not fit: free space
    poisoned    PoisonedError   yes   no     a write or sync failed: close and reopen
    fenced      FencedError     no    no     another writer has taken over
    not ours    NotOwnerError   no    no     a forked child, or the lock was removed
    closed      ClosedError     no    no

Batches that were returned before stay valid after close; an iterator that is still open raises
ClosedError.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import copy
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any, Never, Self, TypeVar

from holdfast.errors import (
    ClosedError,
    CorruptError,
    DiskFullError,
    HoldfastError,
    PoisonedError,
)

Item = TypeVar("Item")

_READABLE = PoisonedError, CorruptError, DiskFullError


class Handle:
    """Whether an open store may be used.  `refusal` is the reason why not, and None while it may.

    `name` is how errors name the store: "the log /data/orders".
    """

    __slots__ = ("name", "refusal")

    def __init__(self, name: str) -> None:
        self.name = name
        self.refusal: HoldfastError | None = None

    @property
    def is_closed(self) -> bool:
        return isinstance(self.refusal, ClosedError)

    def check_read(self) -> None:
        """Raise the refusal unless the store may still be read."""
        if self.refusal is not None and not isinstance(self.refusal, _READABLE):
            raise copy(self.refusal)

    def check_write(self) -> None:
        """Raise the refusal, if there is one."""
        if self.refusal is not None:
            raise copy(self.refusal)

    def refuse(self, why: HoldfastError) -> None:
        """Refuse writes, and reads unless `why` allows them.  The first reason stays."""
        if self.refusal is None:
            self.refusal = why

    def poison(self, what: str, error: BaseException) -> None:
        """Refuse writes because `what` failed with `error`."""
        self.refuse(PoisonedError(f"{what} failed ({error!r}); close {self.name} and reopen it"))

    def close(self) -> bool:
        """Refuse everything from now on.  Return whether the store was still open."""
        was_open = not self.is_closed
        self.refusal = ClosedError(f"{self.name} is closed; open it again")
        return was_open

    def guard(self, items: Iterator[Item]) -> Iterator[Item]:
        """Yield `items` until the store is closed; then raise ClosedError."""
        for item in items:
            yield item
            self.check_read()


class Closing(ABC):
    """What is closed at the end of a `with` block, and cannot be sent to another process.

    An error of the block is not replaced by an error of close.
    """

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            self.close()
        except HoldfastError:
            if kind is None:
                raise

    def __reduce__(self) -> Never:
        kind = type(self).__name__
        raise TypeError(
            f"an open {kind} cannot be sent to another process; open the store again there"
        )


def status_html(status: Any) -> str:
    """Format a status dataclass as an HTML table, for notebooks."""
    rows = []
    for field in fields(status):
        value = getattr(status, field.name)
        if is_dataclass(value) or isinstance(value, dict):
            continue
        text = f"{len(value):,}" if isinstance(value, list | tuple) else str(value)
        name = escape(field.name.replace("_", " "))
        rows.append(f"<tr><th style='text-align:left'>{name}</th><td>{escape(text)}</td></tr>")
    return f"<table>{''.join(rows)}</table>"
