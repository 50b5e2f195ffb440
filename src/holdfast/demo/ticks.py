"""Market ticks of our own making: one trading day, the same for the same seed.

Prices are random walks that share a market, in a volatility that comes in bursts and is high after
the opening and before the close; ticks arrive irregularly and are most frequent at those times.
Trades happen at the bid or at the ask.  The symbols are invented, and so is all else.

tick := time_us:i64 symbol:u16 side:i16 size:u32 price:u32 bid:u32 ask:u32 number:u32
                                          32 bytes, little-endian; prices in 1/10,000

A tick is one entry of a log, and whole columns of them are decoded at once, without a loop.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

Ticks = NDArray[np.void]  # of the type below

TICK = np.dtype(
    [
        *(("time_us", "<i8"), ("symbol", "<u2"), ("side", "<i2"), ("size", "<u4")),
        *(("price", "<u4"), ("bid", "<u4"), ("ask", "<u4"), ("number", "<u4")),
    ]
)
SYMBOLS = ("KELP", "TIDE", "REEF", "FOAM", "GULL", "DUNE")
PRICE_UNIT = 10_000
MINUTES = 390
MINUTE_US = 60_000_000
OPEN_US = int(datetime(2026, 3, 2, 9, 30, tzinfo=UTC).timestamp()) * 1_000_000
CLOSE_US = OPEN_US + MINUTES * MINUTE_US

_STARTS = np.array([184.20, 61.35, 412.80, 27.90, 96.10, 143.60])
_SHARES = np.array([0.26, 0.21, 0.17, 0.14, 0.12, 0.10])  # of all ticks
_BETAS = np.array([0.9, 1.1, 0.8, 1.4, 0.6, 1.2])  # how much a symbol follows the market
_DAILY_VOLATILITY = np.array([0.016, 0.021, 0.014, 0.030, 0.012, 0.019])
_MARKET_VOLATILITY = 0.009


def day(seed: int, count: int) -> Ticks:
    """The `count` ticks of a seed's day, in order of time."""
    random = np.random.default_rng([seed, count])
    shape = _smile()
    ticks: Ticks = np.zeros(count, TICK)
    ticks["number"] = np.arange(count)
    ticks["time_us"] = _times(random, shape, count)
    ticks["symbol"] = random.choice(len(SYMBOLS), count, p=_SHARES)
    ticks["size"] = _sizes(random, count)
    market = np.concatenate([[0.0], np.cumsum(_minute_moves(random, shape))])
    volatility = _volatility(random, shape)
    for symbol in range(len(SYMBOLS)):
        of_symbol = np.flatnonzero(ticks["symbol"] == symbol)
        _trade(random, ticks, of_symbol, symbol, market, volatility[symbol])
    return ticks


def arrivals(ticks: Ticks, seconds: float) -> NDArray[np.float64]:
    """When each tick arrives, if the day is played in so many seconds."""
    fractions: NDArray[np.float64] = (ticks["time_us"] - OPEN_US) / (CLOSE_US - OPEN_US)
    return fractions * seconds


def decode(payloads: "pa.Array") -> Ticks:
    """A column of payloads as ticks.  ArrowInvalid: some are none."""
    import pyarrow as pa  # here, because a feed must start fast and never decodes

    if pa.types.is_binary_view(payloads.type):
        payloads = payloads.cast(pa.binary())
    fixed = payloads.cast(pa.binary(TICK.itemsize))
    _, data = fixed.buffers()
    return np.frombuffer(data, TICK, len(fixed), fixed.offset * TICK.itemsize)


def _smile() -> NDArray[np.float64]:
    """How lively each minute is; 1 on average, more at both ends."""
    minute = np.arange(MINUTES)
    shape = 1 + 1.7 * np.exp(-minute / 22) + 1.2 * np.exp((minute - MINUTES) / 18)
    return np.asarray(shape / shape.mean())


def _times(
    random: np.random.Generator, shape: NDArray[np.float64], count: int
) -> NDArray[np.int64]:
    liveliness = shape * random.lognormal(0, 0.25, MINUTES)
    share = np.concatenate([[0.0], np.cumsum(liveliness)])
    minute = np.interp(np.sort(random.random(count)), share / share[-1], np.arange(MINUTES + 1))
    last = CLOSE_US - 1
    return np.minimum(OPEN_US + (minute * MINUTE_US).astype(np.int64), last)


def _sizes(random: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Many small trades, few large; a third in round lots."""
    sizes = np.ceil(random.lognormal(3.6, 1.0, count))
    round_lots = 100 * np.ceil(sizes / 100)
    return np.where(random.random(count) < 1 / 3, round_lots, sizes).astype(np.int64)


def _minute_moves(random: np.random.Generator, shape: NDArray[np.float64]) -> NDArray[np.float64]:
    """The market's, as logarithms."""
    moves = random.standard_normal(MINUTES) * np.sqrt(shape)
    return np.asarray(moves * _MARKET_VOLATILITY / np.sqrt(MINUTES))


def _volatility(random: np.random.Generator, shape: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each symbol in each minute, per square root of a minute: bursts that die away slowly."""
    noise = random.standard_normal((MINUTES, len(SYMBOLS)))
    level, levels = np.zeros(len(SYMBOLS)), []
    for minute in range(MINUTES):
        level = 0.95 * level + 0.17 * noise[minute]
        levels.append(level)
    bursts = np.exp(np.array(levels).T) * np.sqrt(shape)
    bursts /= np.sqrt((bursts**2).mean(axis=1, keepdims=True))
    return np.asarray(bursts * _DAILY_VOLATILITY[:, None] / np.sqrt(MINUTES))


def _trade(
    random: np.random.Generator,
    ticks: Ticks,
    chosen: NDArray[np.intp],
    symbol: int,
    market: NDArray[np.float64],
    volatility: NDArray[np.float64],
) -> None:
    """Fill in the quotes and prices of one symbol."""
    minute = (ticks["time_us"][chosen] - OPEN_US) / MINUTE_US
    pause = np.diff(minute, prepend=0.0)
    sigma = volatility[minute.astype(np.intp)]
    own = np.cumsum(sigma * np.sqrt(pause) * random.standard_normal(len(chosen)))
    common = _BETAS[symbol] * np.interp(minute, np.arange(MINUTES + 1), market)
    middle = _STARTS[symbol] * np.exp(own + common)
    half = middle * (0.00008 + 0.12 * sigma)  # wider when it is wild
    bid = np.floor((middle - half) * 100).astype(np.int64)
    ask = np.maximum(np.ceil((middle + half) * 100).astype(np.int64), bid + 1)
    side = np.where(random.random(len(chosen)) < 0.5, -1, 1)
    values: dict[str, Any] = {"side": side, "bid": bid * 100, "ask": ask * 100}
    values["price"] = np.where(side < 0, values["bid"], values["ask"])
    for name, column in values.items():
        ticks[name][chosen] = column
