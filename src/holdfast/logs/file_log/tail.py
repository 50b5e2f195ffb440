"""The last index file, judged: which of its entries count, and what a crash has left of others.

Invariant: entries, and behind them a record of the slots they are to get, are synced before a slot
of theirs is written, and these are synced before anything else is.  So

1. slots that a crash has torn are in that record, which is whole: they are written again;
2. without a whole record no slot was being written, and every slot counts;
3. a record whose entries did not arrive means nothing, and goes.

That is for files written here.  The original syncs entries and slots at once, and without a record:
after a crash a slot may point to what never arrived.  If that shows, because it is past the end of
the file or where nothing but zeros is, those entries were not acknowledged, and are cut off.
"""

from dataclasses import dataclass

import numpy as np

from holdfast.disk import File
from holdfast.formats import rlog, rlog_commit
from holdfast.formats.flaw import Flaw
from holdfast.formats.rlog_commit import FOOTER_SIZE, Commit
from holdfast.formats.rlog_entry import ENTRY_HEADER_SIZE, Offsets, bad_headers


@dataclass(slots=True)
class TailState:
    """What the last file holds."""

    slots: rlog.Slots  # all of them, and ours to change
    count: int  # entries that count
    size: int  # of the file, less a record of ours at its end
    redo: Commit | None = None  # whose slots must be written again
    torn: Flaw | None = None  # slots behind `count` that point to nothing
    sound: int = 0  # entries that can be relied on; fewer than `count` only if ...
    flaw: Flaw | None = None  # ... something is wrong that no crash of ours leaves

    @property
    def stop(self) -> int:
        """Where the last entry ends, counted as ends are."""
        return int(self.slots[self.count - 1]) if self.count else 0


def judge_tail(file: File, head: rlog.Head, size: int) -> TailState:
    """Look at slots, record and the last entry; change nothing."""
    table = file.read_at(rlog.TABLE_START, rlog.SLOT_SIZE * head.header.capacity)
    slots = rlog.decode_slots(table).copy()
    used = rlog.count_used(slots)
    state = TailState(slots, used, size)
    commit = read_commit(file, head, size)
    if commit is not None and _is_about(commit, slots, used):
        here = slice(commit.first_slot, commit.first_slot + len(commit.ends))
        if np.array_equal(slots[here], commit.ends):
            state.size = size - commit.size
        elif rlog_commit.is_data_of(commit, _data_of(file, head, commit)):
            state.size, state.redo, state.count = size - commit.size, commit, commit.first_slot
        elif state.stop <= size - commit.size - head.data_start:
            state.size = size - commit.size  # or what is written next might complete its entries
    _judge_entries(state, file, head)
    return state


def read_commit(file: File, head: rlog.Head, size: int) -> Commit | None:
    """The record at the end of a file, if it is whole."""
    if size < head.data_start + rlog_commit.record_size(1):
        return None
    footer = file.read_at(size - FOOTER_SIZE, FOOTER_SIZE)
    length = rlog_commit.size_in_footer(footer, head.header.capacity)
    if not length or size - length < head.data_start:
        return None
    commit = rlog_commit.decode_commit(file.read_at(size - length, length))
    if commit is None or head.data_start + commit.stop > size - length:
        return None
    return commit


def _is_about(commit: Commit, slots: rlog.Slots, used: int) -> bool:
    """Does it follow on the entries that are there?"""
    first = commit.first_slot
    if first > used or first + len(commit.ends) > len(slots):
        return False
    return commit.start == (int(slots[first - 1]) if first else 0)


def _data_of(file: File, head: rlog.Head, commit: Commit) -> bytes:
    return file.read_at(head.data_start + commit.start, commit.stop - commit.start)


def _judge_entries(state: TailState, file: File, head: rlog.Head) -> None:
    ends = state.slots[: state.count]
    state.sound = rlog.count_ordered(ends)
    if state.sound < state.count:
        at = rlog.TABLE_START + rlog.SLOT_SIZE * state.sound
        state.flaw = Flaw(at, f"slot {state.sound} and the next do not follow on each other")
        return
    there = int(np.searchsorted(ends, state.size - head.data_start, "right"))
    if there < state.count:
        why = f"an offset points past the data, which ends at byte {state.size}"
        state.torn = Flaw(rlog.TABLE_START + rlog.SLOT_SIZE * there, why)
    elif there and _bad_entries(file, head, ends[-1:], int(ends[-2]) if there > 1 else 0):
        there -= _bad_entries(file, head, ends, 0)
        why = "an offset points to what is no entry"
        state.torn = Flaw(rlog.TABLE_START + rlog.SLOT_SIZE * there, why)
    state.count = state.sound = there


def _bad_entries(file: File, head: rlog.Head, ends: rlog.Slots, start: int) -> int:
    """How many of the entries with these ends, the last ones, do not look like entries."""
    bounds = np.concatenate([[start], ends]).astype(np.int64)
    size = int(bounds[-1]) - start
    data = memoryview(file.read_at(head.data_start + start, size))
    bad = bad_entries(data, bounds - start)
    sound = np.flatnonzero(~bad)
    return len(bad) - (int(sound[-1]) + 1 if len(sound) else 0)


def bad_entries(data: memoryview, bounds: Offsets) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Which of the entries between these bounds cannot be entries."""
    bad = np.diff(bounds) < ENTRY_HEADER_SIZE
    if not bad.any():
        return bad_headers(data, bounds[:-1])
    fit = np.flatnonzero(~bad)
    bad[fit] = bad_headers(data, bounds[:-1][fit])
    return bad
