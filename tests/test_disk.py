import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from holdfast.disk import OsDisk
from holdfast.errors import DiskFullError, LockedError, PoisonedError
from holdfast.posix import Posix
from holdfast.testing.sim_disk import Fault, PowerLost, SimDisk


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        disk = OsDisk(tmp_path / "a" / "b")
        disk.create("c/file", b"x")
        disk.lock().release()
    finally:
        os.umask(old)
    found = list((tmp_path / "a").rglob("*"))
    assert {"b", "c", "file", "LOCK"} <= {path.name for path in found}
    for path in found:
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_create_is_whole_and_refuses_to_overwrite(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    disk.create("x", b"one")
    with pytest.raises(FileExistsError):
        disk.create("x", b"two")
    assert (tmp_path / "x").read_bytes() == b"one"
    disk.create("x", b"three", replace=True)
    assert (tmp_path / "x").read_bytes() == b"three"
    assert disk.list() == {"x": 5}


def test_create_syncs_every_directory_it_makes(tmp_path: Path) -> None:
    synced: list[str] = []

    class Watching(Posix):
        def sync_directory(self, directory: str | int) -> None:
            synced.append(str(Path(f"/proc/self/fd/{directory}").readlink()))
            super().sync_directory(directory)

    disk = OsDisk(tmp_path / "a" / "b", posix=Watching())
    disk.create("c/file", b"")
    assert synced == [str(tmp_path / part) for part in ("", "a", "a/b", "a/b/c")]


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../x", "a/../../x", "a\0b"])
def test_names_stay_inside(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a name inside"):
        OsDisk(tmp_path).open(name)


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"s")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic"):
        OsDisk(tmp_path / "d").open("link")
    assert list(OsDisk(tmp_path / "d").list()) == ["link"], "listed, so that a store reports it"


def test_a_file_url_is_a_path_and_other_urls_are_refused(tmp_path: Path) -> None:
    OsDisk(f"file://{tmp_path}/with%20space").create("x", b"1")
    assert (tmp_path / "with space" / "x").exists()
    with pytest.raises(ValueError, match="local directory"):
        OsDisk("s3://bucket/log")


def test_the_lock_names_its_holder_and_dies_with_it(tmp_path: Path) -> None:
    code = (
        "import sys; from holdfast.disk import OsDisk; lock = OsDisk(sys.argv[1]).lock();"
        "print('held', flush=True); sys.stdin.read()"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockedError, match=f"owned by process {holder.pid};"):
            OsDisk(tmp_path).lock()
        holder.kill()
    OsDisk(tmp_path).lock().release()


def test_an_owner_removes_temporary_files(tmp_path: Path) -> None:
    (tmp_path / "x.half").write_bytes(b"half")
    disk = OsDisk(tmp_path)
    assert disk.list() == {}
    disk.lock().release()
    assert not (tmp_path / "x.half").exists()


def test_positional_reads_writes_and_maps(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    disk.create("x", b"")
    file = disk.open("x", writable=True)
    assert bytes(file.map()) == b""
    file.write_at(4, bytearray(b"data"), sync=True)
    file.write_at(0, memoryview(b"head"))
    file.sync()
    assert file.read_at(2, 100) == b"addata"
    assert file.read_at(8, 1) == b""
    view = file.map()
    file.close()
    assert bytes(view) == b"headdata"


def test_preallocation_reserves_blocks_that_read_as_zeros(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    disk.create("x", b"ab")
    file = disk.open("x", writable=True)
    file.resize(1 << 20)
    file.sync()
    assert file.read_at(0, 4) == b"ab\0\0"
    assert (tmp_path / "x").stat().st_blocks * 512 >= 1 << 20
    file.resize(1)
    assert disk.list() == {"x": 1}


def test_a_sync_with_forget_from_reads_from_the_disk(tmp_path: Path) -> None:
    disk: OsDisk
    for disk in (OsDisk(tmp_path), SimDisk()):
        disk.create("x", b"old")
        file = disk.open("x", writable=True)
        file.write_at(0, b"new")
        file.sync(forget_from=0)
        assert file.read_at(0, 9) == b"new"
    assert isinstance(disk, SimDisk)
    disk.posix.fault = Fault("sync eio", disk.posix.calls + 1)
    with pytest.raises(OSError, match="Input/output"):
        file.write_at(0, b"no!", sync=True)
    again = disk.open("x", writable=True)
    assert again.read_at(0, 9) == b"no!"  # from the cache
    again.sync(forget_from=0)
    assert again.read_at(0, 9) == b"new"


def test_another_programs_lock_leaves_its_file_alone(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    with pytest.raises(FileNotFoundError):
        disk.lock("theirs")
    disk.create("theirs", b"bytes")
    (tmp_path / "x.half").write_bytes(b"")
    lock = disk.lock("theirs")
    with pytest.raises(LockedError, match=rf"owned by process ({os.getpid()}|unknown);"):
        disk.lock("theirs")
    lock.release()
    disk.lock("theirs").release()
    assert {path.name for path in tmp_path.iterdir()} == {"theirs", "x.half"}
    assert (tmp_path / "theirs").read_bytes() == b"bytes"


def test_a_directory_that_was_renamed_is_made_anew(tmp_path: Path) -> None:
    for disk in (OsDisk(tmp_path), SimDisk()):
        disk.create("log/00/x", b"old")
        disk.make("log/01/y").close()
        disk.rename("log", "kept")
        disk.create("log/00/x", b"new")
        disk.make("log/01/y").close()
        assert (disk.list("kept/00"), disk.list("log/01")) == ({"x": 3}, {"y": 0})
        file = disk.open("log/00/x")
        assert file.read_at(0, 3) == b"new"
        file.close()


def test_rename_and_remove(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    disk.create("a", b"1")
    disk.create("b", b"2")
    with pytest.raises(FileExistsError):
        disk.rename("a", "b")
    disk.rename("a", "c")
    disk.remove("b")
    assert disk.list() == {"c": 1}


def test_a_file_gets_a_second_name_and_another_its_first(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    disk.create("now", b"old")
    disk.create("next", b"new!")
    disk.link("now", "before")
    with pytest.raises(FileExistsError):
        disk.link("next", "before")
    disk.rename("next", "now", replace=True)
    assert disk.list() == {"before": 3, "now": 4}


def test_directories_differ_from_files_and_links(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    disk.create("b/x", b"")
    disk.create("a/y/z", b"")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert list(disk.directories()) == ["a", "b"]
    assert list(disk.directories("a")) == ["y"]
    with pytest.raises(FileNotFoundError):
        disk.directories("c")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda disk: disk.create("new", b"synced"), {"x": b"1", "d/y": b"2", "new": b"synced"}),
        (lambda disk: disk.create("x", b"3", replace=True), {"x": b"3", "d/y": b"2"}),
        (lambda disk: disk.create("e/f/new", b""), {"x": b"1", "d/y": b"2", "e/f/new": b""}),
        (lambda disk: disk.rename("x", "new"), {"new": b"1", "d/y": b"2"}),
        (lambda disk: disk.rename("x", "d/new"), {"d/new": b"1", "d/y": b"2"}),
        (lambda disk: disk.rename("d/y", "new"), {"x": b"1", "new": b"2"}),
        (lambda disk: disk.link("x", "d/new"), {"x": b"1", "d/y": b"2", "d/new": b"1"}),
        (lambda disk: disk.remove("x", "d/y"), {}),
    ],
    ids=["create", "replace", "create deep", "rename", "down", "up", "link", "remove"],
)
def test_a_change_of_names_survives_every_power_cut(
    change: Callable[[SimDisk], None], expected: dict[str, bytes]
) -> None:
    disk = SimDisk()
    disk.create("x", b"1")
    disk.create("d/y", b"2")
    change(disk)
    for seed in range(40):
        image = disk.after_power_cut(Random(seed))
        found = dict(image.files())
        assert found == expected


def test_an_owner_makes_names_durable_that_a_killed_owner_left() -> None:
    disk = SimDisk()
    disk.create("x", b"")
    disk.posix.dies_at = disk.posix.operations  # in the middle of the removal
    with pytest.raises(PowerLost):
        disk.remove("x")
    disk = disk.after_kill()
    disk.lock().release()
    assert not any("x" in disk.after_power_cut(Random(seed)).files() for seed in range(20))


def test_a_lock_is_released_if_the_names_cannot_be_synced() -> None:
    disk = SimDisk()
    disk.lock().release()
    for at in range(60):
        disk.posix.fault = Fault("sync eio", disk.posix.calls + at)
        try:
            lock = disk.lock()
        except OSError:
            disk.posix.fault = None
            lock = disk.lock()  # LockedError if the failed attempt had kept it
        lock.release()
    assert disk.posix.fired["sync eio"] > 0


def test_names_that_a_killed_process_left_can_be_made_durable() -> None:
    for is_synced in (False, True):
        disk = SimDisk()
        disk.create("d/x", b"")
        disk.posix.dies_at = disk.posix.operations  # in the middle of the removal
        with pytest.raises(PowerLost):
            disk.remove("d/x")
        disk = disk.after_kill()
        if is_synced:
            disk.sync_names("d")
        images = {bool(disk.after_power_cut(Random(seed)).list("d")) for seed in range(20)}
        assert images == ({False} if is_synced else {False, True})


@pytest.mark.parametrize("kind", ["eio", "enospc", "sync eio"])
def test_after_a_failed_write_or_sync_everything_is_refused(kind: str) -> None:
    disk = SimDisk()
    disk.create("x", b"before")
    file = disk.open("x", writable=True)
    disk.posix.fault = Fault(kind, disk.posix.calls, always=True)
    with pytest.raises(OSError) as caught:
        file.write_at(6, b"after", sync=True)
    assert isinstance(caught.value, DiskFullError) == (kind == "enospc")
    disk.posix.fault = None
    for refused in (
        lambda: file.write_at(6, b"after"),
        lambda: file.read_at(0, 1),
        file.map,
        file.sync,
        lambda: file.resize(0),
    ):
        with pytest.raises(PoisonedError, match="reopen"):
            refused()
    assert disk.open("x").read_at(0, 6) == b"before"


def test_a_short_write_is_completed() -> None:
    disk = SimDisk()
    disk.create("x", b"")
    file = disk.open("x", writable=True)
    disk.posix.fault = Fault("short write", disk.posix.calls)
    file.write_at(0, b"0123456789", sync=True)
    assert disk.posix.fired["short write"] == 1
    assert file.read_at(0, 20) == b"0123456789"


def test_a_failed_create_leaves_nothing_behind() -> None:
    rehearsal, disk = SimDisk(), SimDisk()
    rehearsal.create("x", b"data")
    disk.posix.fault = Fault("enospc", rehearsal.posix.trace.index("write"))
    with pytest.raises(DiskFullError, match="free some space"):
        disk.create("x", b"data")
    disk.posix.fault = None
    assert disk.files() == {}


def test_a_really_full_disk_raises_disk_full(tmp_path: Path) -> None:
    """A limit on file size is the full disk that a test may have."""
    code = (
        "import signal, resource, sys; from holdfast.disk import OsDisk;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096));"
        "OsDisk(sys.argv[1]).create('x', bytes(10000))"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path)]
    result = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert "DiskFullError" in result.stderr
    assert "free some space" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_links_inside_the_directory_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").write_bytes(b"secret")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside")
    disk = OsDisk(tmp_path / "root")
    for attempt in (
        lambda: disk.open("link/x"),
        lambda: disk.make("link/y"),
        lambda: disk.make("link/deeper/y"),
        lambda: disk.create("link/y", b""),
        lambda: disk.list("link"),
        lambda: disk.directories("link"),
        lambda: disk.remove("link/x"),
    ):
        with pytest.raises(OSError, match="link"):
            attempt()
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["x"]


def test_what_was_made_is_durable_when_the_volume_is_synced() -> None:
    disk = SimDisk()
    volume = disk.volume()
    disk.make("a/b/c").write_at(0, b"here")
    lost = [disk.after_power_cut(Random(seed)) for seed in range(20)]
    assert not all(image.directories() for image in lost)
    volume.sync()
    for seed in range(20):
        image = disk.after_power_cut(Random(seed))
        assert image.directories("a") == ["b"]
        assert image.open("a/b/c").read_at(0, 9) == b"here"


def test_a_volume_whose_sync_failed_vouches_for_nothing() -> None:
    disk = SimDisk()
    volume = disk.volume()
    disk.make("x").write_at(0, b"here")
    disk.posix.fault = Fault("sync eio", disk.posix.calls)
    with pytest.raises(OSError, match="error"):
        volume.sync()
    disk.posix.fault = None
    with pytest.raises(PoisonedError):
        volume.sync()


def test_holes_differ_from_data(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    file = disk.make("sparse")
    file.extend(1 << 24)
    file.extend(1 << 20)
    assert (file.size(), file.extents(0, 1 << 24), file.last_extent(0, 1 << 24)) == (
        1 << 24,
        [],
        None,
    )
    for offset in (0, 1 << 20, 1 << 21, 3 << 21):
        file.write_at(offset, b"data")
    disk.volume().sync()
    found = file.extents(1, 1 << 24)
    assert [start for start, _ in found[1:]] == [1 << 20, 1 << 21, 3 << 21]
    last = file.last_extent(1, 1 << 24)
    assert last is not None
    assert last[0] <= 3 << 21 < last[1]
    assert file.last_extent(1, 1 << 21) == found[1]
    assert file.last_extent((3 << 21) + 8192, 1 << 24) is None
    assert (tmp_path / "sparse").stat().st_blocks * 512 < 1 << 17


@pytest.mark.parametrize("url", ["file://host/x", "file://user:secret@host/x"])
def test_a_file_url_cannot_name_a_host(url: str) -> None:
    with pytest.raises(ValueError, match="use file:///x") as raised:
        OsDisk(url)
    assert "secret" not in str(raised.value)
