from random import Random

import pytest

from holdfast.errors import CorruptError
from holdfast.formats import bolt
from holdfast.formats import raft_wal as fmt
from holdfast.formats.bolt import Bucket
from holdfast.logs.mark import MARK, REMEMBERED
from holdfast.logs.raft_wal import RaftWal, RaftWalReader
from holdfast.logs.raft_wal.directory import segment_name
from holdfast.logs.raft_wal.meta_store import META_STORE
from holdfast.testing import SimDisk
from holdfast.testing.raft_wal import RaftWalSubject
from holdfast.testing.sim_disk import PowerLost

FIRST = segment_name(1, 0)


class Roomy(RaftWalSubject):
    segment_size_max = 4096


def open_log(disk: SimDisk) -> RaftWal:
    return Roomy().open(disk)


def overwrite(disk: SimDisk, name: str, offset: int, data: bytes) -> None:
    file = disk.open(name, writable=True)
    file.write_at(offset, data)
    file.sync()
    file.close()


def contents(disk: SimDisk) -> list[bytes]:
    with RaftWalReader(disk) as guest:
        return [guest.read(i) for i in range(guest.first_index, guest.last_index + 1)]


def filled(count: int) -> tuple[SimDisk, list[int]]:
    """So many batches of one entry each, and where each ends."""
    disk, stops = SimDisk(), []
    with open_log(disk) as wal:
        for number in range(count):
            wal.append([b"entry %d" % number])
            stops.append(wal._segments.active.stop)
    disk.remove(MARK, REMEMBERED)  # of which a Go program knows nothing
    return disk, stops


def no_phantom_comes_out_of_a_torn_batch() -> None:
    """A payload full of frames is torn; what is written next ends just before one of them."""
    fake = fmt.encode_batch([b"phantom!"], offset=0, size_limit=4096).data
    disk, stops = filled(1)
    torn = fmt.encode_batch([fake * 20], offset=stops[0], size_limit=4096).data
    overwrite(disk, FIRST, stops[0], torn[:-8] + b"\3\0\0\0torn")
    with open_log(disk) as wal:
        assert wal.last_index == 1
        wal.append([b"x" * 16])  # its commit ends where a phantom begins
    assert contents(disk) == [b"entry 0", b"x" * 16]
    with open_log(disk) as wal:
        assert wal.last_index == 2


def test_a_torn_batch_never_becomes_entries() -> None:
    no_phantom_comes_out_of_a_torn_batch()


def test_a_torn_batch_is_cleared_and_kept() -> None:
    disk, stops = filled(3)
    disk.flip(FIRST, 8 * (stops[1] + 9))
    torn = disk.files()[FIRST][stops[1] : stops[2]]
    with RaftWalReader(disk) as guest:
        damage = guest.check(FIRST)
        assert damage is not None
        assert (damage.torn, guest.last_index, guest.damage) == (True, 2, ())
    with open_log(disk) as wal:
        assert wal.last_index == 2
        assert "kept in" in wal.recovered[0]
    assert not any(disk.files()[FIRST][stops[1] :])
    assert disk.files()[f"{FIRST}.{stops[1]}.cut"] == torn
    assert open_log(disk).recovered == ()


@pytest.mark.parametrize("byte", [0, 4, 6, 9, 16, 20])
def test_a_bad_batch_that_another_follows_is_damage(byte: int) -> None:
    """Type, length, payload, commit and checksum of the second batch of three."""
    disk, stops = filled(3)
    disk.flip(FIRST, 8 * (stops[0] + byte) + 5)
    before = disk.files()
    with open_log(disk) as wal:
        assert wal.last_index == 1
        assert [(d.torn, d.first_index) for d in wal.damage] == [(False, 2)]
        with pytest.raises(CorruptError, match="read-only until it is repaired"):
            wal.append([b"no"])
        with pytest.raises(CorruptError):
            wal.truncate_head(2)
    assert disk.files() == before


def test_a_seal_that_the_meta_store_does_not_know_is_finished() -> None:
    disk, stops = filled(3)
    starts = [32, stops[0], stops[1]]
    seal = fmt.encode_batch([], offset=stops[2], earlier=starts, size_limit=None)
    overwrite(disk, FIRST, stops[2], seal.data)
    with open_log(disk) as wal:
        assert wal.recovered == (f"{FIRST}: its seal is finished",)
        assert wal.append([b"next"]) == 4
        assert [s.state for s in wal.segments()] == ["sealed", "active"]
    assert contents(disk)[3:] == [b"next"]


