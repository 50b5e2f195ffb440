import pytest

from holdfast.errors import CorruptError
from holdfast.formats.raft_entry import RaftEntry
from holdfast.logs.log import Damage
from holdfast.logs.raft_wal import RAFT_CODEC, RaftWal, RaftWalReader, check_segment, scan_segment
from holdfast.runtime import Runtime
from holdfast.testing import SimDisk


def entries(first: int, last: int) -> list[RaftEntry]:
    return [RaftEntry(i, 1, 0, b"%d" % i) for i in range(first, last + 1)]


def owner(disk: SimDisk) -> RaftWal:
    return RaftWal(
        disk,
        codec=RAFT_CODEC,
        segment_size_max=300,
        runtime=Runtime(now_ns=lambda: 1_700_000_000_123 * 10**6),
    )


def test_follows_appends_rotations_and_truncations() -> None:
    disk = SimDisk()
    with owner(disk) as wal, RaftWalReader(disk) as guest:
        assert (guest.first_index, guest.refresh()) == (1, 0)
        for number in range(1, 40):
            wal.store_logs(entries(number, number))
            assert guest.refresh() == number
            assert guest.get_log(number).data == b"%d" % number
        assert len(guest.segments()) > 3
        wal.truncate_head(20)
        wal.truncate_tail(30)
        wal.set_uint64(b"CurrentTerm", 3)
        assert (guest.refresh(), guest.first_index) == (30, 20)
        assert guest.get_uint64(b"CurrentTerm") == 3
        wal.store_logs(entries(31, 31))
        assert guest.refresh() == 31


def test_facts_and_segments_describe_the_log() -> None:
    disk = SimDisk()
    with owner(disk) as wal:
        wal.store_logs(entries(1, 5))
        wal.rotate()
    with RaftWalReader(disk) as guest:
        one, two = guest.segments()
        assert (one.state, one.first_index, one.last_index) == ("sealed", 1, 5)
        assert (two.state, two.first_index, two.last_index) == ("active", 6, 5)
        assert one.created_ms == 1_700_000_000_123
        with pytest.raises(FileNotFoundError):
            guest.check("other.wal")


def test_segments_are_scanned_and_checked_one_by_one() -> None:
    disk = SimDisk()
    with owner(disk) as wal:
        for number in range(1, 31):
            wal.store_logs(entries(number, number))
        wal.truncate_head(3)
    with RaftWalReader(disk) as guest:
        whole = [row for batch in guest.scan() for row in batch.to_pylist()]
        segments = guest.segments()
    rows = []
    for segment in segments:
        batches = scan_segment(disk, segment, segment.first_index, segment.last_index + 1)
        rows += [row for batch in batches for row in batch.to_pylist()]
        assert check_segment(disk, segment) is None
    assert rows == whole
    assert [row["index"] for row in rows] == list(range(3, 31))


def test_a_scan_continues_after_a_damaged_batch() -> None:
    disk = SimDisk()
    with owner(disk) as wal:
        for number in range(1, 31):
            wal.store_logs(entries(number, number))
    names = sorted(name for name in disk.files() if name.endswith(".wal"))
    disk.flip(names[1], 8 * 42)
    with RaftWalReader(disk) as guest:
        first = guest.segments()[1].first_index
        reported: list[Damage] = []
        rows = [
            row["index"]
            for batch in guest.scan(on_damage=reported.append)
            for row in batch.to_pylist()
        ]
        assert rows == [i for i in range(1, 31) if i != first]
        assert [(d.first_index, d.last_index) for d in reported] == [(first, first)]
        with pytest.raises(CorruptError, match="checksum"):
            list(guest.scan())
        with pytest.raises(CorruptError, match="checksum"):
            guest.read(first)
        damage = guest.check(names[1])
        assert damage is not None
        assert (damage.first_index, damage.last_index) == (first, first)


def test_a_missing_segment_is_reported_with_its_indexes() -> None:
    disk = SimDisk()
    with owner(disk) as wal:
        for number in range(1, 31):
            wal.store_logs(entries(number, number))
    names = sorted(name for name in disk.files() if name.endswith(".wal"))
    disk.remove(names[1])
    with RaftWalReader(disk) as guest:
        lost = guest.segments()[1]
        assert lost.state == "damaged"
        assert guest.damage == (Damage(names[1], 0, lost.first_index, lost.last_index, "missing"),)
        assert guest.check(names[1]) == guest.damage[0]
        with pytest.raises(CorruptError, match="missing"):
            guest.read(lost.first_index)
        rows = [row["index"] for b in guest.scan(on_damage=lambda _: None) for row in b.to_pylist()]
        gone = range(lost.first_index, lost.last_index + 1)
        assert rows == [i for i in range(1, 31) if i not in gone]
