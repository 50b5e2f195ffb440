from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.disk import OsDisk
from holdfast.errors import (
    CorruptError,
    HoldfastError,
    LockedError,
    NotOwnerError,
    PoisonedError,
    UnsupportedError,
)
from holdfast.formats import raft_wal as fmt
from holdfast.formats.raft_entry import RaftEntry, encode_entry
from holdfast.logs.raft_wal import OPAQUE_CODEC, RAFT_CODEC, RaftWal, RaftWalReader
from holdfast.logs.raft_wal.writer import _Batch
from holdfast.runtime import Runtime
from holdfast.testing import SimDisk
from holdfast.testing.sim_disk import Fault


@pytest.fixture
def wal() -> Iterator[RaftWal]:
    with RaftWal(SimDisk(), codec=RAFT_CODEC, segment_size_max=1000) as wal:
        yield wal


def entries(first: int, last: int, size: int = 9) -> list[RaftEntry]:
    return [RaftEntry(i, 1, 0, bytes([i % 256]) * size) for i in range(first, last + 1)]


def test_an_empty_log_may_start_at_any_index(wal: RaftWal) -> None:
    assert (wal.first_index, wal.last_index) == (1, 0)
    assert (wal.raft_first_index, wal.raft_last_index) == (0, 0)
    wal.store_logs(entries(2**53 + 1, 2**53 + 3))
    assert (wal.raft_first_index, wal.raft_last_index) == (2**53 + 1, 2**53 + 3)
    assert [segment.id for segment in wal.segments()] == ["0000000000000001"]


@pytest.mark.parametrize("first", [0, 1, 3, 5, 6])
def test_indexes_continue_after_the_last_one(wal: RaftWal, first: int) -> None:
    wal.store_logs(entries(2, 3))
    with pytest.raises(ValueError, match=f"tried to append index {first} after 3"):
        wal.store_logs(entries(first, first + 1))
    wal.store_logs(entries(4, 4))
    assert wal.last_index == 4


def test_a_batch_has_no_gap_and_may_be_empty(wal: RaftWal) -> None:
    wal.store_logs([])
    with pytest.raises(ValueError, match="non-monotonic"):
        wal.store_logs([RaftEntry(1), RaftEntry(3)])
    with pytest.raises(ValueError, match="tried to append index 0"):
        wal.store_logs([RaftEntry(0)])
    assert wal.last_index == 0


def test_entries_too_large_are_refused_before_anything_is_written(wal: RaftWal) -> None:
    with pytest.raises(ValueError, match=r"at most 67108864; .* format=.shanghai"):
        wal.store_logs([RaftEntry(1, data=bytes(fmt.ENTRY_SIZE_MAX))])
    wal.store_logs(entries(1, 1))


@pytest.mark.parametrize("size", [0, 32, 2**31])
def test_an_invalid_segment_size_is_refused(size: int) -> None:
    disk = SimDisk()
    with pytest.raises(ValueError, match="a segment takes"):
        RaftWal(disk, segment_size_max=size)
    assert disk.files() == {}


def test_removed_entries_cannot_be_read(wal: RaftWal) -> None:
    wal.store_logs(entries(1, 9))
    wal.delete_range(1, 4)
    wal.delete_range(8, 9)
    for index in (4, 8):
        with pytest.raises(HoldfastError):
            wal.get_log(index)
    assert (wal.first_index, wal.last_index) == (5, 7)
    with pytest.raises(ValueError, match="only suffix or prefix"):
        wal.delete_range(6, 6)
    for nothing in ((9, 3), (0, 4), (8, 20)):
        wal.delete_range(*nothing)
    wal.delete_range(0, 2**64 - 1)
    assert (wal.raft_first_index, wal.last_index) == (0, 7)


def test_a_tail_truncated_to_nothing_continues_at_its_first_index(wal: RaftWal) -> None:
    wal.store_logs(entries(1, 9))
    wal.truncate_head(4)
    wal.truncate_tail(3)
    assert (wal.first_index, wal.last_index) == (4, 3)
    for wrong in (2, 1):
        with pytest.raises(ValueError, match="begins at 4"):
            wal.truncate_tail(wrong)
    with pytest.raises(ValueError, match="ends at 3"):
        wal.truncate_head(5)
    wal.store_logs(entries(4, 4))


