from random import Random

import pytest

from holdfast.formats.manifest import Manifest, SstInfo
from holdfast.kv.names import wal_name
from holdfast.kv.plans import CompactionOptions, Plan, plan, plan_everything, plan_units, plan_wal

OPTIONS = CompactionOptions(wal_count=3, wal_size=1000, wal_size_max=500, unit_count=3)


def manifest(l0: list[int], runs: list[list[int]]) -> Manifest:
    """A manifest whose SSTs have these sizes, newest first."""
    draft = Manifest.create(created_ms=0, gc_min_age_ms=0).edit()
    draft.message.next_sst_base = 1 << 33
    number = 0
    for sizes in reversed(runs):
        ssts = []
        for size in sizes:
            number += 1
            key = b"%05d" % number
            ssts.append(SstInfo(id=number, first_key=key, last_key=key, size=size, row_count=1))
        draft.add_run(number, ssts)
    for size in reversed(l0):
        number += 1
        draft.add_l0(SstInfo(id=number, first_key=b"a", last_key=b"z", size=size, row_count=1))
    return draft.freeze()


def sizes(found: Plan) -> list[int]:
    return [sum(sst.size for sst in unit) for unit in found.sources]


def test_the_wal_is_taken_when_it_is_long_or_large_up_to_its_first_gap() -> None:
    assert plan_wal(1, [(1, 10), (2, 10)], OPTIONS) is None
    assert plan_wal(1, [(1, 10), (2, 10), (4, 10)], OPTIONS) is None
    found = plan_wal(1, [(1, 10), (2, 10), (3, 10), (5, 10)], OPTIONS)
    assert found is not None
    assert (found.wal_first, found.wal_last, found.drop_tombstones) == (1, 3, False)
    assert [unit[0].name for unit in found.sources] == [wal_name(i) for i in (3, 2, 1)]
    large = plan_wal(7, [(7, 2000), (8, 10)], OPTIONS)
    assert large is not None
    assert (large.wal_first, large.wal_last) == (7, 7)  # one at least, whatever its size
    many = plan_wal(1, [(i, 200) for i in range(1, 9)], OPTIONS)
    assert many is not None
    assert many.wal_last == 2  # as much as one SST of L0 should hold
    assert plan_wal(1, [], CompactionOptions(wal_count=0)) is None


def test_the_wal_comes_before_the_levels() -> None:
    full = manifest([10, 10, 10], [])
    found = plan(full, [(1, 1), (2, 1), (3, 1)], OPTIONS)
    assert found is not None
    assert found.is_wal
    found = plan(full, [], OPTIONS)
    assert found is not None
    assert not found.is_wal


@pytest.mark.parametrize(
    ("l0", "runs", "taken", "bottom"),
    [
        ([10, 10], [], None, None),
        ([10, 10, 10], [], [10, 10, 10], True),
        ([10, 10, 10], [[100]], [10, 10, 10], False),
        ([10, 10, 10], [[30]], [10, 10, 10, 30], True),
        ([10, 10], [[15], [500]], [10, 10, 15], False),
        ([1], [[100], [100], [100]], [100, 100, 100], True),  # a small one on top is left alone
        ([1, 50, 1], [[60]], [1, 50, 1], False),  # L0 is never left in part
        ([], [[10, 10], [20], [40, 1]], None, None),
        ([], [[10, 10], [20], [40]], [20, 20, 40], True),
        ([], [[1], [10], [100], [1000]], None, None),
    ],
)
def test_neighbours_of_like_size_become_one_run(
    l0: list[int], runs: list[list[int]], taken: list[int] | None, bottom: bool | None
) -> None:
    found = plan_units(manifest(l0, runs), OPTIONS)
    if taken is None:
        assert found is None
        return
    assert found is not None
    assert sizes(found) == taken
    assert found.drop_tombstones == bottom


def test_units_stay_few_and_rows_are_not_written_too_often() -> None:
    """A store that only grows: a thousand flushes of one size, and what becomes of them."""
    options, random = CompactionOptions(), Random(1)
    l0: list[int] = []
    runs: list[list[int]] = []
    written = flushed = most = 0
    for _ in range(1000):
        l0.insert(0, random.randrange(80, 120))
        flushed += l0[0]
        while (found := plan_units(manifest(l0, runs), options)) is not None:
            units = [*([size] for size in l0), *runs]
            taken = sizes(found)
            start = next(
                i
                for i in range(len(units))
                if [sum(unit) for unit in units[i : i + len(taken)]] == taken
            )
            written += sum(taken)
            kept_l0 = min(start, len(l0))
            below = units[start + len(taken) :]
            runs = [*units[kept_l0:start], [sum(taken)], *below]
            l0 = l0[:kept_l0]
        most = max(most, len(l0) + len(runs))
    assert most < 20  # seven that wait, and one for each doubling
    assert written / flushed < 10


def test_everything_is_one_run_without_tombstones() -> None:
    found = plan_everything(manifest([1, 2], [[3, 4]]))
    assert found is not None
    assert sizes(found) == [1, 2, 7]
    assert found.drop_tombstones
    assert plan_everything(manifest([], [[3, 4]])) is None
    assert plan_everything(manifest([], [])) is None
    assert plan_everything(manifest([1], [])) is not None
