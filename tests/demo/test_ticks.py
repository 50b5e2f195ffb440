import numpy as np
import pyarrow as pa
import pytest

from holdfast.demo import ticks

COUNT = 60_000


@pytest.fixture(scope="module", params=[1, 2, 3, 4711])
def day(request: pytest.FixtureRequest) -> ticks.Ticks:
    return ticks.day(request.param, COUNT)


def test_a_seed_makes_the_same_day_each_time() -> None:
    assert np.array_equal(ticks.day(3, 1000), ticks.day(3, 1000))
    assert not np.array_equal(ticks.day(3, 1000), ticks.day(4, 1000))


def test_a_tick_is_what_the_docstring_says() -> None:
    assert ticks.TICK.itemsize == 32
    layout = [(name, ticks.TICK[name].str) for name in ticks.TICK.names or ()]
    words = " ".join(f"{name}:{kind[1]}{8 * int(kind[2])}" for name, kind in layout)
    assert f"tick := {words}" in (ticks.__doc__ or "")


def test_times_are_in_order_irregular_and_within_the_day(day: ticks.Ticks) -> None:
    times = day["time_us"]
    assert times[0] >= ticks.OPEN_US
    assert times[-1] < ticks.CLOSE_US
    pauses = np.diff(times)
    assert pauses.min() >= 0
    assert pauses.std() > 0.5 * pauses.mean()


def test_the_market_is_liveliest_at_its_ends(day: ticks.Ticks) -> None:
    minute = (day["time_us"] - ticks.OPEN_US) // ticks.MINUTE_US
    counts = np.bincount(minute, minlength=ticks.MINUTES)
    noon = counts[150:240].mean()
    assert counts[:15].mean() > 1.5 * noon
    assert counts[-10:].mean() > 1.2 * noon


def test_prices_move_as_prices_do(day: ticks.Ticks) -> None:
    for symbol in range(len(ticks.SYMBOLS)):
        own = day[day["symbol"] == symbol]
        prices = own["price"] / ticks.PRICE_UNIT
        assert 0.75 < prices.min() / prices[0] <= prices.max() / prices[0] < 1.35
        assert np.abs(np.diff(np.log(prices))).max() < 0.02  # no jumps
        assert np.ptp(prices) / prices[0] > 0.005  # but it moves


def test_volatility_comes_in_bursts(day: ticks.Ticks) -> None:
    """The size of a five-minute move says something about that of the next one."""
    correlations = []
    for symbol in range(len(ticks.SYMBOLS)):
        own = day[day["symbol"] == symbol]
        slot = (own["time_us"] - ticks.OPEN_US) // (5 * ticks.MINUTE_US)
        starts = np.flatnonzero(np.diff(slot, prepend=-1))
        moves = np.abs(np.diff(np.log(own["price"][starts] / ticks.PRICE_UNIT)))
        correlations.append(np.corrcoef(moves[:-1], moves[1:])[0, 1])
    assert np.mean(correlations) > 0.02


def test_trades_happen_at_the_quotes(day: ticks.Ticks) -> None:
    assert (day["bid"] < day["ask"]).all()
    assert np.array_equal(day["price"], np.where(day["side"] < 0, day["bid"], day["ask"]))
    spread = (day["ask"].astype(float) - day["bid"]) / day["price"]
    assert 0.00005 < np.median(spread) < 0.003
    assert (day["size"] > 0).all()
    assert (day["size"] % 100 == 0).mean() > 0.3


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_columns_of_payloads_are_decoded_at_once(kind: pa.DataType) -> None:
    day = ticks.day(9, 50)
    payloads = pa.array([day[i : i + 1].tobytes() for i in range(50)], kind)
    assert np.array_equal(ticks.decode(payloads), day)
    assert np.array_equal(ticks.decode(payloads[7:20]), day[7:20])
    assert len(ticks.decode(payloads[:0])) == 0


def test_what_is_no_tick_is_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        ticks.decode(pa.array([b"x" * 31]))


def test_arrivals_play_the_day_in_the_given_time() -> None:
    arrivals = ticks.arrivals(ticks.day(1, 1000), 8.0)
    assert 0 <= arrivals[0] < 0.2
    assert 7.8 < arrivals[-1] < 8.0
