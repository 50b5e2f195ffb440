from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from holdfast.demo import bars, ticks


def naive(day: ticks.Ticks) -> list[tuple[object, ...]]:
    """A bar at a time, a tick at a time."""
    found: dict[tuple[int, int], list[float]] = {}
    for tick in day:
        price, size = tick["price"] / ticks.PRICE_UNIT, int(tick["size"])
        minute = int(tick["time_us"]) // ticks.MINUTE_US * ticks.MINUTE_US
        key = int(tick["symbol"]), minute
        o, h, low, _, v, n = found.get(key, [price, price, price, price, 0, 0])
        found[key] = [o, max(h, price), min(low, price), price, v + size, n + 1]
    return [(*key, *values) for key, values in sorted(found.items())]


def test_bars_are_what_a_plain_loop_finds() -> None:
    day = ticks.day(8, 5000)
    assert bars.make_bars(day).tolist() == naive(day)


def test_no_ticks_make_no_bars() -> None:
    assert len(bars.make_bars(ticks.day(8, 10)[:0])) == 0


def test_bars_come_back_from_a_table_in_any_order() -> None:
    made = bars.make_bars(ticks.day(8, 5000))
    mixed = made[np.random.default_rng(0).permutation(len(made))]
    columns = {name.capitalize(): pa.array(mixed[name].copy()) for name in bars.BAR.names or ()}
    columns["symbol"] = pa.array([ticks.SYMBOLS[number] for number in mixed["symbol"]])
    columns["time"] = pa.array(mixed["minute_us"] * 1000).cast(pa.timestamp("ns", "UTC"))
    assert np.array_equal(bars.from_table(pa.table(columns)), made)


def test_prices_are_the_last_of_each_key() -> None:
    day = ticks.day(8, 5000)
    wanted: dict[str, float] = {}
    for tick in day:
        name, price = ticks.SYMBOLS[tick["symbol"]], tick["price"] / ticks.PRICE_UNIT
        time = datetime.fromtimestamp(int(tick["time_us"]) / 1e6, UTC)
        wanted[f"last/{name}"] = wanted[f"minute/{name}/{time:%H:%M}"] = price
    assert bars.make_prices(day) == wanted


def test_coarser_bars_keep_the_extremes_and_the_sums() -> None:
    own = bars.of_symbol(bars.make_bars(ticks.day(8, 50_000)), 2)
    few = bars.coarser(own, 65)
    assert len(few) == 65
    assert (few["high"].max(), few["low"].min()) == (own["high"].max(), own["low"].min())
    assert (few["open"][0], few["close"][-1]) == (own["open"][0], own["close"][-1])
    assert (few["volume"].sum(), few["count"].sum()) == (own["volume"].sum(), own["count"].sum())
    assert np.array_equal(bars.coarser(own, 1000), own)