def test_the_stable_store_outlives_its_owner() -> None:
    disk = SimDisk()
    with RaftWal(disk) as wal:
        wal.set(b"LastVoteCand", b"server-1:8300")
        wal.set_uint64(b"CurrentTerm", 2**64 - 1)
        with pytest.raises(ValueError, match="uint64"):
            wal.get_uint64(b"LastVoteCand")
    with RaftWal(disk) as wal:
        assert wal.get(b"LastVoteCand") == b"server-1:8300"
        assert wal.get_uint64(b"CurrentTerm") == 2**64 - 1
        assert (wal.get(b"other"), wal.get_uint64(b"other")) == (None, 0)
        wal.set(b"LastVoteCand", None)
        assert wal.stable == {b"CurrentTerm": b"\xff" * 8}


def test_a_codec_is_recorded_and_checked() -> None:
    disk = SimDisk()
    with RaftWal(disk, codec=70_000) as wal:
        wal.append([b"mine"])
        with pytest.raises(ValueError, match="codec is 70000"):
            wal.store_logs(entries(2, 2))
    with pytest.raises(UnsupportedError, match="70000"):
        RaftWal(disk, codec=OPAQUE_CODEC)
    with RaftWal(disk) as wal:
        assert (wal.codec, wal.append([b"more"])) == (70_000, 2)
    with pytest.raises(ValueError, match="reserved"):
        RaftWal(disk, codec=2)


def test_payloads_do_not_choose_the_codec() -> None:
    disk = SimDisk()
    with RaftWal(disk) as wal:
        assert wal.append([encode_entry(RaftEntry(9)), b""]) == 2
        with pytest.raises(ValueError, match=r"not 1 .Raft entries"):
            wal.store_logs(entries(3, 3))
    with RaftWal(disk) as wal:
        assert (wal.codec, wal.append([b"more"]), wal.read(2)) == (OPAQUE_CODEC, 3, b"")


def test_a_log_that_was_never_written_takes_another_codec() -> None:
    """Version 0.1.0 records codec 1 in a new log, and chooses at the first append."""
    disk = SimDisk()
    RaftWal(disk, codec=RAFT_CODEC, first_index=7).close()
    with RaftWal(disk) as wal, pytest.raises(ValueError, match="Raft entry"):
        wal.append([b"text"])
    with RaftWal(disk, codec=OPAQUE_CODEC) as wal:
        assert wal.append([b"text"]) == 7
        wal.truncate_head(8)
    with pytest.raises(UnsupportedError):
        RaftWal(disk, codec=RAFT_CODEC)


def test_threads_that_append_first_agree_on_the_codec() -> None:
    with RaftWal(SimDisk()) as wal, ThreadPoolExecutor(8) as pool:
        payloads = [b"text", encode_entry(RaftEntry(5))] * 8
        found = sorted(pool.map(lambda payload: wal.append([payload]), payloads))
        assert found == list(range(1, 17))


def test_a_log_of_raft_entries_refuses_other_payloads(wal: RaftWal) -> None:
    assert wal.append([encode_entry(entry) for entry in entries(1, 3)]) == 3
    with pytest.raises(ValueError, match="cannot be decoded as a Raft entry"):
        wal.append([b"text"])
    wal.delete_range(1, 3)
    with pytest.raises(ValueError, match="cannot be decoded as a Raft entry"):
        wal.append([b"text"])
    wal.store_logs(entries(1, 3))
    with pytest.raises(ValueError, match="non-monotonic"):
        wal.append([encode_entry(RaftEntry(4)), encode_entry(RaftEntry(6))])
    assert wal.get_log(3) == entries(3, 3)[0]


def test_an_entry_with_another_index_is_damage() -> None:
    disk = SimDisk()
    with RaftWal(disk, codec=OPAQUE_CODEC) as wal:
        wal.append([encode_entry(RaftEntry(7)), b"\xff"])
        with pytest.raises(CorruptError, match="says it is entry 7"):
            wal.get_log(1)
        with pytest.raises(CorruptError, match="no number"):
            wal.get_log(2)


