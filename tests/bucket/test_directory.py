import contextlib
import errno
import os
import stat
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from tests.bucket.sim_directory import SimBucketPosix

from holdfast.bucket import Bucket, DirectoryBucket
from holdfast.bucket.directory import BucketPosix
from holdfast.disk import Buffer
from holdfast.errors import DiskFullError, HoldfastError, PoisonedError, UnsupportedError
from holdfast.testing.bucket_contract import BucketContract
from holdfast.testing.sim_disk import Fault, PowerLost


class TestDirectoryBucket(BucketContract):
    slots = 40

    @pytest.fixture
    def bucket(self, tmp_path: Path) -> Bucket:
        return DirectoryBucket(tmp_path / "bucket")


class Ledger:
    """What a bucket owes: name to bytes, or None for gone; `doubtful` are what was in flight."""

    def __init__(self) -> None:
        self.owed: dict[str, bytes] = {}
        self.doubtful: dict[str, set[bytes | None]] = {}

    def change(self, step: Callable[[], None], outcome: dict[str, bytes | None]) -> None:
        self.doubtful = {name: {self.owed.get(name), after} for name, after in outcome.items()}
        step()
        for name, after in outcome.items():
            self.owed.pop(name, None)
            if after is not None:
                self.owed[name] = after
        self.doubtful = {}

    def hold(self, bucket: Bucket) -> dict[str, bytes]:
        """Compare, and return what was shown, which is owed from now on."""
        listed = {info.name: info.size for info in bucket.list("")}
        shown = {name: bucket.get(name) for name in listed}
        assert listed == {name: len(data) for name, data in shown.items()}
        for name in self.owed.keys() | shown.keys() | self.doubtful.keys():
            allowed = self.doubtful.get(name, {self.owed.get(name)})
            assert shown.get(name) in allowed, f"{name}: {shown.get(name)!r}, not {allowed}"
        return shown


def live(bucket: Bucket, ledger: Ledger) -> None:
    """All that can be done to a bucket, with directories that must be made on the way."""

    def put(name: str, data: bytes) -> None:
        ledger.change(lambda: bucket.put_if_absent(name, data), {name: data})

    put("manifest/1", b"one")
    put("wal/1", bytes(range(200)))
    put("wal/deep/1", b"")
    with pytest.raises(FileExistsError):
        bucket.put_if_absent("wal/1", b"other")
    put("wal/2", b"two" * 50)
    both: dict[str, bytes | None] = {"wal/1": None, "manifest/1": None}
    ledger.change(lambda: bucket.delete("wal/1", "manifest/1"), both)
    ledger.change(lambda: bucket.copy("wal/2", "wal/deep/1"), {"wal/deep/1": b"two" * 50})
    put("wal/3", b"three")


def crash_everywhere(posix_class: type[SimBucketPosix], images: int) -> tuple[int, SimBucketPosix]:
    """Cut the power at every step; what comes back is held to the ledger, and so is its heir."""
    at = 0
    while True:
        posix, ledger = posix_class(), Ledger()
        posix.dies_at = at
        try:
            live(posix.bucket(), ledger)
        except PowerLost:
            pass
        else:
            return at, posix
        random = Random(f"directory/{at}")
        for _ in range(images):
            image = posix.after_power_cut(random)
            shown = ledger.hold(image.bucket())
            # What recovery has shown is durable, so the next power cut takes none of it.
            heir = image.after_power_cut(random).bucket()
            assert {name: heir.get(name) for name in shown} == shown
        posix.kill()
        shown = ledger.hold(posix.bucket())  # in the cache of a machine that lives on
        heir = posix.after_power_cut(random).bucket()
        assert {name: heir.get(name) for name in shown} == shown
        at += 1


def test_no_power_cut_loses_halves_or_invents_an_object() -> None:
    steps, posix = crash_everywhere(SimBucketPosix, images=60)
    assert steps > 40
    assert posix.operations == steps


class NoDirectorySync(SimBucketPosix):
    def sync_directory(self, directory: str | int) -> None:
        self._operate()


class NoFileSync(SimBucketPosix):
    def pwrite(self, fd: int, data: Buffer, offset: int, *, sync: bool) -> int:
        return super().pwrite(fd, data, offset, sync=False)


class NoParentSync(SimBucketPosix):
    def sync_directory(self, directory: str | int) -> None:
        if str(directory).endswith(("/wal", "/manifest", "/deep")):
            super().sync_directory(directory)


class LinkFirst(SimBucketPosix):
    """The object gets its name before its bytes."""

    def open(self, path: str, flags: int, at: int | None = None) -> int:
        fd = super().open(path, flags, at)
        if "~" in path:
            SimBucketPosix.link(self, path, path.partition("~")[0])
        return fd

    def link(self, path: str, new: str, at: int | None = None, new_at: int | None = None) -> None:
        self._operate()


