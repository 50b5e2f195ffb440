"""Deleted, emptied, zeroed and flipped files: each format notices what it promises to notice."""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from holdfast.disk import OsDisk
from holdfast.doors import open_bars, open_kv
from holdfast.logs.mark import Recalled
from holdfast.logs.opening import FORMATS
from holdfast.logs.shanghai import recovery
from holdfast.testing.bar_writer import write_rounds
from holdfast.testing.damages import (
    CLOSED,
    KILLED,
    LIMITS,
    OUTCOMES,
    WAYS,
    Damages,
    places,
)
from holdfast.testing.explorer import BrokenPromiseError
from holdfast.testing.kills import KillRounds
from holdfast.testing.kv_writer import COUNTER, round_key, round_value
from holdfast.testing.torture import kill_rounds

ROUNDS, BATCH = 60, 4
FLIPS = {"bars": 8, "kv": 2}  # else 24: of these a copy costs more


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.getLogger("holdfast").disabled = True
    yield
    logging.getLogger("holdfast").disabled = False


def make_log(rounds: KillRounds) -> None:
    open_writer = FORMATS[rounds.format].open_writer
    with open_writer(OsDisk(rounds.path), segment_size_max=4096) as log:
        for first in range(1, ROUNDS + 1, BATCH):
            log.append([*rounds.rows(first, first + BATCH - 1).values()])
        leave(rounds)


def make_kv(rounds: KillRounds) -> None:
    with open_kv(rounds.path, create=True, flush_ms=None, watch_ms=None, maintain=False) as store:
        for number in range(1, ROUNDS // 6 + 1):
            rows = {round_key(number): round_value(number), COUNTER: b"%d" % number}
            store.write(rows).result()
        leave(rounds)


def make_bars(rounds: KillRounds) -> None:
    with open_bars(rounds.path, create=True, flush_ms=10**6) as store:
        write_rounds(store, 1, ROUNDS // 2)
        store.flush()
        write_rounds(store, ROUNDS // 2 + 1, ROUNDS)
        leave(rounds)


def leave(rounds: KillRounds) -> None:
    """Copy the store as a kill would leave it."""
    shutil.copytree(rounds.path, rounds.path.with_name(KILLED))


def stores(format: str, tmp_path: Path) -> dict[str, Damages]:
    """One store, after a kill and after a clean close."""
    found = {}
    for state in (CLOSED, KILLED):
        rounds = kill_rounds(format, tmp_path / state, seed=0)
        if state == CLOSED:
            {"kv": make_kv, "bars": make_bars}.get(format, make_log)(rounds)
        last = ROUNDS // 6 if format == "kv" else ROUNDS
        rounds.promises.acknowledged = rounds.promises.in_flight = last
        found[state] = Damages(rounds, Random(1), dict.fromkeys(OUTCOMES, 0))
    return found


def damage_all(format: str, damages: Damages, state: str, path: Path) -> set[int]:
    """Damage every file in every way; return the limits that were needed."""
    needed = set()
    for file in sorted(path.rglob("*")):
        name = str(file.relative_to(path))
        if not file.is_file() or file.name in ("LOCK", "category_name"):
            continue
        for way in WAYS:
            for seed in range(FLIPS.get(format, 24) if way == "flipped" else 1):
                outcome = damages.damage(state, name, way, seed)
                needed |= {
                    number
                    for number, limit in enumerate(LIMITS)
                    if limit.outcome == outcome
                    and limit.covers(
                        format, name, places(name, damages.names_beside(name)), state, way
                    )
                }
    return needed


@pytest.mark.parametrize("format", [*FORMATS, "kv", "bars"])
def test_what_is_promised_is_noticed_and_every_limit_is_needed(format: str, tmp_path: Path) -> None:
    """A limit that is not needed any more makes this fail: remove its row."""
    needed = set()
    for state, damages in stores(format, tmp_path).items():
        needed |= damage_all(format, damages, state, tmp_path / state)
    limits = [(number, limit) for number, limit in enumerate(LIMITS) if limit.format == format]
    expected = {number for number, limit in limits if not limit.is_rare}
    assert expected <= needed <= {number for number, _ in limits}, expected - needed


def test_one_file_is_chosen_by_the_seed(tmp_path: Path) -> None:
    damages = stores("shanghai", tmp_path)[CLOSED]
    for _ in range(12):
        damages.one(CLOSED)
    assert sum(damages._outcomes.values()) == 12


def test_a_mark_that_is_ignored_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damages = stores("shanghai", tmp_path)[CLOSED]
    monkeypatch.setattr(recovery, "recall", lambda disk, read=None: Recalled(None, None))
    with pytest.raises(BrokenPromiseError, match="not noticed"):
        damage_all("shanghai", damages, CLOSED, tmp_path / CLOSED)


def test_an_error_that_is_not_ours_is_a_broken_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damages = stores("shanghai", tmp_path)[CLOSED]

    def fail(self: KillRounds, path: Path, *, owner: bool, first: int = 1) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(KillRounds, "contents", fail)
    with pytest.raises(BrokenPromiseError, match="KeyError"):
        damages.one(CLOSED)
    assert not (tmp_path / "damaged").exists()
