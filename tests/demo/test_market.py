from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from holdfast.demo import market

COUNT = 20_000


@pytest.fixture(scope="module")
def day() -> market.Ticks:
    return market.day(8, COUNT)


def test_a_seed_makes_the_same_day_each_time(day: market.Ticks) -> None:
    assert np.array_equal(market.day(8, COUNT), day)
    assert not np.array_equal(market.day(9, COUNT), day)


def test_the_market_looks_like_one(day: market.Ticks) -> None:
    times = day["time_us"]
    assert times[0] >= market.OPEN_US
    assert times[-1] < market.CLOSE_US
    assert np.diff(times).min() >= 0
    counts = np.bincount((times - market.OPEN_US) // market.MINUTE_US, minlength=390)
    assert counts[:15].mean() > 1.5 * counts[150:240].mean() < counts[-15:].mean()
    for symbol in range(len(market.SYMBOLS)):
        prices = day["price"][day["symbol"] == symbol]
        assert 0.85 < prices.min() / prices[0] < prices.max() / prices[0] < 1.15
        assert np.ptp(prices) / prices[0] > 0.005
    assert (day["size"] > 0).all()


def test_arrivals_spread_the_day_over_the_given_time(day: market.Ticks) -> None:
    arrivals = market.share_of_day(day) * 8
    assert 0 <= arrivals[0] < 0.2
    assert 7.8 < arrivals[-1] < 8.0


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_payloads_of_any_arrow_type_are_decoded(day: market.Ticks, kind: pa.DataType) -> None:
    payloads = pa.array([tick.tobytes() for tick in day[:50]], kind)
    assert np.array_equal(market.decode(payloads), day[:50])
    assert np.array_equal(market.decode(payloads[7:20]), day[7:20])


def test_payloads_of_another_size_are_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        market.decode(pa.array([b"x" * (market.TICK.itemsize - 1)]))


def test_bars_and_prices_are_what_a_plain_loop_finds(day: market.Ticks) -> None:
    bars: dict[tuple[str, datetime], list[float]] = {}
    prices: dict[str, float] = {}
    for tick in day:
        symbol, price, size = market.SYMBOLS[tick["symbol"]], tick["price"] / 100, int(tick["size"])
        time = datetime.fromtimestamp(int(tick["time_us"]) // 60_000_000 * 60, UTC)
        first, high, low, _, volume, count = bars.get((symbol, time), [price] * 4 + [0, 0])
        bar = [first, max(high, price), min(low, price), price, volume + size, count + 1]
        bars[symbol, time] = bar
        prices[f"{symbol}/{time:%H:%M}"] = price
    made = market.make_bars(day)
    found = [tuple(row[name] for name in market.COLUMNS) for row in made.to_pylist()]
    assert found == [(*key, *bar) for key, bar in sorted(bars.items())]
    assert market.make_prices(made) == prices


def test_one_tick_more_or_less_shows(day: market.Ticks) -> None:
    bars = market.make_bars(day)
    assert market.differing(bars, market.make_bars(day)) == 0
    assert market.differing(bars, market.make_bars(day[:-1])) == 1
    assert market.differing(pa.concat_tables([bars, bars.slice(0, 2)]), bars) == 2
    assert market.differing(bars.slice(3), bars) == 3


def test_a_summary_is_one_bar_of_the_whole_day(day: market.Ticks) -> None:
    found = {row["symbol"]: row for row in market.summary(market.make_bars(day, 5))}
    assert sorted(found) == sorted(market.SYMBOLS)
    prices = day["price"][day["symbol"] == 2] / 100
    reef = found["REEF"]
    assert (reef["Open"], reef["High"]) == (prices[0], prices.max())
    assert (reef["Low"], reef["Close"]) == (prices.min(), prices[-1])
    assert reef["Count"] == len(prices)
    assert reef["move"] == pytest.approx(prices[-1] / prices[0] - 1)