def test_a_bad_batch_that_others_follow_is_damage_whatever_is_torn_at_the_end() -> None:
    """Where the frames break off, valid batches are looked for before the end too."""
    disk, stops = filled(4)
    disk.flip(FIRST, 8 * stops[0] + 5)  # the type of the second batch's frame
    disk.flip(FIRST, 8 * (stops[2] + 9))  # a payload byte of the last batch
    with open_log(disk) as wal:
        assert [(d.torn, d.first_index) for d in wal.damage] == [(False, 2)]


@pytest.mark.parametrize("stop", [8, 12, 16, 24])
def test_a_bad_batch_after_which_a_write_was_begun_is_damage(stop: int) -> None:
    """The next batch is cut in its header, payload or commit: the one before it was synced."""
    disk, stops = filled(3)
    disk.flip(FIRST, 8 * (stops[0] + 9))
    length = len(disk.files()[FIRST])
    overwrite(disk, FIRST, stops[1] + stop, bytes(length - stops[1] - stop))
    before = disk.files()[FIRST]
    with open_log(disk) as wal:
        assert [(d.torn, d.first_index) for d in wal.damage] == [(False, 2)]
    assert disk.files()[FIRST] == before


def test_a_torn_seal_is_cleared() -> None:
    disk, stops = filled(3)
    starts = [32, stops[0], stops[1]]
    seal = fmt.encode_batch([], offset=stops[2], earlier=starts, size_limit=None)
    overwrite(disk, FIRST, stops[2], seal.data[:-1])
    with open_log(disk) as wal:
        assert wal.append([b"next"]) == 4
        assert [s.state for s in wal.segments()] == ["active"]


def test_a_zeroed_frame_does_not_hide_what_follows() -> None:
    disk, stops = filled(4)
    overwrite(disk, FIRST, stops[0], bytes(8))
    with open_log(disk) as wal:
        assert wal.damage
        assert not wal.damage[0].torn


def test_stale_bytes_after_the_last_batch_are_cleared() -> None:
    disk, stops = filled(2)
    overwrite(disk, FIRST, stops[1] + 800, b"stale")
    with open_log(disk) as wal:
        assert len(wal.recovered) == 1
    assert not any(disk.files()[FIRST][stops[1] :])


def test_an_orphan_is_removed_only_if_its_id_was_assigned() -> None:
    disk, _ = filled(2)
    with open_log(disk) as wal:
        wal.rotate()
        wal.truncate_tail(1)
    orphan, stray = segment_name(7, 1), segment_name(9, 99)
    disk.create(orphan, b"left by a crash")
    disk.create(stray, b"whose is it?")
    with open_log(disk) as wal:
        assert wal.recovered == (f"{orphan}: removed, because the meta store no longer names it",)
    assert stray in disk.files()
    assert orphan not in disk.files()


def test_a_meta_store_older_than_the_files_is_damage() -> None:
    disk, _ = filled(2)
    before = disk.files()[META_STORE]
    with open_log(disk) as wal:
        wal.rotate()
    disk.create(META_STORE, before, replace=True)
    with open_log(disk) as wal:
        assert "older than" in wal.damage[0].why
        with pytest.raises(CorruptError):
            wal.append([b"no"])
    assert segment_name(3, 1) in disk.files()


def test_an_empty_meta_store_deletes_nothing() -> None:
    disk, _ = filled(2)
    empty = {b"wal-meta": Bucket({b"m": b'{"NextSegmentID":2}'}), b"stable": Bucket({})}
    disk.create(META_STORE, bolt.encode(empty), replace=True)
    with open_log(disk) as wal:
        assert wal.damage
    assert FIRST in disk.files()


def test_the_first_entry_after_a_truncation_cannot_be_torn() -> None:
    disk, stops = filled(3)
    with open_log(disk) as wal:
        wal.truncate_head(3)
    disk.flip(FIRST, 8 * (stops[1] + 9))
    with open_log(disk) as wal:
        assert [(d.first_index, d.last_index) for d in wal.damage] == [(3, 3)]


def test_an_active_segment_without_a_file_gets_one() -> None:
    disk, _ = filled(1)
    with open_log(disk) as wal:
        wal.rotate()
    disk.remove(segment_name(2, 1), MARK, REMEMBERED)
    with open_log(disk) as wal:
        assert wal.recovered == (f"{segment_name(2, 1)}: created, because the meta store names it",)
        assert wal.append([b"two"]) == 2


def test_a_crash_inside_recovery_is_recovered_from() -> None:
    for operation in range(12):
        disk, stops = filled(2)
        disk.flip(FIRST, 8 * (stops[0] + 9))
        disk.posix.operations, disk.posix.dies_at = 0, operation
        try:
            open_log(disk)
        except PowerLost:
            disk = disk.after_power_cut(Random(operation))
        else:
            disk = disk.after_kill()
        with open_log(disk) as wal:
            assert wal.last_index == 1
