from holdfast.logs.cuts import keep_aside
from holdfast.testing import SimDisk


def test_the_same_bytes_are_kept_once_and_others_beside_them() -> None:
    disk = SimDisk()
    assert keep_aside(disk, "a.wal", 64, b"one") == "a.wal.64.cut"
    assert keep_aside(disk, "a.wal", 64, b"one") == "a.wal.64.cut"
    assert keep_aside(disk, "a.wal", 64, b"two") == "a.wal.64-2.cut"
    assert disk.files() == {"a.wal.64.cut": b"one", "a.wal.64-2.cut": b"two"}
