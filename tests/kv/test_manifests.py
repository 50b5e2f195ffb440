from typing import Any

import pytest
from tests.kv.stores import Hand

from holdfast.bucket.bucket import Buffer, ObjectInfo
from holdfast.bucket.memory import MemoryBucket
from holdfast.errors import CorruptError
from holdfast.formats.manifest import Manifest, decode_manifest
from holdfast.kv.manifests import Change, ManifestStore
from holdfast.kv.names import manifest_name
from holdfast.testing.log_contract import run_all

FIRST = Manifest.create(created_ms=1, gc_min_age_ms=1000)


def open_store(hand: Hand | None = None) -> tuple[MemoryBucket, ManifestStore, Hand]:
    bucket, hand = MemoryBucket(), hand or Hand()
    store = ManifestStore(bucket, hand.runtime)
    store.create(FIRST)
    return bucket, store, hand


def seen(wal_id: int) -> Change:
    """A change that knows its work when it sees it."""

    def change(manifest_id: int, manifest: Manifest) -> Manifest | None:
        if manifest.wal_id_last_seen >= wal_id:
            return None
        draft = manifest.edit()
        draft.message.wal_id_last_seen = wal_id
        return draft.freeze()

    return change


def test_ids_begin_at_one_and_rise_by_one() -> None:
    bucket, store, _ = open_store()
    assert not store.create(FIRST)  # it was created by open_store
    assert store.update(seen(5))[0] == 2
    assert store.update(seen(6))[0] == 3
    latest = store.latest()
    assert latest is not None
    assert (latest[0], latest[1].wal_id_last_seen) == (3, 6)
    assert [store.get(i).wal_id_last_seen for i in store.ids()] == [0, 5, 6]
    assert len({bytes(bucket.get(manifest_name(i))) for i in store.ids()}) == 3


def test_nothing_to_do_writes_nothing() -> None:
    _, store, _ = open_store()
    store.update(seen(5))
    assert store.update(seen(4))[0] == 2
    assert store.ids() == [1, 2]


def test_without_a_store_there_is_nothing_to_update() -> None:
    store = ManifestStore(MemoryBucket(), Hand().runtime)
    assert store.latest() is None
    with pytest.raises(FileNotFoundError, match="no manifest"):
        store.update(seen(1))


def test_an_update_that_loses_its_id_starts_again() -> None:
    bucket, store, hand = open_store()
    rival = ManifestStore(bucket, hand.runtime)
    calls: list[int] = []

    def change(manifest_id: int, manifest: Manifest) -> Manifest | None:
        calls.append(manifest_id)
        if len(calls) < 3:
            rival.update(seen(len(calls)))  # just before we write
        draft = manifest.edit()
        draft.message.writer_epoch += 1
        return draft.freeze()

    manifest_id, manifest = store.update(change)
    assert calls == [1, 2, 3]
    assert (manifest_id, manifest.wal_id_last_seen, manifest.writer_epoch) == (4, 2, 1)


def test_many_updaters_lose_no_update() -> None:
    bucket = MemoryBucket()
    ManifestStore(bucket, Hand().runtime).create(FIRST)

    def raise_epoch_ten_times() -> None:
        store = ManifestStore(bucket, Hand().runtime)
        for _ in range(10):
            store.update(_next_epoch)

    run_all([raise_epoch_ten_times] * 4)
    latest = ManifestStore(bucket, Hand().runtime).latest()
    assert latest is not None
    assert (latest[0], latest[1].writer_epoch) == (41, 40)


def _next_epoch(manifest_id: int, manifest: Manifest) -> Manifest:
    draft = manifest.edit()
    draft.message.writer_epoch += 1
    return draft.freeze()


def test_a_slow_update_of_a_slot_that_was_collected_is_made_again() -> None:
    bucket, store, hand = open_store()
    rival = ManifestStore(bucket, hand.runtime)
    calls: list[int] = []

    def change(manifest_id: int, manifest: Manifest) -> Manifest | None:
        calls.append(manifest_id)
        changed = seen(7)(manifest_id, manifest)
        if len(calls) == 1:  # we stall; others go on, and their manifests are collected
            rival.update(_next_epoch)
            rival.update(_next_epoch)
            bucket.delete(manifest_name(1), manifest_name(2))
            hand.ms += 600
        return changed

    manifest_id, manifest = store.update(change)
    assert bucket.get(manifest_name(2))  # the trap: our create of slot 2 succeeded
    assert calls == [1, 3]
    assert (manifest_id, manifest.wal_id_last_seen, manifest.writer_epoch) == (4, 7, 2)


