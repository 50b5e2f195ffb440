from collections.abc import Callable

import pytest
from tests.kv.stores import Hand
from tests.kv.test_manifests import open_store, seen
from tests.mutants import rewrite

from holdfast.errors import CorruptError, UnavailableError
from holdfast.formats.manifest import Draft, Manifest
from holdfast.kv.manifests import Change, ManifestStore
from holdfast.kv.names import manifest_name
from holdfast.kv.snapshots import Lease, listed


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
    assert not lease.keeps(2)  # too late for the view, and it gets an error


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
    """Others may have gone on before the update is known to be there."""
    store, lease, hand = leased()
    calls: list[int] = []

    def edit(draft: Draft[Manifest], manifest: Manifest) -> None:
        draft.message.wal_id_last_seen = 1
        calls.append(manifest.wal_id_last_seen)

    honest = store._is_current

    def is_current(name: str, manifest: Manifest) -> bool:
        store._is_current = honest  # type: ignore[method-assign]
        ManifestStore(store._bucket, hand.runtime).update(seen(2))
        return honest(name, manifest)

    store._is_current = is_current  # type: ignore[method-assign]
    manifest_id, manifest = lease.move(edit)
    assert (manifest_id, manifest.wal_id_last_seen) == (2, 1)
    assert store.ids() == [1, 2, 3]
    assert calls == [0]


@pytest.mark.parametrize(("slept_ms", "error"), [(9000, UnavailableError), (100, CorruptError)])
def test_a_state_deleted_before_it_is_read_raises(slept_ms: int, error: type[Exception]) -> None:
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


def no_lease_lasts_longer_than_its_snapshot(step: Callable[[Lease], object]) -> None:
    """While an update takes its time, others may see the expiry that was asked for before it."""
    store, lease, hand = leased()
    lease.move(nothing)
    hand.ms += 2000
    honest = store.update

    def slow(change: Change) -> tuple[int, Manifest]:
        done = honest(change)
        hand.ms += 5000
        return done

    store.update = slow  # type: ignore[method-assign]
    step(lease)
    hand.ms += 3999
    assert not lease.has_lapsed
    hand.ms += 1
    assert lease.has_lapsed


STEPS: dict[str, Callable[[Lease], object]] = {
    "move": lambda lease: lease.move(nothing),
    "renew": lambda lease: lease.renew(),
}


@pytest.mark.parametrize("step", STEPS)
def test_the_time_of_a_lease_is_taken_before_the_update(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_lease_lasts_longer_than_its_snapshot(STEPS[step])
    bug = "self._renewed_ms = before_ms", "self._renewed_ms = self._runtime.monotonic_ms()"
    rewrite(monkeypatch, Lease, step, *bug)
    with pytest.raises(AssertionError):
        no_lease_lasts_longer_than_its_snapshot(STEPS[step])
