from collections import Counter
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from holdfast.formats.sst import EMPTY, Rows
from holdfast.kv import merging
from holdfast.kv.merging import merge, merge_rows, reversed_rows, without_tombstones

KEYS = st.binary(min_size=1, max_size=2)
VALUES = st.none() | st.binary(max_size=3)
SOURCES = st.lists(st.dictionaries(KEYS, VALUES, max_size=12), max_size=5)


def rows_of(source: dict[bytes, bytes | None], seq: int) -> Rows:
    return Rows.from_pairs([(key, value, seq) for key, value in sorted(source.items())])


def chunks(rows: Rows, size: int, *, reverse: bool = False) -> Iterator[Rows]:
    starts = range(0, len(rows), size)
    for start in reversed(starts) if reverse else starts:
        yield rows.slice(start, min(start + size, len(rows)))


def expected(sources: list[dict[bytes, bytes | None]]) -> list[tuple[bytes, bytes | None, int]]:
    newest: dict[bytes, tuple[bytes | None, int]] = {}
    for number, source in enumerate(sources):
        for key, value in source.items():
            newest.setdefault(key, (value, number))
    return [(key, *newest[key]) for key in sorted(newest)]


@given(SOURCES)
@settings(max_examples=150, deadline=None)
def test_of_every_key_the_newest_row_stays(sources: list[dict[bytes, bytes | None]]) -> None:
    found = merge_rows([rows_of(source, i) for i, source in enumerate(sources)])
    assert found.to_pairs() == expected(sources)


@given(SOURCES, st.integers(1, 4), st.booleans(), st.sampled_from([0, 10, 30, 2**18]))
@settings(max_examples=300, deadline=None)
def test_streams_merge_chunk_by_chunk_to_the_same(
    sources: list[dict[bytes, bytes | None]], size: int, reverse: bool, small: int
) -> None:
    streams = [
        chunks(rows_of(source, i), size, reverse=reverse) for i, source in enumerate(sources)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "_SMALL", small)
        patch.setattr(merging, "_JOINED_SIZE", 2 * small)
        patch.setattr(merging, "_CHUNK_SIZE", 8)
        parts = list(merge(streams, reverse=reverse))
    assert all(len(part) for part in parts)
    whole = Rows.concat(parts[::-1] if reverse else parts)
    assert whole.to_pairs() == expected(sources)


def test_a_merge_of_many_small_sources_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Counter[str]()
    for name in ("end", "take", "fill", "whole"):
        honest = getattr(merging._Source, name)

        def counted(self: object, *what: object, honest: Any = honest, name: str = name) -> Any:
            asked[name] += 1
            return honest(self, *what)

        monkeypatch.setattr(merging._Source, name, counted)
    streams = [iter([rows_of({b"%05d" % (i * 7919 % 1000): b"v"}, i)]) for i in range(1000)]
    large = [chunks(rows_of({b"%05d" % i: bytes(2000) for i in range(1000)}, 0), 100)]
    assert sum(map(len, merge(streams + large))) == 1000
    assert asked["whole"] == 1001
    assert asked.total() < 1500  # and not a million


def test_what_does_not_overlap_is_only_put_in_order() -> None:
    newer, older = rows_of({b"m": b"1", b"n": b"2"}, 1), rows_of({b"a": b"3", b"l": None}, 0)
    assert [pair[0] for pair in merge_rows([newer, older]).to_pairs()] == [b"a", b"l", b"m", b"n"]
    assert merge_rows([EMPTY, newer, EMPTY]) is newer
    assert merge_rows([]) is EMPTY


def test_tombstones_go_only_when_asked() -> None:
    merged = merge_rows([rows_of({b"a": None, b"b": b"2"}, 2), rows_of({b"a": b"1"}, 1)])
    assert merged.to_pairs() == [(b"a", None, 2), (b"b", b"2", 2)]
    assert without_tombstones(merged).to_pairs() == [(b"b", b"2", 2)]
    assert reversed_rows(merged).to_pairs()[0] == (b"b", b"2", 2)
