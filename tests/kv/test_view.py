from itertools import pairwise
from random import Random

import pytest

from holdfast.bucket.memory import MemoryBucket
from holdfast.formats.manifest import Manifest, SstInfo, describe
from holdfast.formats.sst import Rows, decode_info, encode_sst
from holdfast.kv.memtable import layer_of
from holdfast.kv.merging import merge, merge_rows
from holdfast.kv.names import level_name
from holdfast.kv.tables import Cache, Levels, Table
from holdfast.kv.view import Scan, View, bounds
from holdfast.runtime import Runtime


class Pile:
    """Sources of random rows, the oldest first, and what they come to."""

    def __init__(self, seed: int) -> None:
        self.random, self.model, self.seq = Random(seed), dict[bytes, bytes](), 0
        self.bucket, self.cache = MemoryBucket(), Cache(2**24, Runtime())
        draft = Manifest.create(created_ms=1, gc_min_age_ms=1).edit()
        draft.message.next_sst_base = 2**40
        self.sst_id = 1
        for run in range(2):
            pieces = self.cut(self.source(3000))
            draft.add_run(run + 1, [self.sst(piece) for piece in pieces])
        for _ in range(2):
            draft.add_l0(self.sst(self.source(500)))
        levels = Levels(draft.freeze(), self.bucket, self.cache)
        tables = [self.table(self.source(300)) for _ in range(2)]
        layers = [layer_of(self.source(100), i) for i in range(3)]
        self.view = View(tuple(layers[::-1]), tuple(tables[::-1]), levels)

    def source(self, count: int) -> Rows:
        keys = sorted({b"%04d" % self.random.randrange(5000) for _ in range(count)})
        rows = []
        for key in keys:
            self.seq += 1
            value = None if self.random.random() < 0.3 else b"%d" % self.seq
            rows.append((key, value, self.seq))
            self.model.pop(key, None)
            if value is not None:
                self.model[key] = value
        return Rows.from_pairs(rows)

    def cut(self, rows: Rows) -> list[Rows]:
        cuts = [0, *sorted(self.random.sample(range(1, len(rows)), 3)), len(rows)]
        return [rows.slice(a, b) for a, b in pairwise(cuts)]

    def sst(self, rows: Rows) -> SstInfo:
        self.sst_id += 1
        data = encode_sst(rows, writer_epoch=1, unique_id=bytes(16), block_size=2048)
        self.bucket.put_if_absent(level_name(self.sst_id), data)
        return describe(self.sst_id, decode_info(data, len(data)))

    def table(self, rows: Rows) -> Table:
        self.sst(rows)
        name = level_name(self.sst_id)
        return Table(self.bucket, self.cache, name, len(self.bucket.get(name)))


@pytest.fixture(scope="module")
def pile() -> Pile:
    return Pile(seed=7)


def test_a_key_has_its_newest_value(pile: Pile) -> None:
    for i in range(5000):
        key = b"%04d" % i
        assert pile.view.get(key) == pile.model.get(key)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("start", "stop", "prefix"),
    [
        (None, None, b""),
        (b"1000", b"2000", b""),
        (b"1000", None, b"12"),
        (None, b"0003", b""),
        (b"4990", None, b""),
        (b"3", b"2", b""),
        (None, None, b"4999"),
    ],
)
def test_a_scan_is_the_sorted_model(
    pile: Pile, start: bytes | None, stop: bytes | None, prefix: bytes, reverse: bool
) -> None:
    expected = [
        (key, value)
        for key, value in sorted(pile.model.items(), reverse=reverse)
        if (start or b"") <= key and (stop is None or key < stop) and key.startswith(prefix)
    ]
    chunks = pile.view.rows(*bounds(start, stop, prefix), reverse=reverse)
    assert list(Scan(chunks, seqs=False).items()) == expected


def test_batches_have_keys_values_and_seqs(pile: Pile) -> None:
    batch = next(Scan(pile.view.rows(b"", None), seqs=True))
    assert batch.schema.names == ["key", "value", "seq"]
    assert batch.num_rows > 50
    assert batch.column("value").null_count == 0


def test_merging_keeps_the_newest_of_every_key() -> None:
    new = Rows.from_pairs([(b"b", None, 9), (b"d", b"4", 8)])
    old = Rows.from_pairs([(b"a", b"1", 1), (b"b", b"2", 2), (b"c", b"3", 3)])
    assert merge_rows([new, old]).to_pairs() == [
        (b"a", b"1", 1),
        (b"b", None, 9),
        (b"c", b"3", 3),
        (b"d", b"4", 8),
    ]
    assert list(merge([])) == []
    assert list(merge([iter([]), iter([old])])) == [old]


@pytest.mark.parametrize("reverse", [False, True])
def test_merging_chunks_is_merging_all(reverse: bool) -> None:
    random = Random(3)
    for _ in range(50):
        sources, model = [], dict[bytes, int]()
        for source in range(random.randrange(1, 6)):
            keys = sorted({bytes(random.choices(b"ab\xff\0", k=3)) for _ in range(12)})
            model |= dict.fromkeys(keys, source)
            rows = Rows.from_pairs([(key, b"v", source) for key in keys])
            cuts = [0, *sorted(random.choices(range(1, len(rows) + 1), k=2)), len(rows)]
            chunks = [rows.slice(a, b) for a, b in pairwise(cuts) if a < b]
            sources.append(iter(chunks[::-1] if reverse else chunks))
        merged = list(merge(sources[::-1], reverse=reverse))
        whole = Rows.concat(merged[::-1] if reverse else merged)
        found = [(key, seq) for key, _, seq in whole.to_pairs()]
        assert found == sorted(model.items())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((None, None, b""), (b"", None)),
        ((b"a", b"b", b""), (b"a", b"b")),
        ((None, None, b"ab"), (b"ab", b"ac")),
        ((None, None, b"a\xff"), (b"a\xff", b"b")),
        ((None, None, b"\xff\xff"), (b"\xff\xff", None)),
        ((b"aa", b"z", b"a"), (b"aa", b"b")),
    ],
)
def test_bounds_lie_within_all_that_is_given(
    given: tuple[bytes | None, bytes | None, bytes], expected: tuple[bytes, bytes | None]
) -> None:
    assert bounds(*given) == expected


def test_bounds_are_bytes() -> None:
    with pytest.raises(TypeError, match="a bound must be bytes, not str"):
        bounds("a", None, b"")  # type: ignore[arg-type]
