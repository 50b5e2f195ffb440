"""Damaged bytes of every format are read right or refused."""

import json
from random import Random

import pytest
from tests.mutants import rewrite

from holdfast.formats.manifest import codec
from holdfast.testing import fuzz
from holdfast.testing.fuzz import TARGETS, Fuzz, mutate
from holdfast.testing.lives import BrokenPromiseError

COUNT = {"bars": 300, "file-log": 300, "raft-wal": 400, "shanghai": 400}  # the slower ones


@pytest.mark.parametrize("name", TARGETS)
def test_mutants_are_read_right_or_refused(name: str) -> None:
    count = COUNT.get(name, 1500)
    found = Fuzz(name, seed=1).run(count)
    assert found.total() == count
    assert found["read"] > 0
    assert found["refused"] > 0 or name == "state file", "of which a prefix can always be read"


@pytest.mark.parametrize(
    ("name", "number", "outcome"),
    [("shanghai", 130, "read"), ("file-log", 2132, "refused")],
    ids=["a first LSN beyond the last", "slots beyond the file"],
)
def test_what_was_read_wrongly_once(name: str, number: int, outcome: str) -> None:
    assert Fuzz(name, seed=0).one(number) == outcome


def test_a_seed_makes_the_same_mutants_again() -> None:
    assert Fuzz("csv", seed=3).run(200) == Fuzz("csv", seed=3).run(200)


def test_an_error_that_is_not_ours_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "decode_side_file", lambda name, data, fields: json.loads(data))
    with pytest.raises(BrokenPromiseError, match="JSONDecodeError") as caught:
        Fuzz("side file", seed=1).run(100)
    assert caught.value.__notes__[0].startswith("again: Fuzz('side file', 1).one(")


def test_invented_data_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite(monkeypatch, codec, "decode_manifest", "_crc(data) != crc", "False")
    monkeypatch.setattr(fuzz, "decode_manifest", codec.decode_manifest)
    with pytest.raises(BrokenPromiseError, match="invented"):
        Fuzz("manifest", seed=1).run(3000)


def test_too_much_memory_and_too_much_time_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([0])  # the first read is of what was written

    def greedy(data: bytes) -> bytes:
        return bytes(next(sizes, 2 * fuzz.MEMORY_MAX))[:1]

    monkeypatch.setattr(fuzz, "decode_entry", greedy)
    with pytest.raises(BrokenPromiseError, match="MemoryError"):
        Fuzz("raft entry", seed=1).run(1)
    monkeypatch.setattr(fuzz, "LIMIT_S", 1)
    endless = Fuzz("csv", seed=1)
    monkeypatch.setattr(endless, "one", lambda number: "read")
    with pytest.raises(BrokenPromiseError, match="more than 1 s"):
        endless.run(10**12)


def test_every_change_is_made() -> None:
    changed = {mutate(bytes(range(200)), Random(seed)) for seed in range(300)}
    assert len(changed) > 290
    assert {len(data) < 200 for data in changed} == {True, False}
    assert max(map(len, changed)) > 200
    assert isinstance(mutate(b"", Random(1)), bytes)
