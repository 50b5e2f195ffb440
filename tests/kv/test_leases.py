import pytest
from tests.kv.stores import Hand
from tests.kv.test_manifests import open_store, seen

from holdfast.errors import CorruptError, UnavailableError
from holdfast.formats.manifest import Draft, Manifest
from holdfast.kv.leases import Lease
from holdfast.kv.manifests import Change, ManifestStore
from holdfast.kv.names import manifest_name
from holdfast.kv.snapshots import listed


def nothing(draft: Draft[Manifest], manifest: Manifest) -> None:
    """An edit that changes nothing."""


def held(store: ManifestStore) -> list[int]:
    current = store.latest()
    assert current is not None
    return sorted(found.manifest_id for found in listed(current[1]))


def leased() -> tuple[ManifestStore, Lease, Hand]:
    _, store, hand = open_store()
    return store, Lease(store, hand.runtime, ttl_ms=9000), hand


def test_moving_on_drops_the_snapshot_of_the_old_state() -> None:
    store, lease, _ = leased()
    assert lease.move(nothing)[0] == 2
    assert held(store) == [2]
    assert lease.move(nothing)[0] == 3
    assert held(store) == [2, 3]  # a view may begin to read 2 until 3 is shown
    assert lease.is_due
    lease.renew()
    assert held(store) == [3]
    assert not lease.is_due
    assert lease.move(nothing)[0] == 5
    assert lease.move(nothing)[0] == 6
    assert held(store) == [5, 6]
    lease.release()
    assert held(store) == []
    before = store.ids()
    lease.release()
    assert store.ids() == before


def test_what_views_read_is_kept_until_they_are_done() -> None:
    store, lease, _ = leased()
    first, _ = lease.move(nothing)
    lease.pin(first)
    lease.pin(first)
    second, _ = lease.move(nothing)
    assert held(store) == [first, second]
    assert lease.keeps(first)
    lease.unpin(first)
    third, _ = lease.move(nothing)
    assert held(store) == [first, second, third]
    lease.renew()
    assert held(store) == [first, third]
    lease.unpin(first)
    assert lease.keeps(first)
    lease.renew()
    assert held(store) == [third]
    assert not lease.keeps(first)


def test_a_lease_is_renewed_in_time_or_has_lapsed() -> None:
    store, lease, hand = leased()
    lease.move(nothing)
    hand.ms += 2999
    assert not lease.is_due
    hand.ms += 1
    assert lease.is_due
    lease.renew()
    assert not lease.is_due
    before = store.ids()
    lease.renew()
    assert store.ids() == before  # it is as long as can be
    lease.pin(2)
    hand.ms += 9000
    assert lease.has_lapsed
    assert not lease.keeps(2)
    with pytest.raises(FileNotFoundError, match="expired"):
        lease.renew()
    assert lease.move(nothing)[0] == 4
    assert held(store) == [4]
    assert lease.keeps(4)
    assert not lease.keeps(2)  # too late for the view, and it will be told


def test_a_lease_that_others_dropped_cannot_be_renewed() -> None:
    store, lease, _ = leased()
    lease.move(nothing)

    def drop_all(manifest_id: int, manifest: Manifest) -> Manifest:
        draft = manifest.edit()
        del draft.message.snapshots[:]
        return draft.freeze()

    store.update(drop_all)
    with pytest.raises(FileNotFoundError, match="dropped"):
        lease.renew()


def test_the_state_that_is_held_is_the_one_that_is_returned() -> None:
    """If the update was slow, others may have gone on before it is known to be there."""
    store, lease, hand = leased()
    calls: list[int] = []

    def slow(draft: Draft[Manifest], manifest: Manifest) -> None:
        draft.message.wal_id_last_seen = 1
        calls.append(manifest.wal_id_last_seen)
        hand.ms += 600

    honest = store.latest

    def latest() -> tuple[int, Manifest] | None:
        if calls:
            store.latest = honest  # type: ignore[method-assign]
            store.update(seen(2))
        return honest()

    store.latest = latest  # type: ignore[method-assign]
    manifest_id, manifest = lease.move(slow)
    assert (manifest_id, manifest.wal_id_last_seen) == (2, 1)
    assert store.ids() == [1, 2, 3]
    assert calls == [0]


@pytest.mark.parametrize(("slept_ms", "error"), [(9000, UnavailableError), (100, CorruptError)])
def test_a_state_that_is_gone_before_it_is_read(slept_ms: int, error: type[Exception]) -> None:
    """After an update that others followed: it expired if time has passed, else it is a loss."""
    bucket, store, hand = open_store()
    lease = Lease(store, hand.runtime, ttl_ms=9000)
    honest = store.update

    def update(change: Change) -> tuple[int, Manifest]:
        honest(change)
        followed = honest(seen(1))
        hand.ms += slept_ms
        bucket.delete(manifest_name(2))
        return followed

    store.update = update  # type: ignore[method-assign]
    with pytest.raises(error):
        lease.move(nothing)
