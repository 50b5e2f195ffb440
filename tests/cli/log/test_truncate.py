import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from holdfast.disk import OsDisk
from holdfast.logs.file_log import FileLog
from holdfast.logs.raft_wal import OPAQUE_CODEC, RaftWal
from holdfast.logs.replicas import Replicas
from holdfast.runtime import Runtime


@pytest.fixture
def raft(tmp_path: Path) -> Path:
    """Entries 1..12 in segments of four."""
    now_ms = [1_700_000_000_000]
    disk = OsDisk(tmp_path / "raft")
    with RaftWal(
        disk,
        codec=OPAQUE_CODEC,
        segment_size_max=500,
        runtime=Runtime(now_ns=lambda: now_ms[0] * 10**6),
    ) as wal:
        for _ in range(3):
            wal.append([b"x" * 120] * 4)
            now_ms[0] += 86_400_000
    return tmp_path / "raft"


def test_either_end_goes(raft: Path, run: Run) -> None:
    plan = run("log", "truncate", raft, "--before", 3)
    assert plan.stdout.startswith("would remove 2 entries; the log would hold 3..12\n")
    assert json.loads(run("log", "inspect", raft, "--json").stdout)["first_index"] == 1
    for words, expected in (
        (["--before", 3], "removed 2 entries; the log holds 3..12\n"),
        (["--before", 3], "removed 0 entries; the log holds 3..12\n"),
        (["--after", 9], "removed 3 entries; the log holds 3..9\n"),
    ):
        assert run("log", "truncate", raft, *words, "--apply").stdout == expected
    document = json.loads(run("log", "truncate", raft, "--before", 10, "--apply", "--json").stdout)
    assert (document["removed"], document["first_index"], document["last_index"]) == (7, 10, 9)
    assert run("log", "verify", raft).exit_code == 0


def test_invalid_truncations_are_refused(raft: Path, path: Path, run: Run) -> None:
    for words, why in (
        ([], "pass either --before or --after"),
        (["--before", 2, "--after", 3], "either --before or --after"),
        (["--before", 14], "the log ends at 12"),
        (["--after", -1], "the log begins at 1"),
    ):
        refused = run("log", "truncate", raft, *words)
        assert refused.exit_code == 1
        assert why in refused.stderr
    for option, end in (("--before", "oldest"), ("--after", "newest")):
        other = run("log", "truncate", path, option, 2)
        assert f"this format cannot remove its {end} entries" in other.stderr


def test_a_file_log_loses_its_newest(tmp_path: Path, run: Run) -> None:
    log = tmp_path / "log"
    with FileLog(OsDisk(log)) as owner:
        owner.append([b"1", b"2", b"3", b"4"])
    assert run("log", "truncate", log, "--after", 3).exit_code == 0
    done = run("log", "truncate", log, "--after", 2, "--apply")
    assert done.stdout.endswith("the log holds 1..2\n")
    assert "cannot remove its oldest" in run("log", "truncate", log, "--before", 2).stderr
    assert run("log", "verify", log).exit_code == 0


def test_replicas_are_heard(raft: Path, run: Run) -> None:
    Replicas(OsDisk(raft)).register("follower", 5)
    assert "could not follow" in run("log", "truncate", raft, "--before", 7).stderr
    assert "could not follow" in run("log", "truncate", raft, "--after", 4).stderr
    assert run("log", "truncate", raft, "--before", 6).exit_code == 0


def test_trim_works_as_for_every_log(raft: Path, run: Run) -> None:
    by_age = run("log", "trim", raft, "--older-than", "1d")
    assert "would remove 3 segments" in by_age.stdout
    Replicas(OsDisk(raft)).register("slow", 5)
    held = run("log", "trim", raft, "--keep-size", "1", "--apply")
    assert "removed 1 segment" in held.stdout
    assert "the log begins at 5; replica slow has acknowledged only 5" in held.stdout
    Replicas(OsDisk(raft)).acknowledge("slow", 12)
    assert "the log begins at 9" in run("log", "trim", raft, "--before", 11, "--apply").stdout
    assert (
        "the active segment stays" in run("log", "trim", raft, "--acknowledged", "--apply").stdout
    )
    assert run("log", "verify", raft).exit_code == 0
