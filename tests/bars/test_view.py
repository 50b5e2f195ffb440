"""Which changes of the logs are in the year files already."""

from collections.abc import Sequence

import pytest

from holdfast.bars.view import Change, complete, encode_plan
from holdfast.formats import market_wal as fmt


def group(tgid: int) -> Change:
    place = fmt.encode_place(fmt.FIXED, "A/1D/BAR/2020.bin", 2020, 1)
    write = fmt.encode_write(tgid, fmt.encode_set(place, [1], bytes(4), 4), 1)
    return Change(write.group, "log")


def plan(tgid: int, *covers: int) -> Change:
    return Change(fmt.encode_write(tgid, *encode_plan(covers, {})).group, "log")


def completed(changes: Sequence[Change], *recorded: int) -> list[int]:
    """Return the tgids that are done if the log records these."""
    for change in changes:
        change.is_done = change.tgid in recorded
    complete(changes)
    return [change.tgid for change in changes if change.is_done]


@pytest.mark.parametrize(
    ("recorded", "done"),
    [
        ((), []),
        ((1,), [1, 3]),  # the plan that covers it
        ((3,), [1, 3]),
        ((2,), [1, 2, 3, 4]),  # all before it
        ((4,), [1, 2, 3, 4]),
    ],
)
def test_what_was_written_together_is_done_together(recorded: list[int], done: list[int]) -> None:
    changes = [group(1), group(2), plan(3, 1), plan(4, 2), group(5)]
    assert completed(changes, *recorded) == done


def test_a_plan_is_done_if_a_later_one_is_also_without_its_groups() -> None:
    """The log with group 1 and its record was removed; carried out again, plan 3 would undo 4."""
    assert completed([group(2), plan(3, 1), plan(4, 2), group(5)], 4) == [2, 3, 4]
    assert completed([plan(3, 1), group(5), plan(6, 5)], 5) == [3, 5, 6]
    assert completed([plan(3, 1), group(5)]) == []
