"""Convert times to positions in a year file, and back.  The page: docs/formats/year_file.md

A year is cut into intervals of the bucket's timeframe; times are nanoseconds since 1970, UTC.
Interval i of a year begins at (i - 1) timeframes after New Year.  Days are the exception: interval
i begins i days after, so New Year's Day has index 0, which elsewhere means "nothing here".

Inside its interval a tick has its place in units of 2^-32 of the interval.
"""

import re
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Ticks = npt.NDArray[np.uint32]

SECOND_NS = 10**9
DAY_NS = 86_400 * SECOND_NS
_UNITS = {
    **{"Sec": SECOND_NS, "S": SECOND_NS, "Min": 60 * SECOND_NS, "T": 60 * SECOND_NS},
    **{"H": 3600 * SECOND_NS, "D": DAY_NS, "W": 7 * DAY_NS},
}
_TIMEFRAME = re.compile(rf"([1-9][0-9]{{0,5}})({'|'.join(_UNITS)})")
# 2^32 ticks by the seconds of a day, as the original has it: a double, and so are the products.
_TICKS_PER_DAY_SECOND = 49710.269629629629629629629629629


@lru_cache(1024)
def parse_timeframe(name: str) -> int:
    """Parse a timeframe into nanoseconds: 1Sec, 10Sec, 1Min, 5Min, 1H, 4H, 1D, 1W ..."""
    match = _TIMEFRAME.fullmatch(name)
    if match is None:
        raise ValueError(
            f"{name!r} is not a timeframe; expected one such as 1Sec, 1Min, 5Min, 1H or 1D"
        )
    return int(match[1]) * _UNITS[match[2]]


def intervals_per_day(timeframe_ns: int) -> int:
    """Return the intervals of a day; ValueError if the timeframe does not divide a day."""
    if timeframe_ns > DAY_NS or DAY_NS % timeframe_ns:
        raise ValueError(f"a timeframe of {timeframe_ns} ns does not divide a day")
    return DAY_NS // timeframe_ns


@lru_cache(1024)
def year_start_ns(year: int) -> int:
    return int(np.datetime64(f"{year:04}-01-01", "ns").astype(np.int64))


@lru_cache(1024)
def interval_count(year: int, timeframe_ns: int) -> int:
    """Return how many intervals a year file has room for."""
    return (_days(year) * DAY_NS) // timeframe_ns


def _days(year: int) -> int:
    return 366 if year % 4 == 0 and (year % 100 or year % 400 == 0) else 365


def _first_index(timeframe_ns: int) -> int:
    return 0 if timeframe_ns == DAY_NS else 1


def locate(times_ns: Ints, timeframe_ns: int) -> tuple[Ints, Ints]:
    """Return the years of these moments, and the indexes of their intervals."""
    years = times_ns.view("datetime64[ns]").astype("datetime64[Y]")
    starts = years.astype("datetime64[ns]").view(np.int64)
    index = (times_ns - starts) // timeframe_ns + _first_index(timeframe_ns)
    return years.astype(np.int64) + 1970, index


def index_of(time_ns: int, year: int, timeframe_ns: int) -> int:
    """Return the interval of one moment, which may lie before or after that year."""
    return (time_ns - year_start_ns(year)) // timeframe_ns + _first_index(timeframe_ns)


def year_of(time_ns: int) -> int:
    return int(np.datetime64(time_ns, "ns").astype("datetime64[Y]").astype(np.int64)) + 1970


def interval_start(index: int, year: int, timeframe_ns: int) -> int:
    return (index - _first_index(timeframe_ns)) * timeframe_ns + year_start_ns(year)


def interval_starts(index: Ints, year: int, timeframe_ns: int) -> Ints:
    """Return the start times of these intervals."""
    return (index - _first_index(timeframe_ns)) * timeframe_ns + year_start_ns(year)


def encode_ticks(times_ns: Ints, timeframe_ns: int) -> Ticks:
    """Encode positions in intervals, rounded down, exactly as MarketStore does."""
    since = (times_ns - times_ns // DAY_NS * DAY_NS) % timeframe_ns
    seconds = (since // SECOND_NS).astype(np.float64) + (since % SECOND_NS) / 1e9
    ticks = float(intervals_per_day(timeframe_ns)) * _TICKS_PER_DAY_SECOND * seconds
    return np.minimum(ticks, 2.0**32 - 1).astype(np.uint32)


def tick_span(start_ns: int, stop_ns: int, interval_ns: int, timeframe_ns: int) -> tuple[int, int]:
    """Return the first and last ticks with start_ns <= time < stop_ns in that interval."""
    low, high = start_ns - interval_ns, stop_ns - 1 - interval_ns
    first = ((low - 1) << 32) // timeframe_ns + 1 if low > 0 else 0
    last = min((high << 32) // timeframe_ns, 2**32 - 1)
    # Some ticks stand for the whole second after their first time: see decode_ticks.
    if first and _decode_tick(first - 1, timeframe_ns) >= low:
        first -= 1
    if last >= 0 and _decode_tick(last, timeframe_ns) > high:
        last -= 1
    return first, last


def _decode_tick(tick: int, timeframe_ns: int) -> int:
    return int(decode_ticks(np.array([tick], np.uint32), timeframe_ns)[0])


def decode_ticks(ticks: Ticks, timeframe_ns: int) -> Ints:
    """Return nanoseconds since the start of the interval: the first with these ticks.

    If a whole second has these ticks, it is that: so a tick does not move to the second before.
    """
    wide, high, low = ticks.astype(np.uint64), timeframe_ns >> 32, timeframe_ns & 0xFFFFFFFF
    rest = wide * np.uint64(low)
    part = (rest >> np.uint64(32)) + ((rest & np.uint64(0xFFFFFFFF)) != 0)
    since: Ints = (wide * np.uint64(high) + part).astype(np.int64)
    seconds = -(-since // SECOND_NS) * SECOND_NS
    near = np.flatnonzero(seconds - since <= (timeframe_ns >> 32) + 1)
    near = near[seconds[near] < timeframe_ns]
    near = near[encode_ticks(seconds[near], timeframe_ns) == ticks[near]]
    since[near] = seconds[near]
    return since
