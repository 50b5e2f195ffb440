"""The cost of a change does not grow with the number of segments."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from holdfast.logs.raft_wal import RaftWal, RaftWalReader, segment_list
from holdfast.testing.sim_disk import SimDisk

FEW, MANY = 40, 400
ROOM = 150  # calls that depend on the sizes of files and not on the segments


def calls(work: Callable[[], object]) -> int:
    """Count the functions that are called, those of C too: the same on every machine."""
    count = 0

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


class Grown:
    """A log of so many segments, and a reader of it."""

    def __init__(self, segments: int) -> None:
        self.disk = SimDisk()
        self.wal = RaftWal(self.disk, segment_size_max=4096, segment_fill_ms=None)
        for _ in range(segments):
            self.turn()
        self.reader = RaftWalReader(self.disk)
        for _ in range(2):  # what is done once, at the first time
            self.turn()
            self.reader.refresh()

    def turn(self) -> None:
        self.wal.append([b"entry"])
        self.wal.rotate()

    def follow(self) -> int:
        self.turn()
        count = calls(self.reader.refresh)
        assert self.reader.last_index == self.wal.last_index
        return count


@pytest.fixture(scope="module")
def grown() -> tuple[Grown, Grown]:
    return Grown(FEW), Grown(MANY)


def test_a_rotation_costs_the_same_with_many_segments(grown: tuple[Grown, Grown]) -> None:
    few, many = (calls(one.turn) for one in grown)
    assert many < few + ROOM, f"{few} calls with {FEW} segments, {many} with {MANY}"


def test_a_reader_that_follows_costs_the_same(grown: tuple[Grown, Grown]) -> None:
    few, many = (one.follow() for one in grown)
    assert many < few + ROOM, f"{few} calls with {FEW} segments, {many} with {MANY}"


def test_a_reader_with_nothing_new_costs_the_same(grown: tuple[Grown, Grown]) -> None:
    few, many = (calls(one.reader.refresh) for one in grown)
    assert many <= few


def test_a_planted_bug_is_found(
    grown: tuple[Grown, Grown], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every segment is looked at when one is added."""

    def reopened(old: Any, new: Any, segments: Any, open: Any) -> Any:
        had = {segment.meta: segment for segment in segments}
        return tuple(had.get(meta) or open(meta, segments[-1]) for meta in new)

    monkeypatch.setattr(segment_list, "reopened", reopened)
    few, many = (calls(one.turn) for one in grown)
    assert many > few + ROOM


def test_a_reader_that_follows_sees_what_a_new_one_sees() -> None:
    disk = SimDisk()
    wal = RaftWal(disk, segment_size_max=300, segment_fill_ms=None)
    wal.append([b"0"])
    follower = RaftWalReader(disk)
    acts: list[Callable[[], object]] = [
        lambda: wal.append([b"entry"] * 3),
        wal.rotate,
        lambda: wal.append([b"x" * 200]),
        lambda: wal.truncate_head(wal.first_index + 2),
        lambda: wal.set(b"k", b"v"),
        lambda: wal.truncate_tail(wal.last_index - 1),
        lambda: wal.append([b"other"]),
        lambda: [wal.append([b"y" * 90]) for _ in range(9)],
        lambda: wal.truncate_head(wal.last_index),
        lambda: wal.truncate_head(wal.last_index + 1),
        lambda: wal.append([b"on"]),
    ]
    for turn in range(3):
        for number, act in enumerate(acts):
            act()
            if (turn + number) % 3 != 1:  # sometimes two changes at once
                follower.refresh()
                with RaftWalReader(disk) as fresh:
                    assert follower.segments() == fresh.segments()
                    span = range(fresh.first_index, fresh.last_index + 1)
                    assert [follower.read(i) for i in span] == [fresh.read(i) for i in span]
                    assert follower.last_index == wal.last_index
                    assert follower.damage == ()
