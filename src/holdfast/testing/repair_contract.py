"""What the repair of every log must pass: a plan is true to the entry.

    class TestMine(RepairContract):
        format = "shanghai"

See holdfast.testing.repairs.  `make campaign` runs the same trials for hours.
"""

import logging
from collections.abc import Iterator

import pytest

from holdfast.testing.repairs import Repairs


class RepairContract:
    format: str
    seeds = range(300)

    @pytest.fixture(autouse=True)
    def quiet(self) -> Iterator[None]:
        logging.getLogger("holdfast").disabled = True
        yield
        logging.getLogger("holdfast").disabled = False

    def test_a_plan_is_true_to_the_entry(self) -> None:
        trials = Repairs(self.format)
        for seed in self.seeds:
            trials.trial(seed)
        assert trials.counts["repairs"] > len(self.seeds), "most trials repair in both ways"
        assert trials.counts["clean"] and trials.counts["corrupt"]
