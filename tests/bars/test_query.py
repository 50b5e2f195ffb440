"""Queries: ranges, limits, columns, years, many rows per interval, and what is over the files."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from holdfast.bars import BarStore
from holdfast.doors import open_bars, read_bars
from holdfast.errors import CorruptError
from holdfast.formats.bar_time import year_start_ns

MINUTE_NS, DAY_NS = 60 * 10**9, 86_400 * 10**9
START_NS = year_start_ns(2021) - 30 * MINUTE_NS


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BarStore]:
    with open_bars(tmp_path, create=True) as store:
        yield store


def minutes(*numbers: int, price: int | None = None) -> pa.Table:
    times = np.array([START_NS + n * MINUTE_NS for n in numbers])
    prices = np.array([n if price is None else price for n in numbers], "<i4")
    return pa.table({"time": pa.array(times).view(pa.timestamp("ns")), "N": prices})


def numbers(table: pa.Table) -> list[int]:
    found: list[int] = table["N"].to_pylist()
    return found


def test_a_model_of_many_writes_deletes_and_write_backs(store: BarStore) -> None:
    """Against a dictionary, with the same question asked in many ways."""
    random, model = Random(3), dict[int, int]()
    for step in range(60):
        chosen = random.sample(range(70), random.randrange(1, 12))
        if random.random() < 0.25 and model:
            first, last = sorted(random.sample(range(70), 2))
            start, stop = START_NS + first * MINUTE_NS, START_NS + last * MINUTE_NS
            gone = {n for n in model if first <= n < last}
            assert store.delete("A", "1Min", "X", start=start, stop=stop) == len(gone)
            model = {n: value for n, value in model.items() if n not in gone}
        else:
            store.write(minutes(*chosen, price=step), "1Min", "X", symbol="A")
            model.update(dict.fromkeys(chosen, step))
        if random.random() < 0.4:
            store.flush()
        wanted = [model[n] for n in sorted(model)]
        assert numbers(store.query("A", "1Min", "X")) == wanted
        limit = random.randrange(1, 12)
        assert numbers(store.query("A", "1Min", "X", limit=limit)) == wanted[-limit:]
        assert numbers(store.query("A", "1Min", "X", limit=limit, take="first")) == wanted[:limit]
        first, last = sorted(random.choices(range(70), k=2))
        start, stop = START_NS + first * MINUTE_NS, START_NS + last * MINUTE_NS
        within = [model[n] for n in sorted(model) if first <= n < last]
        assert numbers(store.query("A", "1Min", "X", start=start, stop=stop)) == within
        some = store.query("A", "1Min", "X", start=start, stop=stop, limit=2)
        assert numbers(some) == within[-2:]


def test_ticks_against_a_model(store: BarStore) -> None:
    random, model = Random(4), list[tuple[int, int]]()
    for step in range(50):
        if random.random() < 0.2 and model:
            first, last = sorted(random.choices(range(70 * 60), k=2))
            start, stop = START_NS + first * 10**9, START_NS + last * 10**9
            # A tick has a resolution of 14 ns, rounded down.
            kept = [one for one in model if not start <= one[0] - 14 <= one[0] < stop]
            assert len(model) - len(kept) <= store.delete("A", "1Min", "T", start=start, stop=stop)
            model = kept
        else:
            rows = [(START_NS + random.randrange(70 * 60) * 10**9 + 500, step) for _ in range(6)]
            times = pa.array([time for time, _ in rows]).view(pa.timestamp("ns"))
            table = pa.table({"time": times, "N": np.array([step] * 6, "<i4")})
            store.write(table, "1Min", "T", symbol="A", is_variable=True)
            model += rows
        if random.random() < 0.4:
            store.flush()
        found = store.query("A", "1Min", "T")
        model.sort(key=lambda one: one[0])
        assert sorted(numbers(found)) == sorted(value for _, value in model)
        late = np.array([time for time, _ in model]) - found["time"].cast(pa.int64()).to_numpy()
        assert ((late >= 0) & (late <= 15)).all()


def test_days_begin_on_new_year(store: BarStore) -> None:
    times = np.array([year_start_ns(2021) + n * DAY_NS for n in (0, 1, 364)])
    zeros = pa.table({"time": pa.array(times).view(pa.timestamp("ns")), "N": np.zeros(3, "<i4")})
    store.write(zeros, "1D", "X", symbol="A")
    for _ in range(2):
        found = store.query("A", "1D", "X")
        assert found["time"].cast(pa.int64()).to_pylist() == times.tolist()
        assert len(store.query("A", "1D", "X", stop="2021-01-02")) == 1
        assert len(store.query("A", "1D", "X", limit=3)) == 3
        store.flush()
    assert store.delete("A", "1D", "X", stop="2021-01-01T12:00") == 1
    store.flush()
    assert len(store.query("A", "1D", "X")) == 2


def test_columns_symbols_and_missing_buckets(store: BarStore) -> None:
    store.write(minutes(1, 2), "1Min", "X", symbol="A")
    store.write(minutes(3), "1Min", "X", symbol="B")
    table = store.query("B,A,NOPE", "1Min", "X", columns=["N"])
    assert table.column_names == ["symbol", "time", "N"]
    assert table["symbol"].to_pylist() == ["B", "A", "A"]
    assert store.query(["A"], "1Min", "X").to_pandas()["time"].dtype == "datetime64[ns, UTC]"
    for symbols, attributes, columns in (("NOPE", "X", None), ("A", "Y", None), ("A", "X", ["O"])):
        with pytest.raises(ValueError, match=r"no bars|no column"):
            store.query(symbols, "1Min", attributes, columns=columns)
    with pytest.raises(ValueError, match="limit"):
        store.query("A", "1Min", "X", limit=-1)
    assert len(store.query("A", "1Min", "X", limit=0)) == 0
    assert len(store.query("A", "1Min", "X", start="2022-01-01")) == 0
    schema = store.schema("A", "1Min", "X")
    assert schema is not None
    assert schema.columns == (("N", 1),)
    with pytest.raises(ValueError, match="other columns"):
        store.write(pa.table({"time": [0], "O": [1]}), "1Min", "X", symbol="C")
        store.query("A,C", "1Min", "X")


def test_the_latest_of_many_years(store: BarStore) -> None:
    for year in (2015, 2018, 2021):
        rows = np.array([(year_start_ns(year) // 10**9, year)], [("Epoch", "<i8"), ("N", "<i4")])
        store.write(rows, "1Min", "X", symbol="A")
    assert numbers(store.latest("A", "1Min", "X")) == [2021]
    store.flush()
    assert numbers(store.latest("A", "1Min", "X")) == [2021]
    store.delete("A", "1Min", "X", start="2018-01-01")
    assert numbers(store.latest("A", "1Min", "X")) == [2015]
    assert numbers(store.query("A", "1Min", "X", stop="2018-06-01", limit=5)) == [2015]


def test_a_record_that_says_it_is_another_is_damage(tmp_path: Path) -> None:
    with open_bars(tmp_path, create=True) as store:
        store.write(minutes(40, 41), "1Min", "X", symbol="A")
    path = tmp_path / "A/1Min/X/2021.bin"
    data = bytearray(path.read_bytes())
    data[37_024 + 16 * 10] ^= 0x40
    path.write_bytes(data)
    with read_bars(tmp_path) as guest:
        with pytest.raises(CorruptError, match="interval 11"):
            guest.query("A", "1Min", "X")
        assert numbers(guest.query("A", "1Min", "X", start=START_NS + 41 * MINUTE_NS)) == [41]


def test_an_unreadable_payload_is_reported_and_kept_when_it_is_written_to(
    tmp_path: Path,
) -> None:
    ticks = np.array([(START_NS // 10**9 + 3600, 7)], [("Epoch", "<i8"), ("N", "<i4")])
    with open_bars(tmp_path, create=True) as store:
        store.write(ticks, "1Min", "T", symbol="A", is_variable=True)
    path = tmp_path / "A/1Min/T/2021.bin"
    data = bytearray(path.read_bytes())
    data[-9:] = b"\xff" * 9
    path.write_bytes(data)
    with open_bars(tmp_path, create=True) as store:
        with pytest.raises(CorruptError, match="payload"):
            store.query("A", "1Min", "T")
        store.write(ticks, "1Min", "T", symbol="A", is_variable=True)
        store.flush()
        assert numbers(store.query("A", "1Min", "T")) == [7]
    assert [kept.read_bytes()[-9:] for kept in tmp_path.glob("*.cut")] == [b"\xff" * 9]
