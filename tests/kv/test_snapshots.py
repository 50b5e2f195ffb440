import pytest
from tests.kv.stores import Hand
from tests.kv.test_manifests import open_store, seen

from holdfast.formats.manifest import Manifest
from holdfast.kv.manifests import Change
from holdfast.kv.snapshots import Snapshots, active_ids, expiry, listed


def test_a_snapshot_names_the_manifest_that_it_is_written_with() -> None:
    _, store, hand = open_store()
    snapshots = Snapshots(store, hand.runtime)
    made = snapshots.create(60_000)
    assert made.manifest_id == 2
    assert made.expires_s == hand.ms // 1000 + 61
    permanent = snapshots.create(None)
    assert (permanent.manifest_id, permanent.expires_s) == (3, 0)
    assert snapshots.list() == [made, permanent]
    snapshots.drop(made.id)
    assert snapshots.list() == [permanent]
    assert store.ids() == [1, 2, 3, 4]
    snapshots.drop(made.id)
    assert store.ids() == [1, 2, 3, 4]  # nothing to do, nothing written


def test_only_active_manifests_can_be_kept() -> None:
    _, store, hand = open_store()
    snapshots = Snapshots(store, hand.runtime)
    made = snapshots.create(60_000)
    store.update(seen(5))
    other = snapshots.create(120_000, manifest_id=made.manifest_id)
    assert other.manifest_id == made.manifest_id
    assert other.id != made.id
    current = store.latest()
    assert current is not None
    assert snapshots.create(120_000, manifest_id=current[0]).manifest_id == current[0]
    with pytest.raises(ValueError, match="manifest 1 is not active"):
        snapshots.create(120_000, manifest_id=1)
    hand.ms += 130_000
    with pytest.raises(ValueError, match="not active"):
        snapshots.create(120_000, manifest_id=made.manifest_id)


def test_expiry_counts_and_clocks_may_differ() -> None:
    _, store, hand = open_store()
    snapshots = Snapshots(store, hand.runtime)
    short, long, permanent = (
        snapshots.create(10_000),
        snapshots.create(100_000),
        snapshots.create(None),
    )
    store.update(seen(9))
    current = store.latest()
    assert current is not None
    later = hand.ms + 50_000
    assert active_ids(*current, hand.ms) == {2, 3, 4, 5}
    assert active_ids(*current, later) == {long.manifest_id, permanent.manifest_id, 5}
    assert short.manifest_id in active_ids(*current, later, clock_skew_ms=60_000)
    assert active_ids(*current, later * 2) == {permanent.manifest_id, 5}
    assert len(listed(current[1])) == 3


def test_a_snapshot_can_be_extended() -> None:
    _, store, hand = open_store()
    snapshots = Snapshots(store, hand.runtime)
    made = snapshots.create(10_000)
    hand.ms += 5000
    extended = snapshots.extend(made.id, 10_000)
    assert extended.expires_s == made.expires_s + 5
    assert snapshots.extend(made.id, None).expires_s == 0
    assert snapshots.extend(made.id, None).expires_s == 0
    snapshots.drop(made.id)
    with pytest.raises(KeyError, match="no snapshot"):
        snapshots.extend(made.id, 10_000)


def test_bad_times_are_refused_and_late_ones_capped() -> None:
    with pytest.raises(ValueError, match="None for no expiry"):
        expiry(0, 0)
    assert expiry(0, 1e15) == 2**32 - 1
    assert Snapshots(open_store()[1], Hand().runtime).list() == []


def test_one_that_is_dropped_as_soon_as_it_is_extended_was_extended() -> None:
    _, store, hand = open_store()
    snapshots = Snapshots(store, hand.runtime)
    made, honest = snapshots.create(5_000), store.update

    def update(change: Change) -> tuple[int, Manifest]:
        done = honest(change)
        store.update = honest  # type: ignore[method-assign]
        snapshots.drop(made.id)
        return done

    store.update = update  # type: ignore[method-assign]
    assert snapshots.extend(made.id, 10_000).expires_s == made.expires_s + 5
    assert snapshots.list() == []
