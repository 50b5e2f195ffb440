import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.formats.flaw import Flaw
from holdfast.formats.raft_meta import ZERO_TIME, SegmentMeta, State, decode_state, encode_state

U64 = st.integers(0, 2**64 - 1)
times = st.sampled_from(
    [
        ZERO_TIME,
        "2026-11-15T18:37:33.28967027Z",
        "2026-11-15T18:37:33+02:00",
        "9999-12-31T23:59:59Z",
    ]
)
segments = st.builds(
    SegmentMeta,
    *[U64] * 6,
    create_time=times,
    seal_time=times,
    size_limit=st.integers(0, 2**32 - 1),
)
states = st.builds(State, U64, st.lists(segments, max_size=4).map(tuple))

# As the Go library wrote it (golden scenario e5_tail_all_of_tail_segment has two such segments).
WRITTEN = (
    b'{"NextSegmentID":2,"Segments":[{"ID":0,"BaseIndex":1,"MinIndex":1,"MaxIndex":12,"Codec":1,'
    b'"IndexStart":4096,"CreateTime":"2026-11-15T18:37:33.28967027Z",'
    b'"SealTime":"2026-11-15T18:37:33.3Z","SizeLimit":4096},{"ID":1,"BaseIndex":13,"MinIndex":13,'
    b'"MaxIndex":0,"Codec":1,"IndexStart":0,"CreateTime":"2026-11-15T18:37:33Z",'
    b'"SealTime":"0001-01-01T00:00:00Z","SizeLimit":4096}]}'
)


@given(states)
def test_states_round_trip(state: State) -> None:
    assert decode_state(encode_state(state)) == state


def test_what_go_wrote_is_written_back_byte_for_byte() -> None:
    state = decode_state(WRITTEN)
    assert isinstance(state, State)
    assert encode_state(state) == WRITTEN
    assert [segment.sealed for segment in state.segments] == [True, False]
    assert encode_state(State(0)) == b'{"NextSegmentID":0,"Segments":[]}'


def test_names_are_read_in_any_case_and_unknown_ones_ignored_as_go_does() -> None:
    odd = (
        b' { "nextsegmentid" : 7, "New":{"a":[1]}, "SEGMENTS":[{"id":3,"baseINDEX":9,"Other":1,'
        b'"SealTime":null}] }'
    )
    assert decode_state(odd) == State(7, (SegmentMeta(3, 9, 0, codec=0),))
    assert decode_state(b'{"Segments":null}') == decode_state(b"{}") == State(0)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b'{"NextSegmentID":-1}',
        b'{"NextSegmentID":1.5}',
        b'{"NextSegmentID":true}',
        b'{"NextSegmentID":18446744073709551616}',
        b'{"NextSegmentID":' + b"9" * 5000 + b"}",
        b'{"Segments":{"a":1}}',
        b'{"Segments":[1]}',
        b'{"Segments":[{"ID":"1"}]}',
        b'{"Segments":[{"ID":18446744073709551616}]}',
        b'{"Segments":[{"SizeLimit":4294967296}]}',
        b'{"Segments":[{"CreateTime":"yesterday"}]}',
        b'{"Segments":[{"CreateTime":"2026-13-01T00:00:00Z"}]}',
        b'{"Segments":[{"SealTime":0}]}',
    ],
)
def test_garbage_is_a_flaw(data: bytes) -> None:
    assert isinstance(decode_state(data), Flaw)


def test_what_go_could_not_read_is_not_written() -> None:
    sound = SegmentMeta(0, 1, 1)
    with pytest.raises(ValueError, match="size_limit is 4294967296"):
        replace(sound, size_limit=2**32)
    with pytest.raises(ValueError, match="base_index is -1"):
        replace(sound, base_index=-1)
    with pytest.raises(ValueError, match="RFC 3339"):
        replace(sound, create_time="2026-11-15 18:37:33")


def test_it_is_json() -> None:
    assert json.loads(encode_state(State(1, (SegmentMeta(0, 1, 1),))))["Segments"][0]["ID"] == 0