@pytest.mark.parametrize("mutant", [NoDirectorySync, NoFileSync, NoParentSync, LinkFirst])
def test_planted_bugs_are_caught(mutant: type[SimBucketPosix]) -> None:
    with pytest.raises((AssertionError, FileNotFoundError, FileExistsError)):
        crash_everywhere(mutant, images=60)


def watched(posix: SimBucketPosix) -> int:
    """Another process looks in at every step, and power goes right after; how often it saw."""
    random, looks = Random(1), 0
    watcher = posix.bucket()

    def look() -> None:
        nonlocal looks
        posix.bystander = None
        shown = {info.name: watcher.get(info.name) for info in watcher.list("")}
        heir = posix.after_power_cut(random).bucket()
        assert {name: heir.get(name) for name in shown} == shown
        looks += bool(shown)
        posix.bystander = look

    posix.bystander = look
    live(posix.bucket(), Ledger())
    return looks


def test_what_another_process_has_seen_survives() -> None:
    assert watched(SimBucketPosix()) > 20


def test_a_bucket_that_shows_what_is_not_synced_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DirectoryBucket, "_show", lambda *_: None)
    with pytest.raises(FileNotFoundError):
        watched(SimBucketPosix())


def test_a_directory_that_was_removed_meanwhile_is_made_durably_again() -> None:
    posix = SimBucketPosix()
    bucket = posix.bucket()
    bucket.put_if_absent("wal/1", b"1")
    posix.unlink("/sim/bucket/wal/1")
    posix.rmdir("/sim/bucket/wal")
    posix.sync_directory("/sim/bucket")
    bucket.put_if_absent("wal/2", b"2")
    for seed in range(12):
        assert posix.after_power_cut(Random(seed)).bucket().get("wal/2") == b"2"


def test_a_directory_that_a_killed_process_made_is_made_durable() -> None:
    for step in range(8):
        posix = SimBucketPosix()
        posix.dies_at = step
        with contextlib.suppress(PowerLost):
            posix.bucket().put_if_absent("wal/deep/1", b"1")
        posix.kill()
        posix.bucket().put_if_absent("wal/deep/2", b"2")
        for seed in range(12):
            assert posix.after_power_cut(Random(seed)).bucket().get("wal/deep/2") == b"2"


def test_a_failed_create_can_rely_on_the_existing_object() -> None:
    posix = SimBucketPosix()
    winner, loser = posix.bucket(), posix.bucket()
    winner.put_if_absent("wal/0", b"0")
    at = 0
    for at in range(20):  # the winner dies at each step of its create
        posix.operations, posix.dies_at = 0, at
        try:
            winner.put_if_absent(f"wal/{at + 1}", b"winner")
            break
        except PowerLost:
            posix.dies_at = None
        try:
            loser.put_if_absent(f"wal/{at + 1}", b"loser")
            wanted = b"loser"
        except FileExistsError:
            wanted = b"winner"
        heir = posix.after_power_cut(Random(at)).bucket()
        assert heir.get(f"wal/{at + 1}") == wanted
    assert at > 4


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("kind", ["eio", "enospc", "short write", "sync eio"])
def test_acknowledged_rows_survive_every_failing_call(kind: str, always: bool) -> None:
    at, raised = 0, 0
    fired: Counter[str] = Counter()
    while True:
        posix, ledger = SimBucketPosix(fired=fired), Ledger()
        posix.fault = Fault(kind, at, always)
        try:
            live(posix.bucket(), ledger)
        except (OSError, HoldfastError):
            raised += 1
        if posix.calls <= at:
            break
        posix.fault = None
        image = posix.after_power_cut(Random(at))
        ledger.hold(image.bucket())
        posix.kill()
        ledger.hold(posix.bucket())
        at += 1
    assert at > 50
    assert fired[kind] > 3
    assert raised > 0 or kind == "short write"


def test_after_a_failed_sync_of_a_directory_the_bucket_refuses_everything() -> None:
    posix = SimBucketPosix()
    bucket = posix.bucket()
    bucket.put_if_absent("wal/1", b"1")
    calls = posix.calls
    bucket.put_if_absent("wal/2", b"2")
    posix.fault = Fault("sync eio", posix.calls + (posix.calls - calls) - 1)
    with pytest.raises(OSError, match="Input/output"):
        bucket.put_if_absent("wal/3", b"3")
    for call in (lambda: bucket.get("wal/1"), lambda: bucket.list(""), lambda: bucket.delete("x")):
        with pytest.raises(PoisonedError, match="reopen"):
            call()
    assert posix.bucket().get("wal/2") == b"2"


