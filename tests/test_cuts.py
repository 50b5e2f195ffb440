from holdfast.cuts import keep_aside, set_aside
from holdfast.testing import SimDisk


def test_the_same_bytes_are_kept_once_and_others_beside_them() -> None:
    disk = SimDisk()
    assert keep_aside(disk, "a.wal", 64, b"one") == "a.wal.64.cut"
    assert keep_aside(disk, "a.wal", 64, b"one") == "a.wal.64.cut"
    assert keep_aside(disk, "a.wal", 64, b"two") == "a.wal.64-2.cut"
    assert disk.files() == {"a.wal.64.cut": b"one", "a.wal.64-2.cut": b"two"}


def test_a_file_that_is_set_aside_replaces_no_other() -> None:
    disk = SimDisk()
    for data in (b"one", b"two", b"three"):
        disk.create("deep/a.wal", data)
        set_aside(disk, "deep/a.wal")
    assert disk.files() == {"a.wal.cut": b"one", "a.wal-2.cut": b"two", "a.wal-3.cut": b"three"}
