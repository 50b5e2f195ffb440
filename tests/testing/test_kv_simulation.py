"""The kv store and all who use it, in simulations; and bugs planted there, each of them found."""

import pytest
from tests.testing.kv_mutants import MUTANTS, Mutant

from holdfast.testing.explorer import BrokenPromiseError
from holdfast.testing.kv_simulation import MODES, Knobs, Mode, Simulation, count

STEPS_MIN = 10_000  # of each mode
SEEDS = {"native": 8, "two-phase": 10}  # there a write takes more steps, but quicker ones
FAULTS = ("refused", "unsent", "lost answer", "late", "arrived late", "slow")
TROUBLE = ("frozen", "killed", "time leapt", "fenced", "zombie refused", "manifest conflict")
WORK = (
    "lease held",
    "loaded",
    "compacted",
    "compacted everything",
    "snapshot read",
    "view read again",
)
CLEANED = ("collected manifest", "collected wal", "collected level", "snapshots expired")
OF_MODE = {
    "native": ("wal conflict", "manifest slot taken again"),
    "two-phase": ("winner helped", "recovered", "swept", "levels conflict"),
}


@pytest.mark.parametrize("mode", MODES)
def test_promises_are_kept_under_all_faults(mode: Mode) -> None:
    """A failure tells the seed, and how to run it again."""
    figures = Knobs(steps=1500)  # three writers, clocks an hour off, one answer in five is trouble
    reports = [Simulation(seed, mode, figures).run() for seed in range(2)]
    reports += [Simulation(seed, mode).run() for seed in range(SEEDS[mode])]
    assert sum(report.steps for report in reports) >= STEPS_MIN
    assert sum(report.acknowledged for report in reports) >= 60
    assert sum(report.judged for report in reports) >= 100
    fired = count(reports)
    idle = [
        name for name in (*FAULTS, *TROUBLE, *WORK, *CLEANED, *OF_MODE[mode]) if not fired[name]
    ]
    assert not idle, "these never happened, so they have proved nothing"


@pytest.mark.parametrize("mode", MODES)
def test_the_same_seed_is_the_same_run(mode: Mode) -> None:
    first, again, other = (Simulation(seed, mode, Knobs(steps=200)).run() for seed in (5, 5, 6))
    assert first == again
    assert first.digest != other.digest


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)
    with pytest.raises(BrokenPromiseError) as found:
        for seed in range(mutant.seeds):
            Simulation(seed, mutant.mode, mutant.knobs).run()
    (note,) = found.value.__notes__
    assert f"again: Simulation({seed}, {mutant.mode!r}, Knobs(" in note
