"""A pin shows one state, whatever is written behind its back, or says that it cannot."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from holdfast.bars import BarReader, BarStore
from holdfast.bars import pinned as pinned_module
from holdfast.bars.pinned import Pin, Stamp, Stamps, read_pinned, take_pin
from holdfast.bars.query import Span
from holdfast.disk import OsDisk
from holdfast.doors import open_bars
from holdfast.errors import ChangedError, CorruptError

HOUR_S = 3600
START_S = 1_609_545_600  # 2 January 2021


class Times:
    """Stamps of a file system whose clock has no steps."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __call__(self, name: str) -> Stamp | None:
        path = self._root / name
        if not path.exists():
            return None
        data = path.read_bytes()
        return Stamp(hash(data) & 0xFFFFFFFF, len(data), len(data))


def bars(*prices: float, first: int = 0) -> "np.typing.NDArray[np.void]":
    rows = [(START_S + (first + n) * HOUR_S, price) for n, price in enumerate(prices)]
    return np.array(rows, [("Epoch", "<i8"), ("Close", "<f8")])


def pinned(root: Path, symbols: list[str] | None = None) -> Pin:
    with BarReader(OsDisk(root)) as reader:
        pin = take_pin(reader, symbols, "1H", "X", span=Span(), stamps=Times(root))
    assert pin is not None
    return pickle.loads(pickle.dumps(pin))  # type: ignore[no-any-return]


def closes(root: Path, pin: Pin, stamps: Stamps | None = None) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for file in pin.files:
        (part,) = pin.split([[file]])
        rows = read_pinned(OsDisk(root), part, file, ["Close"], stamps or Times(root))
        found.setdefault(file.key[0], []).extend(rows.columns[0].tolist())
    return found


@pytest.mark.parametrize("ticks", [False, True], ids=["bars", "ticks"])
def test_what_is_only_in_the_log_is_shown_once_whenever_it_is_written_back(
    tmp_path: Path, ticks: bool
) -> None:
    with open_bars(tmp_path, create=True) as store:
        store.write(bars(1, 2), "1H", "X", symbol="A", is_variable=ticks)
        store.flush()
        store.write(bars(3, 4, first=1), "1H", "X", symbol="A", is_variable=ticks)
        store.write(bars(9), "1H", "X", symbol="B", is_variable=ticks)
        pin = pinned(tmp_path)
        expected = {"A": [1, 2, 3, 4] if ticks else [1, 3, 4], "B": [9]}
        assert closes(tmp_path, pin) == expected
        store.flush()
        assert closes(tmp_path, pin) == expected, "by a plan that came after the pin"
        assert closes(tmp_path, pinned(tmp_path, ["B"])) == {"B": [9]}


def test_bars_that_come_later_are_not_shown(tmp_path: Path) -> None:
    with open_bars(tmp_path, create=True) as store:
        store.write(bars(1, 2), "1H", "X", symbol="A")
        store.flush()
        store.write(bars(3, first=5), "1H", "X", symbol="A")
        pin = pinned(tmp_path)
        store.write(bars(4, 5, first=5), "1H", "X", symbol="A")
        store.write(bars(1), "1H", "X", symbol="NEW")
        assert closes(tmp_path, pin) == {"A": [1, 2, 3]}
        store.flush()
        assert closes(tmp_path, pin) == {"A": [1, 2, 3]}
        assert closes(tmp_path, pinned(tmp_path)) == {"A": [1, 2, 4, 5], "N": [1]}


def _replace(store: BarStore) -> None:
    store.write(bars(7), "1H", "X", symbol="A")


def _remove(store: BarStore) -> None:
    store.delete("A", "1H", "X", stop=START_S * 10**9 + 1)