def test_a_slow_update_that_is_there_is_not_made_twice() -> None:
    _, store, hand = open_store()

    def change(manifest_id: int, manifest: Manifest) -> Manifest | None:
        hand.ms += 600
        return seen(7)(manifest_id, manifest)

    assert store.update(change)[0] == 2
    assert store.ids() == [1, 2]


def test_a_manifest_collected_between_list_and_get_is_passed_over() -> None:
    bucket, rival, hand = open_store()
    store = ManifestStore(bucket, hand.runtime)
    honest = store.get

    def get(manifest_id: int) -> Manifest:
        if manifest_id == 1:
            rival.update(seen(9))
            bucket.delete(manifest_name(1))
        return honest(manifest_id)

    store.get = get  # type: ignore[method-assign]
    latest = store.latest()
    assert latest is not None
    assert (latest[0], latest[1].wal_id_last_seen) == (2, 9)


def test_damage_raises_and_foreign_files_are_skipped() -> None:
    bucket, store, _ = open_store()
    bucket.put_if_absent(manifest_name(2) + ".temporary", b"half")
    assert store.ids() == [1]
    bucket.put_if_absent(manifest_name(2), b"garbage")
    with pytest.raises(CorruptError, match=r"00002\.manifest"):
        store.latest()


def test_a_slow_creator_finds_the_manifest_of_another() -> None:
    bucket, store, hand = open_store()
    store.update(seen(3))
    bucket.delete(manifest_name(1))  # collected
    late = ManifestStore(bucket, hand.runtime)
    assert not late.create(FIRST)
    manifest_id, manifest = late.current()
    assert (manifest_id, manifest.wal_id_last_seen) == (2, 3)


def test_an_unchanged_manifest_is_read_once() -> None:
    bucket, rival, hand = open_store()
    store = ManifestStore(bucket, hand.runtime)
    first, second = store.latest(), store.latest()
    assert first is not None
    assert second is not None
    assert first[1] is second[1]
    rival.update(seen(4))
    third = store.latest()
    assert third is not None
    assert third[1].wal_id_last_seen == 4
    bucket.delete(*[manifest_name(i) for i in store.ids()])
    assert store.latest() is None


def test_an_update_whose_id_was_collected_is_made_again() -> None:
    """The process was frozen before its create, and its clocks stood still."""
    bucket, store, hand = open_store()
    rival = ManifestStore(bucket, hand.runtime)
    calls: list[int] = []

    def change(manifest_id: int, manifest: Manifest) -> Manifest | None:
        calls.append(manifest_id)
        if len(calls) == 1:
            for number in range(2, 6):
                rival.update(seen(number))
            bucket.delete(*(manifest_name(i) for i in rival.ids()[:-1]))
        return seen(100)(manifest_id, manifest)

    manifest_id, manifest = store.update(change)
    assert calls == [1, 5]
    current = ManifestStore(bucket, hand.runtime).current()
    assert (manifest_id, manifest) == current
    assert current[1].wal_id_last_seen == 100


def test_the_second_look_costs_one_listing() -> None:
    calls: list[str] = []

    class Counting(MemoryBucket):
        def get(self, name: str) -> bytes:
            calls.append("get")
            return super().get(name)

        def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
            calls.append("list")
            return super().list(prefix, after)

    store = ManifestStore(Counting(), Hand().runtime)
    store.create(FIRST)
    store.update(seen(1))
    calls.clear()
    store.update(seen(2))
    store.current()
    assert calls == ["list", "list", "list"]
    assert (
        store.current()[1].unique_id
        == decode_manifest(store._bucket.get(manifest_name(3))).unique_id
    )


def test_a_store_is_not_created_twice_by_a_process_that_was_frozen() -> None:
    bucket, hand = MemoryBucket(), Hand()

    class Frozen(MemoryBucket):
        def put_if_absent(self, name: str, data: Buffer, **metadata: Any) -> None:
            if not self._objects:
                rival = ManifestStore(bucket, hand.runtime)
                assert rival.create(FIRST)
                for number in (1, 2):
                    rival.update(seen(number))
                rival.update(_raise_boundary)
                bucket.delete(manifest_name(1))
                self._objects, self._names = bucket._objects, bucket._names
            super().put_if_absent(name, data, **metadata)

    assert not ManifestStore(Frozen(), hand.runtime).create(FIRST)


def _raise_boundary(manifest_id: int, manifest: Manifest) -> Manifest | None:
    if manifest.manifest_gc_boundary:
        return None
    draft = manifest.edit()
    draft.message.manifest_gc_boundary = manifest_id
    return draft.freeze()
