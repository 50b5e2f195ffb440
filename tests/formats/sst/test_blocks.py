from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.formats.sst.test_block import COMPRESSIONS, FORGERIES, SOUND, resealed, rows_of, tables

from holdfast.errors import CorruptError
from holdfast.formats.sst import EMPTY, Output, blocks, decode_blocks
from holdfast.formats.sst.block import Compression
from holdfast.formats.sst.blocks import append_blocks, encode_block


@given(tables, st.sampled_from(COMPRESSIONS), st.data())
def test_many_blocks_are_those_that_each_would_be(
    table: dict[bytes, bytes | None], compression: Compression, draw: st.DataObject
) -> None:
    rows = rows_of(table)
    cuts = draw.draw(st.sets(st.integers(1, len(rows))))
    bounds = sorted({0, *cuts, len(rows)})
    out = Output(1)
    out.append(b"\xff" * 5000)  # what was there before shows nowhere
    out.clear()
    ends = append_blocks(out, rows, bounds[1:], compression)
    alone = [encode_block(rows.slice(a, b), compression) for a, b in pairwise(bounds)]
    assert bytes(out.view()) == b"".join(alone)
    assert ends == list(accumulate(map(len, alone)))
    found = decode_blocks(alone, [0, *ends[:-1]])
    for column in (found.keys, found.values, found.seqs):
        column.validate(full=True)
    assert found == rows


def test_no_blocks_have_no_rows() -> None:
    assert decode_blocks([], []) is EMPTY


@pytest.mark.parametrize("name", FORGERIES)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_forged_block_among_others_is_refused(name: str, place: int) -> None:
    forge, why = FORGERIES[name]
    data = bytearray(SOUND)
    forge(data)
    several = [SOUND, SOUND, SOUND]
    several[place] = resealed(bytes(data))
    with pytest.raises(CorruptError, match=why) as raised:
        decode_blocks(several, [0, 1000, 2000], where="levels/7.sst")
    assert (raised.value.where, raised.value.offset) == ("levels/7.sst", 1000 * place)


def test_more_than_two_gib_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "SIZE_MAX", 15)
    with pytest.raises(ValueError, match="more than 15 bytes"):
        decode_blocks([SOUND, SOUND], [0, 1000])
    assert len(decode_blocks([SOUND], [0])) == 2
