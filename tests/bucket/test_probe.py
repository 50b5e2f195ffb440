from random import Random

import pytest

from holdfast.bucket import MemoryBucket, enforces_create
from holdfast.errors import UnavailableError
from holdfast.testing.sim_bucket import Faults, SimBucket


def test_a_store_is_tested_for_create_if_absent() -> None:
    for enforces in (True, False):
        store = SimBucket(Random(0), enforces=enforces)
        store.truth.put_if_absent("wal/1", b"x")
        assert enforces_create(store) is enforces
        assert [info.name for info in store.truth.list("")] == ["wal/1"]


def test_a_store_that_does_not_answer_has_not_answered() -> None:
    with pytest.raises(UnavailableError):
        enforces_create(SimBucket(Random(0), Faults(refused=1.0)))


def test_two_probes_at_once_do_not_meet() -> None:
    store, names = MemoryBucket(), set[str]()

    class Notes(MemoryBucket):
        def delete(self, *gone: str) -> None:
            names.update(gone)

    store = Notes()
    assert enforces_create(store)
    assert enforces_create(store)
    assert len(names) == 2
    assert all(name.startswith("probe/") for name in names)