def test_a_create_is_exactly_one_durable_create(tmp_path: Path) -> None:
    calls: list[str] = []

    class Counting(BucketPosix):
        def __getattribute__(self, name: str) -> object:
            calls.append(name)
            return super().__getattribute__(name)

    bucket = DirectoryBucket(tmp_path, posix=Counting())
    bucket.put_if_absent("wal/1", b"1")
    calls.clear()
    bucket.put_if_absent("wal/2", b"2")
    assert calls == ["exists", "open", "pwrite", "close", "link", "unlink", "sync_directory"]
    calls.clear()
    bucket.put_if_absent("wal/empty", b"")  # a write of no bytes syncs nothing
    assert calls[:5] == ["exists", "open", "pwrite", "fdatasync", "close"]
    calls.clear()
    bucket.get("wal/2")
    assert set(calls) <= {"open", "status", "pread", "close", "sync_directory"}


def test_a_full_disk_leaves_no_litter() -> None:
    posix = SimBucketPosix()
    bucket = posix.bucket()
    bucket.put_if_absent("wal/1", b"1")
    began = len(posix.trace)
    bucket.put_if_absent("wal/0", b"0")
    for call in [at for at, kind in enumerate(posix.trace[began:]) if kind in ("create", "write")]:
        posix.fault = Fault("enospc", posix.calls + call, always=True)
        with pytest.raises(DiskFullError, match="free some space"):
            bucket.put_if_absent("wal/2", b"2")
        posix.fault = None
        assert posix.names("/sim/bucket/wal") == (["1", "0"], [])
    assert posix.fired["enospc"] == 3, "the file, its bytes, its name"


def test_private_whatever_the_umask_and_no_litter(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        bucket = DirectoryBucket(f"file://{tmp_path}/a/b")
        bucket.put_if_absent("c/x", b"x")
        bucket.copy("c/x", "d/y")
    finally:
        os.umask(old)
    found = sorted((tmp_path / "a").rglob("*"))
    assert [path.name for path in found] == ["b", "c", "x", "d", "y"]
    for path in found:
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_a_file_system_without_links_is_refused(tmp_path: Path) -> None:
    class Exfat(BucketPosix):
        def link(self, path: str, new: str, *directories: int | None) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

    with pytest.raises(UnsupportedError, match="no hard links"):
        DirectoryBucket(tmp_path, posix=Exfat()).put_if_absent("x", b"x")
    assert list(tmp_path.iterdir()) == []


def test_sweeps_up_what_dead_writers_left(tmp_path: Path) -> None:
    bucket = DirectoryBucket(tmp_path)
    bucket.put_if_absent("wal/1", b"1")
    (tmp_path / "wal" / "2~0123").write_bytes(b"half")
    (tmp_path / "wal" / "3~4567").write_bytes(b"half")
    os.utime(tmp_path / "wal" / "2~0123", (1000, 1000))
    assert [info.name for info in bucket.list("")] == ["wal/1"]
    assert bucket.sweep(before_ms=2_000_000) == 1
    assert sorted(path.name for path in (tmp_path / "wal").iterdir()) == ["1", "3~4567"]


def test_links_do_not_lead_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"s")
    bucket = DirectoryBucket(tmp_path / "b")
    bucket.put_if_absent("x/1", b"1")
    (tmp_path / "b" / "x" / "2").symlink_to(tmp_path / "secret")
    assert [info.name for info in bucket.list("")] == ["x/1"]
    with pytest.raises(OSError, match="symbolic"):
        bucket.get("x/2")
    with pytest.raises(FileExistsError):
        bucket.put_if_absent("x/2", b"2")


RACER = """
import sys
from holdfast.bucket import DirectoryBucket
bucket = DirectoryBucket(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
won = []
for slot in range(500):
    try:
        bucket.put_if_absent(f"race/{slot:020}.sst", f"{sys.argv[2]} {slot}".encode() * 50)
        won.append(slot)
    except FileExistsError:
        pass
print(won)
"""


def test_two_processes_race_for_500_slots(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    answers: dict[str, list[int]] = {}

    def finish(name: str, racer: "subprocess.Popen[str]") -> None:
        answers[name] = eval(racer.communicate("\n")[0])

    threads = [
        threading.Thread(target=finish, args=pair) for pair in zip("ab", racers, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers["a"] + answers["b"]) == list(range(500))
    assert answers["a"]
    assert answers["b"]
    bucket = DirectoryBucket(tmp_path)
    assert len(bucket.list("")) == 500
    for name, won in answers.items():
        for slot in won:
            assert bucket.get(f"race/{slot:020}.sst") == f"{name} {slot}".encode() * 50
