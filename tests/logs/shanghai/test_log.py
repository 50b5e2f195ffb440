from pathlib import Path
from uuid import UUID

import pytest

from holdfast.disk import OsDisk
from holdfast.errors import PoisonedError
from holdfast.formats import shanghai as fmt
from holdfast.logs.shanghai import ShanghaiLog, ShanghaiReader
from holdfast.logs.shanghai.directory import segment_name, segment_sizes
from holdfast.posix import Posix
from holdfast.runtime import Runtime
from holdfast.testing import Fault, SimDisk
from holdfast.testing.log_contract import contents


def test_rotation_by_size(tmp_path: Path) -> None:
    with ShanghaiLog(OsDisk(tmp_path), segment_size_max=500) as log:
        for number in range(20):
            log.append([b"%0100d" % number])
        assert [(s.state, s.first_index, s.last_index) for s in log.segments()] == [
            ("sealed", 1, 5),
            ("sealed", 6, 10),
            ("sealed", 11, 15),
            ("active", 16, 20),
        ]


def test_rotation_by_age() -> None:
    now = [1000]
    clock = Runtime(now_ns=lambda: now[0] * 1_000_000)
    log = ShanghaiLog(SimDisk(), segment_age_max_ms=60_000, runtime=clock)
    now[0] += 60_000
    log.append([b"the segment is old, but empty"])
    now[0] += 1
    log.append([b"now it is not"])
    assert [s.last_index for s in log.segments()] == [1, 2]
    now[0] += 59_999
    log.append([b"young enough"])
    assert len(log.segments()) == 2


def test_rotation_by_hand_seals_the_last_lsn() -> None:
    disk = SimDisk()
    log = ShanghaiLog(disk)
    assert log.rotate() == "segment_00001.wal"  # nothing to seal
    log.append([b"a", b"b"])
    assert log.rotate() == "segment_00002.wal"
    headers = [fmt.decode_header(disk.files()[segment_name(n)]) for n in (1, 2)]
    assert [(h.first_lsn, h.last_lsn) for h in headers if isinstance(h, fmt.Header)] == [
        (1, 2),
        (3, 0),
    ]


def test_a_batch_stays_in_one_segment_and_groups_are_split_between_segments() -> None:
    log = ShanghaiLog(SimDisk(), segment_size_max=300)
    log.append([b"x" * 100] * 10)
    assert len(log.segments()) == 1
    log.append([b"y"])
    assert [s.last_index for s in log.segments()] == [10, 11]
    assert contents(log) == [b"x" * 100] * 10 + [b"y"]


def test_numbers_beyond_99999() -> None:
    disk = SimDisk()
    header = fmt.Header(UUID(int=1), 1, 1)
    disk.create(segment_name(99_999), fmt.encode_header(header))
    log = ShanghaiLog(disk)
    for number in range(3):
        log.append([b"%d" % number])
        log.rotate()
    log.append([b"3"])
    log.close()
    names = ["segment_99999.wal", *(f"segment_10000{n}.wal" for n in range(3))]
    assert list(segment_sizes(disk)) == names
    assert contents(ShanghaiLog(disk)) == [b"0", b"1", b"2", b"3"]


def test_a_log_may_begin_at_any_lsn() -> None:
    disk = SimDisk()
    log = ShanghaiLog(disk, first_index=1000)
    assert (log.first_index, log.last_index) == (1000, 999)
    assert log.append([b"x"]) == 1000
    log.close()
    assert ShanghaiLog(disk).first_index == 1000


@pytest.mark.parametrize("options", [{"first_index": 0}, {"segment_size_max": 64}])
def test_bad_options_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"(first_index|segment_size_max) is \d+; expected"):
        ShanghaiLog(SimDisk(), **options)  # type: ignore[arg-type]


def test_a_failed_rotation_poisons() -> None:
    disk = SimDisk()
    log = ShanghaiLog(disk)
    log.append([b"x"])
    disk.posix.fault = Fault("enospc", disk.posix.calls, always=True)
    with pytest.raises(OSError, match="free some space"):
        log.rotate()
    disk.posix.fault = None
    with pytest.raises(PoisonedError, match="reopen"):
        log.append([b"y"])
    log.close()
    assert contents(ShanghaiLog(disk)) == [b"x"]


def test_a_log_on_a_full_disk_still_closes(caplog: pytest.LogCaptureFixture) -> None:
    """All entries are durable, and the older mark holds."""
    disk = SimDisk()
    log = ShanghaiLog(disk)
    log.append([b"x"])
    disk.posix.fault = Fault("enospc", disk.posix.calls, always=True)
    log.close()
    assert "the mark stays behind the log" in caplog.text
    disk.posix.fault = None
    assert contents(ShanghaiLog(disk)) == [b"x"]


def test_a_guest_follows_rotation_and_compaction(tmp_path: Path) -> None:
    from holdfast.logs.shanghai import Retention

    log = ShanghaiLog(OsDisk(tmp_path))
    guest = ShanghaiReader(OsDisk(tmp_path))
    for number in range(5):
        log.append([b"%d" % number])
        log.rotate()
        assert guest.refresh() == number + 1
    held = guest.scan(1, 4)
    assert next(held).column("payload").to_pylist() == [b"0"]
    log.trim(Retention(before=4))
    assert guest.read(1) == b"0"  # its map is still there
    assert guest.refresh() == 5
    assert guest.first_index == 4
    assert contents(guest) == [b"3", b"4"]


def test_reading_a_sealed_segment_survives_many_segments(tmp_path: Path) -> None:
    log = ShanghaiLog(OsDisk(tmp_path), segment_size_max=100)
    for number in range(60):
        log.append([b"%0100d" % number])
    assert len(log.segments()) == 60
    for number in (0, 59, 3, 30, *range(60)):
        assert log.read(number + 1) == b"%0100d" % number
    assert len(log.reader._loaded) <= 16


def test_opening_reads_the_last_segment_and_only_headers_of_the_others(tmp_path: Path) -> None:
    class Counting(Posix):
        read = 0

        def pread(self, fd: int, size: int, offset: int) -> bytes:
            data = super().pread(fd, size, offset)
            self.read += len(data)
            return data

        def map(self, fd: int) -> memoryview:
            raise AssertionError("nothing is mapped on opening")

    with ShanghaiLog(OsDisk(tmp_path), segment_size_max=1 << 20) as log:
        for _ in range(8):
            log.append([b"x" * 1000] * 1100)
        log.append([b"the last"])
    posix = Counting()
    ShanghaiLog(OsDisk(tmp_path, posix=posix)).close()
    assert posix.read < 10_000
