import pickle
from dataclasses import dataclass, field

import pytest

from holdfast.errors import (
    ClosedError,
    CorruptError,
    FencedError,
    HoldfastError,
    NotOwnerError,
    PoisonedError,
)
from holdfast.handle import Closing, Handle, status_html

STATES = [
    (CorruptError("file", 7, "checksum mismatch"), True),
    (PoisonedError("an earlier append failed"), True),
    (FencedError("writer 1 was fenced by writer 2"), False),
    (NotOwnerError("a fork"), False),
    (ClosedError("closed"), False),
]


@pytest.mark.parametrize(("refusal", "readable"), STATES, ids=lambda one: type(one).__name__)
def test_each_state_allows_what_the_table_says(refusal: HoldfastError, readable: bool) -> None:
    handle = Handle("the log orders")
    handle.check_read()
    handle.check_write()
    handle.refuse(refusal)
    with pytest.raises(type(refusal)) as raised:
        handle.check_write()
    assert raised.value is not refusal  # each caller gets an error with a traceback of its own
    assert str(raised.value) == str(refusal)
    if readable:
        handle.check_read()
    else:
        with pytest.raises(type(refusal)):
            handle.check_read()


def test_the_first_reason_stays_until_close() -> None:
    handle = Handle("the log orders")
    handle.poison("an append", OSError(5, "Input/output error"))
    handle.refuse(FencedError("later"))
    with pytest.raises(PoisonedError, match=r"an append failed .*Input/output.*the log orders"):
        handle.check_write()
    assert handle.close()
    assert not handle.close()
    assert handle.is_closed
    with pytest.raises(ClosedError, match="the log orders is closed"):
        handle.check_read()


def test_an_open_iterator_ends_with_the_store() -> None:
    handle = Handle("the log orders")
    items = handle.guard(iter([1, 2, 3]))
    assert next(items) == 1
    handle.close()
    with pytest.raises(ClosedError):
        next(items)


class Store(Closing):
    def __init__(self, error: HoldfastError | None = None) -> None:
        self.error, self.closes = error, 0

    def close(self) -> None:
        self.closes += 1
        if self.error is not None:
            raise self.error


def test_an_error_of_the_block_is_not_replaced() -> None:
    store = Store(PoisonedError("close failed"))
    with pytest.raises(KeyError), store:
        raise KeyError("the first error")
    assert store.closes == 1
    with pytest.raises(PoisonedError), store:
        pass


def test_an_open_store_cannot_be_pickled() -> None:
    with pytest.raises(TypeError, match="open Store cannot be sent"):
        pickle.dumps(Store())


@dataclass
class Status:
    path: str = "<orders>"
    entries: int = 3
    segments: list[str] = field(default_factory=lambda: ["a", "b"])


def test_a_status_is_a_table_in_a_notebook() -> None:
    text = status_html(Status())
    assert "&lt;orders&gt;" in text
    assert "<th style='text-align:left'>segments</th><td>2</td>" in text