@pytest.mark.parametrize("change", [_replace, _remove])
def test_what_was_replaced_is_missed_and_nothing_false_is_shown(
    tmp_path: Path, change: "object"
) -> None:
    assert callable(change)
    with open_bars(tmp_path, create=True) as store:
        store.write(bars(1, 2), "1H", "X", symbol="A")
        store.flush()
        pin = pinned(tmp_path)
        change(store)
        assert closes(tmp_path, pin) == {"A": [1, 2]}, "the files are as they were"
        store.flush()
        with pytest.raises(ChangedError, match="load it again"):
            closes(tmp_path, pin)


def test_without_the_log_any_change_is_one_too_many(tmp_path: Path) -> None:
    with open_bars(tmp_path, create=True) as store:
        store.write(bars(1, 2), "1H", "X", symbol="A")
    pin = pinned(tmp_path)
    assert closes(tmp_path, pin) == {"A": [1, 2]}
    with open_bars(tmp_path, create=True) as store:
        store.write(bars(1, first=9), "1H", "X", symbol="A")
    with pytest.raises(ChangedError, match="no longer show"):
        closes(tmp_path, pin)
    unsure = pinned(tmp_path)
    with pytest.raises(ChangedError):
        closes(tmp_path, unsure, lambda name: Stamp(-1, 0, 0))


def test_damage_is_reported_as_damage(tmp_path: Path) -> None:
    with open_bars(tmp_path, create=True) as store:
        store.write(bars(1, 2), "1H", "X", symbol="A")
    with (tmp_path / "A/1H/X/2021.bin").open("r+b") as file:
        file.seek(37_024 + 16 * 24)
        file.write(b"\x07")
    with pytest.raises(CorruptError, match="number of another interval"):
        closes(tmp_path, pinned(tmp_path))


def test_buckets_of_other_columns_are_refused(tmp_path: Path) -> None:
    with open_bars(tmp_path, create=True) as store:
        store.write(bars(1), "1H", "X", symbol="A")
        other = np.array([(START_S, 1)], [("Epoch", "<i8"), ("Size", "<i4")])
        store.write(other, "1H", "X", symbol="B")
        with pytest.raises(ValueError, match="read them separately"):
            pinned(tmp_path)
        with BarReader(OsDisk(tmp_path)) as reader:
            assert take_pin(reader, ["C"], "1H", "X", span=Span(), stamps=Times(tmp_path)) is None


def _ticks(root: Path, pin: Pin) -> list[float]:
    return closes(root, pin).get("A", [])


def test_ticks_of_a_live_feed_do_not_disturb_a_pin(tmp_path: Path) -> None:
    """Ticks are only added: those that were committed after the pin are left out."""
    with open_bars(tmp_path, create=True) as store:

        def feed(*prices: float) -> None:
            store.write(bars(*prices), "1H", "X", symbol="A", is_variable=True)

        feed(1, 2)
        store.flush()
        feed(3)
        pin = pinned(tmp_path)
        expected = [1, 3, 2]
        for round_ in range(3):
            feed(1, 3, 9 + round_)  # the same ticks again, too
            assert _ticks(tmp_path, pin) == expected
            store.flush()
            assert _ticks(tmp_path, pin) == expected
        assert len(_ticks(tmp_path, pinned(tmp_path))) == 12
        store.delete("A", "1H", "X", stop=(START_S + HOUR_S) * 10**9)
        assert _ticks(tmp_path, pin) == expected, "the file is as it was"
        store.flush()
        with pytest.raises(ChangedError, match="load it again"):
            _ticks(tmp_path, pin)


def test_a_plan_that_comes_during_the_read_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_bars(tmp_path, create=True) as store:
        store.write(bars(1, 2), "1H", "X", symbol="A", is_variable=True)
        store.flush()
        store.write(bars(3), "1H", "X", symbol="A", is_variable=True)
        pin = pinned(tmp_path)
        real, reads = pinned_module._read, list[int]()

        def read(*args: object) -> object:
            reads.append(1)
            if len(reads) < 4:
                store.write(bars(7), "1H", "X", symbol="A", is_variable=True)
                store.flush()
            return real(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(pinned_module, "_read", read)
        assert _ticks(tmp_path, pin) == [1, 3, 2]
        assert len(reads) == 4