def test_sizes_follow_the_pace() -> None:
    now, sizes = [10**12], []
    with RaftWal(
        SimDisk(), segment_fill_ms=1000, runtime=Runtime(now_ns=lambda: now[0] * 10**6)
    ) as wal:
        for pause in (0, 300, 999, 2010, 10**6):
            sizes.append(wal._segments.active.meta.size_limit // 2**20)
            now[0] += pause
            wal.append([bytes(wal._segments.active.meta.size_limit)])
    assert sizes == [1, 8, 16, 16, 8]


def test_a_busy_log_reaches_its_largest_segments_soon() -> None:
    sizes = []
    with RaftWal(SimDisk(), runtime=Runtime(now_ns=lambda: 10**18)) as wal:
        for _ in range(4):
            sizes.append(wal._segments.active.meta.size_limit // 2**20)
            wal.append([bytes(wal._segments.active.meta.size_limit - 40)])
    assert sizes == [1, 8, 64, 64]


def test_a_segment_sealed_half_empty_does_not_count_as_filled() -> None:
    now = [10**12]
    with RaftWal(SimDisk(), runtime=Runtime(now_ns=lambda: now[0] * 10**6)) as wal:
        for _ in range(3):
            wal.append([b"little"])
            now[0] += 60_000
            wal.rotate()
            assert wal._segments.active.meta.size_limit == 2**20


def test_an_empty_log_is_small(tmp_path: Path) -> None:
    RaftWal(OsDisk(tmp_path)).close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2**20 + 2**19


def test_a_segment_that_is_old_enough_is_sealed() -> None:
    now = [10**12]
    disk = SimDisk()
    with RaftWal(
        disk, segment_age_max_ms=1000, runtime=Runtime(now_ns=lambda: now[0] * 10**6)
    ) as wal:
        now[0] += 5000
        for pause in (999, 1, 0, 1000):
            wal.append([b"entry"])
            now[0] += pause
        wal.append([b"last"])
        spans = [(one.first_index, one.last_index) for one in wal.segments()]
    with RaftWal(disk) as again:
        found = [(one.first_index, one.last_index) for one in again.segments()]
        assert (found, again.recovered) == (spans, ())
    assert spans == [(1, 1), (2, 4), (5, 5)]


def test_files_are_of_their_full_size_from_the_start(wal: RaftWal) -> None:
    disk = wal.disk
    assert [size for name, size in disk.list().items() if name.endswith(".wal")] == [1000]


def test_a_program_that_holds_bbolts_lock_keeps_others_out(tmp_path: Path) -> None:
    with RaftWal(OsDisk(tmp_path)) as wal:
        wal.append([b"one"])
        lock = wal._meta._lock
        assert lock is not None and lock._directory is not None
        lock._directory.release()
        with pytest.raises(LockedError):
            RaftWal(OsDisk(tmp_path))
        with RaftWalReader(OsDisk(tmp_path)) as guest:
            assert guest.last_index == 1


def test_nothing_is_written_after_a_seal_whose_rotation_failed() -> None:
    disk = SimDisk()
    with RaftWal(disk, codec=OPAQUE_CODEC, segment_size_max=200) as wal:
        disk.posix.fault = Fault("sync eio", disk.posix.calls + 2, always=True)
        batches = [_Batch([bytes(20 * 2**20)]) for _ in range(2)]
        with pytest.raises(PoisonedError):
            wal._write(batches)
        disk.posix.fault = None
    with RaftWal(disk.after_kill()) as wal:
        assert (wal.last_index, wal.recovered[0][-20:]) == (1, "its seal is finished")


def test_another_meta_store_under_the_same_name_ends_the_ownership() -> None:
    """A Go program that opens the new file gets its lock, and writes to the same segments."""
    disk = SimDisk()
    wal = RaftWal(disk, codec=RAFT_CODEC)
    wal.store_logs(entries(1, 2))
    disk.create("wal-meta.db", disk.files()["wal-meta.db"], replace=True)
    segments = {name: data for name, data in disk.files().items() if name.endswith(".wal")}
    for write in (lambda: wal.store_logs(entries(3, 3)), wal.rotate, lambda: wal.set(b"k", b"v")):
        with pytest.raises(NotOwnerError, match=r"wal-meta\.db was removed or replaced"):
            write()
    assert {name: data for name, data in disk.files().items() if name.endswith(".wal")} == segments
    wal.close()
    with RaftWal(disk) as again:
        again.store_logs(entries(3, 3))
