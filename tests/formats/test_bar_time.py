import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.formats import bar_time

MINUTE_NS = 60 * 10**9
STEPS = {name: bar_time.parse_timeframe(name) for name in ("1Sec", "1Min", "5Min", "1H", "1D")}
MOMENTS = st.integers(0, bar_time.year_start_ns(2262) - 1)


@given(MOMENTS, st.sampled_from(list(STEPS.values())))
def test_a_time_is_in_its_interval(time_ns: int, step_ns: int) -> None:
    years, index = bar_time.locate(np.array([time_ns]), step_ns)
    year = int(years[0])
    start = int(bar_time.interval_starts(index, year, step_ns)[0])
    assert start <= time_ns < start + step_ns
    assert bar_time.year_of(time_ns) == year
    assert bar_time.index_of(time_ns, year, step_ns) == int(index[0])
    assert bar_time.interval_start(int(index[0]), year, step_ns) == start
    first = 0 if step_ns == bar_time.DAY_NS else 1
    assert first <= index[0] < bar_time.interval_count(year, step_ns) + first


@given(MOMENTS, st.sampled_from(list(STEPS.values())))
def test_ticks_keep_the_precision_of_the_format(time_ns: int, step_ns: int) -> None:
    ticks = bar_time.encode_ticks(np.array([time_ns]), step_ns)
    late = time_ns % step_ns - int(bar_time.decode_ticks(ticks, step_ns)[0])
    assert 0 <= late <= step_ns / 2**32 + 1
    if step_ns == 10**9:
        assert late == 0


@given(st.integers(0, 2**32 - 1), st.integers(0, 10**9), st.sampled_from(list(STEPS.values())))
def test_a_span_of_ticks_is_a_span_of_time(ticks: int, start: int, step_ns: int) -> None:
    end = start + step_ns // 3
    first, last = bar_time.tick_span(start, end, 0, step_ns)
    since = int(bar_time.decode_ticks(np.array([ticks], np.uint32), step_ns)[0])
    assert (start <= since <= end) == (first <= ticks <= last)


def test_new_year_has_index_0_only_of_days() -> None:
    new_year = np.array([bar_time.year_start_ns(2021)])
    assert [int(bar_time.locate(new_year, step)[1][0]) for step in STEPS.values()] == [
        1,
        1,
        1,
        1,
        0,
    ]


@pytest.mark.parametrize("name", ["", "0Min", "Min", "1min", "1Year", "1Min/..", "9999999Sec"])
def test_an_invalid_timeframe_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="timeframe"):
        bar_time.parse_timeframe(name)


def test_only_timeframes_that_divide_a_day_can_be_written() -> None:
    assert bar_time.intervals_per_day(MINUTE_NS) == 1440
    with pytest.raises(ValueError, match="divide"):
        bar_time.intervals_per_day(7 * bar_time.DAY_NS)
