from random import Random

import numpy as np
import pytest

from holdfast.disk import OsFile
from holdfast.formats import raft_wal as fmt
from holdfast.formats.raft_entry import RaftEntry
from holdfast.logs.raft_wal import (
    RAFT_CODEC,
    RaftWal,
    RaftWalReader,
    check_segment,
    scan_segment,
    scanning,
)
from holdfast.logs.raft_wal.repair import plan_repair
from holdfast.logs.raft_wal.scanning import scan_file, used_bytes
from holdfast.testing import SimDisk


def segment(random: Random, *, sealed: bool, unwritten: int) -> bytearray:
    data = bytearray()
    starts: list[int] = []
    for number in range(random.randrange(1, 12)):
        payloads = [random.randbytes(random.randrange(200)) for _ in range(random.randrange(1, 6))]
        header = b"" if number else fmt.encode_header(fmt.Header(1, 0, fmt.OPAQUE_CODEC))
        batch = fmt.encode_batch(
            payloads, offset=len(data), header=header, earlier=starts, size_limit=1 << 30
        )
        data += batch.data
        starts += batch.offsets
    if sealed:
        data += fmt.encode_batch([], offset=len(data), earlier=starts, size_limit=None).data
    return data + bytes(unwritten)


def damage(random: Random, data: bytearray) -> None:
    for _ in range(random.randrange(3)):
        at = random.randrange(len(data))
        data[at] = random.randrange(256)


@pytest.mark.parametrize("seed", range(300))
def test_windows_find_what_a_whole_look_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr(scanning, "_WINDOW_SIZE_MIN", random.choice([64, 256]))
    monkeypatch.setattr(scanning, "_WINDOW_SIZE_MAX", random.choice([64, 512]))
    data = segment(random, sealed=seed % 3 == 0, unwritten=random.choice([0, 8, 1000]))
    if seed % 2:
        damage(random, data)
    disk = SimDisk()
    disk.create("file", data)
    whole = fmt.scan(memoryview(data), verify=False)
    with_windows, bad = scan_file(disk.open("file"), len(data))
    for field in ("starts", "lengths", "begins", "commits", "counts"):
        assert np.array_equal(getattr(with_windows, field), getattr(whole, field)), field
    assert (with_windows.index_start, with_windows.stop) == (whole.index_start, whole.stop)
    assert (with_windows.flaw is None) == (whole.flaw is None)
    assert bad == fmt.bad_slices(memoryview(data), whole.begins, whole.commits)
    rest = bytes(data[whole.stop :])
    assert used_bytes(disk.open("file"), whole.stop, len(data)) == rest.rstrip(b"\0")


def test_the_active_segment_is_never_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner may be writing to it: what is judged on mapped memory changes meanwhile."""
    disk = SimDisk()
    with RaftWal(disk, codec=RAFT_CODEC) as log:
        log.store_logs([RaftEntry(index, 1, data=bytes(100)) for index in range(1, 50)])

    def refuse(file: OsFile) -> memoryview:
        raise AssertionError("a file that another process may write to is mapped")

    monkeypatch.setattr(OsFile, "map", refuse)
    with RaftWalReader(disk) as guest:
        assert guest.refresh() == 49
        assert sum(batch.num_rows for batch in guest.scan()) == 49
        assert guest.get_log(49).index == 49
        (tail,) = guest.segments()
        assert check_segment(disk, tail) is None
        assert sum(batch.num_rows for batch in scan_segment(disk, tail, 1, 50)) == 49
    assert not plan_repair(disk).damage


def test_a_writer_during_a_look_is_not_reported_as_damage() -> None:
    """Between any two reads of one look, the owner appends, rotates, and truncates."""
    disk = SimDisk()
    log = RaftWal(disk, codec=RAFT_CODEC, segment_size_max=1024)
    posix, random = disk.posix, Random(7)
    pread, steps = posix.pread, 0

    def step() -> None:
        first = log.last_index + 1
        log.store_logs([RaftEntry(first + i, 1, data=random.randbytes(90)) for i in range(3)])
        if random.random() < 0.2:
            log.truncate_tail(max(log.first_index, log.last_index - 4))
        if random.random() < 0.2:
            log.truncate_head(max(log.first_index, log.last_index - 20))

    def beside(fd: int, size: int, offset: int) -> bytes:
        nonlocal steps
        data = pread(fd, size, offset)
        if random.random() < 0.2:
            posix.pread = pread  # type: ignore[method-assign]
            step()
            steps += 1
            posix.pread = beside  # type: ignore[method-assign]
        return data

    for _ in range(60):
        posix.pread = beside  # type: ignore[method-assign]
        with RaftWalReader(disk) as guest:
            assert not guest.damage
            for _ in range(3):
                guest.refresh()
                assert not guest.damage
        posix.pread = pread  # type: ignore[method-assign]
    assert steps > 100
