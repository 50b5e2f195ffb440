import io

import numpy as np
import pytest
from rich.console import Console

from holdfast.demo import bars, terminal, ticks


@pytest.fixture(scope="module")
def made() -> bars.Bars:
    return bars.make_bars(ticks.day(6, 40_000))


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_a_chart_fits_its_width_and_height(made: bars.Bars, width: int) -> None:
    lines = terminal.candle_chart(bars.of_symbol(made, 0), width, 12).plain.split("\n")
    assert len(lines) == 13
    assert max(map(len, lines)) <= width
    assert set("".join(lines[:12])) & set("┃│╽╿")


def test_highs_and_lows_are_where_they_belong() -> None:
    candles = np.zeros(2, bars.BAR)
    candles["minute_us"] = [ticks.OPEN_US, ticks.OPEN_US + ticks.MINUTE_US]
    candles[["open", "high", "low", "close"]] = [(10, 40, 0, 20), (30, 30, 30, 30)]
    chart = terminal.candle_chart(candles, 30, 2).plain.split("\n")
    assert chart[0].startswith("│╻")
    assert chart[1].startswith("╽ ") or chart[1].startswith("┃ ") or chart[1].startswith("╿ ")


def test_sparklines_span_from_lowest_to_highest() -> None:
    assert terminal.sparkline(np.array([1.0, 2.0, 3.0])) == "▁▅█"
    assert terminal.sparkline(np.array([2.0, 2.0])) == "▁▁"


def test_the_table_has_a_line_for_each_symbol(made: bars.Bars) -> None:
    out = io.StringIO()
    Console(file=out, width=120).print(terminal.day_table(made))
    lines = out.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["symbol", *ticks.SYMBOLS]
    own = bars.of_symbol(made, 0)
    assert f"{own['high'].max():,.2f}" in lines[1]
    assert f"{own['volume'].sum():,}" in lines[1]
