import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

import holdfast
from holdfast.disk import OsDisk
from holdfast.errors import HoldfastError, LockedError
from holdfast.logs.raft_wal import OPAQUE_CODEC, RaftWal
from holdfast.logs.replicas import Replicas
from holdfast.logs.shanghai import Retention, ShanghaiLog
from holdfast.logs.status import LogStatus, status_of
from holdfast.logs.verify import OnProgress, Pause, VerifyReport, verify_log
from holdfast.metrics import prometheus_text
from holdfast.runtime import Runtime, sleep_ms
from holdfast.verdicts import EXIT_CODES, Owner, find_owner, worst


def inspect(path: str, pause: Pause = sleep_ms) -> LogStatus:
    with holdfast.read_log(path) as log:
        return status_of(log, OsDisk(path), pause=pause)


def verify(
    path: str, on_progress: OnProgress = lambda done, total: None, pause: Pause = sleep_ms
) -> VerifyReport:
    return verify_log(OsDisk(path), on_progress, pause=pause)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Three segments: 1..2 and 3..4 sealed, 5..6 active."""
    with holdfast.create_log(tmp_path / "log", format="shanghai", segment_size_max=70) as log:
        for i in (1, 3, 5):
            log.append([b"%d" % i, b"%d" % (i + 1)])
    return str(tmp_path / "log")


def ignore(ms: float) -> None:
    pass


def cut_short(path: str, name: str, size: int) -> Callable[[float], None]:
    """Take bytes from the end, as if they were not written yet; the next pause writes them."""
    file = Path(path, name)
    data = file.read_bytes()
    file.write_bytes(data[:-size])

    def goes_on(ms: float) -> None:
        file.write_bytes(data)

    return goes_on


def test_a_sound_log_is_clean_in_every_part(path: str) -> None:
    steps: list[tuple[int, int]] = []
    report = verify(path, lambda done, total: steps.append((done, total)))
    assert report.verdict == "clean"
    assert [segment.verdict for segment in report.segments] == ["clean"] * 3
    assert steps == [(0, 246), (82, 246), (164, 246), (246, 246)]
    assert (report.entries, report.size, report.format) == (6, 246, "shanghai")


def test_reports_can_be_sent_as_json(path: str) -> None:
    Replicas(OsDisk(path)).register("r", 2)
    Path(path, "segment_00001.wal").write_bytes(b"")
    for report in (inspect(path), verify(path)):
        document = json.loads(json.dumps(asdict(report)))
        assert document["verdict"] == "corrupt"
        assert document["path"] == path


def without_mark(path: str) -> None:
    for name in ("metadata.json", "holdfast.mark"):
        Path(path, name).unlink()


def test_a_write_in_progress_is_not_called_torn(path: str) -> None:
    without_mark(path)  # what it has seen complete can only be damage
    goes_on = cut_short(path, "segment_00003.wal", 1)
    assert verify(path, pause=goes_on).verdict == "clean"
    goes_on = cut_short(path, "segment_00003.wal", 1)
    assert inspect(path, pause=goes_on).torn is None


def test_a_write_that_stands_still_is_torn(path: str) -> None:
    without_mark(path)
    cut_short(path, "segment_00003.wal", 1)
    report = verify(path, pause=ignore)
    assert report.verdict == "torn tail"
    assert report.segments[-1].damage[0].torn
    assert inspect(path, pause=ignore).verdict == "torn tail"


def test_a_missing_segment_and_a_lost_header_have_their_rows(path: str) -> None:
    Path(path, "segment_00002.wal").unlink()
    report = verify(path, pause=ignore)
    assert [(s.name[8:13], s.verdict, s.size) for s in report.segments] == [
        ("00001", "clean", 82),
        ("00003", "clean", 82),
        ("00002", "corrupt", 0),
    ]
    Path(path, "segment_00001.wal").write_bytes(b"?" * 100)
    report = verify(path, pause=ignore)
    assert ("segment_00001.wal", "corrupt", 100) in [
        (s.name, s.verdict, s.size) for s in report.segments
    ]


def test_a_segment_that_is_compacted_meanwhile_is_left_out(path: str) -> None:
    with holdfast.open_log(path) as log:
        assert isinstance(log, ShanghaiLog)

        def trim(done: int, total: int) -> None:
            log.trim(Retention(before=5))

        report = verify(path, trim)
    assert [segment.name for segment in report.segments] == ["segment_00003.wal"]
    assert report.verdict == "clean"


def test_what_recovery_cut_off_is_listed(path: str) -> None:
    with Path(path, "segment_00003.wal").open("ab") as file:
        file.write(b"torn")
    holdfast.open_log(path).close()
    (cut,) = inspect(path).cuts
    assert (cut.name, cut.size) == ("segment_00003.wal.82.cut", 4)


def test_another_programs_lock_names_the_owner(tmp_path: Path) -> None:
    """A server in Go knows nothing of LOCK: it holds wal-meta.db, as bbolt does."""
    disk = OsDisk(tmp_path / "raft")
    RaftWal(disk).close()
    program = "import fcntl, sys; file = open(sys.argv[1]); fcntl.flock(file, fcntl.LOCK_EX); "
    program += "print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(tmp_path / "raft/wal-meta.db")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as server:
        assert server.stdout is not None
        server.stdout.readline()
        assert inspect(disk.path).owner == Owner(server.pid, alive=True)
        with pytest.raises(LockedError, match=f"owned by process {server.pid}"):
            RaftWal(disk)
        server.communicate()
    assert inspect(disk.path).owner == Owner(os.getpid(), alive=False)


def test_the_owner_holds_the_lock_and_need_not_have_signed_it(path: str) -> None:
    disk = OsDisk(path)
    with holdfast.open_log(path):
        owner = find_owner(disk)
        assert owner is not None
        assert (owner.pid, owner.alive) == (os.getpid(), True)
    owner = find_owner(disk)
    assert owner is not None
    assert not owner.alive  # we signed it and we live, but we let it go
    Path(path, "LOCK").write_text(f"{2**22 + 1:<20}")  # above any process id there can be
    owner = find_owner(disk)
    assert owner is not None
    assert not owner.alive
    Path(path, "LOCK").write_text("?")
    assert find_owner(disk) is None
    Path(path, "LOCK").unlink()
    assert find_owner(disk) is None


def test_verdicts_are_weighed_by_gravity_and_not_by_exit_code() -> None:
    assert worst([]) == "clean"
    assert worst(["clean", "torn tail"]) == "torn tail"
    assert worst(["corrupt", "torn tail"]) == "corrupt"
    assert worst(["unreadable", "torn tail"]) == "unreadable"
    assert worst(["unreadable", "corrupt"]) == "corrupt"
    assert EXIT_CODES == {"clean": 0, "torn tail": 3, "unreadable": 5, "corrupt": 2}


def test_without_a_log_there_is_no_status(tmp_path: Path) -> None:
    for report in (inspect, verify, holdfast.read_log):
        with pytest.raises(HoldfastError, match="does not exist"):
            report(str(tmp_path / "none"))
        with pytest.raises(HoldfastError, match="holds no log"):
            report(str(tmp_path))


def test_metrics_have_the_originals_names(tmp_path: Path) -> None:
    now_ms = [1_700_000_000_000]
    disk = OsDisk(tmp_path / "raft")
    with RaftWal(
        disk,
        codec=OPAQUE_CODEC,
        segment_size_max=400,
        runtime=Runtime(now_ns=lambda: now_ms[0] * 10**6),
    ) as wal:
        wal.append([b"x" * 10] * 3)
        wal.append([b"y" * 90] * 5)  # seals
        now_ms[0] += 2500
        wal.append([b"z" * 400])  # seals, 2.5 s later
        wal.append([b"last"] * 4)
        wal.read(1)
        with pytest.raises(IndexError):
            wal.read(99)
        wal.truncate_head(3)
        wal.truncate_tail(11)
        wal.set(b"k", b"v")
        wal.set_uint64(b"n", 7)
        assert (wal.get(b"k"), wal.get_uint64(b"n")) == (b"v", 7)
        found = {metric.name: metric.value for metric in wal.metrics()}
        assert found.pop("commit_seconds") > 0
        gauges = {name: found.pop(name) for name in ("first_index", "last_index", "segments")}
        assert gauges == {"first_index": 3, "last_index": 11, "segments": 4}
        text = prometheus_text(wal.metrics(), "app_raft_wal", server='a "b"\n')
    assert found == {
        "log_entry_bytes_written": 30 + 450 + 400 + 16,
        "log_entries_written": 13,
        "log_appends": 4,
        "log_entry_bytes_read": 10,
        "log_entries_read": 2,
        "segment_rotations": 2,
        "head_truncations": 2,
        "tail_truncations": 2,
        "stable_gets": 2,
        "stable_sets": 2,
        "last_segment_age_seconds": 0.0,  # the one that was sealed to be cut
    }
    assert "# TYPE app_raft_wal_log_appends counter\n" in text
    assert 'app_raft_wal_log_appends{server="a \\"b\\"\\n"} 4\n' in text
    gauges = {metric.name: metric.value for metric in inspect(disk.path).metrics()}
    assert gauges["last_segment_age_seconds"] == 0.0
    assert (gauges["first_index"], gauges["last_index"], gauges["damaged"]) == (3, 11, 0)
