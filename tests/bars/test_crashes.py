"""No crash loses, halves, doubles or invents anything: a hundred thousand images in every run."""

from itertools import product

import pytest
from tests.bars.log_explorer import LogExplorer

from holdfast.testing.bars import BarExplorer
from holdfast.testing.meddler import KINDS, WAYS

LONG = (
    ("many", "flush", "ticks", "delete", "flush", "reopen"),
    ("prepare", "bar", "flush", "decide", "flush"),
    ("many", "many", "flush", "many", "guest", "flush", "ticks", "flush"),
    ("ticks", "ticks", "flush", "ticks", "bar", "flush", "delete", "reopen"),
)
IMAGES = 100_000


def test_no_crash_loses_or_invents_anything() -> None:
    explorer, logs = BarExplorer(images_per_point=4), LogExplorer()
    for sequence in explorer.sequences(2):
        explorer.every_crash_point(sequence, last_step_only=True)
    for sequence in LONG:
        explorer.every_crash_point(sequence)
    explorer.images_per_point = 1
    for sequence in [s for s in explorer.sequences(3) if len(s) == 3][::11]:
        explorer.every_crash_point(sequence, last_step_only=True)
    for seed in range(220):
        explorer.lives(seed)
    seed = 0
    while explorer.images + logs.images < IMAGES:
        logs.life(seed)
        seed += 1
    print(f"{explorer.images} images of stores, {logs.images} of logs: {dict(explorer.fired)}")
    assert explorer.images > 4000
    assert explorer.acknowledged > 500
    for fate in ("new", "old", "zero", "garbled", "torn", "name kept", "name lost", "kill"):
        assert explorer.fired[fate] > 100
        assert logs.fired[fate] > 100 or fate.startswith("name")


@pytest.mark.parametrize("kind", ["eio", "enospc", "short write", "sync eio"])
def test_no_failing_call_loses_or_invents_anything(kind: str) -> None:
    explorer = BarExplorer()
    explorer.every_fault(LONG[0], kind, always=False)
    explorer.every_fault(("many", "flush", "ticks", "flush"), kind, always=True)
    explorer.every_fault(("prepare", "bar", "decide", "flush"), kind, always=False)
    assert explorer.fired[kind] > 20


def test_no_other_process_makes_the_owner_lose_or_invent_anything() -> None:
    """Forks, a moved root, removed locks and second owners, at every change."""
    explorer = BarExplorer(seed=3)
    sequences = (("bar", "flush", "reopen"), ("prepare", "ticks", "decide", "delete"))
    for sequence, (kind, locks_directories) in product(sequences, WAYS):
        explorer.every_meddling(sequence, kind, locks_directories=locks_directories)
    for seed in range(150):
        explorer.lives(seed, meddled=True)
    fired = {kind: explorer.fired[kind] for kind in KINDS}
    print(fired)
    assert min(fired.values()) > 100, fired
