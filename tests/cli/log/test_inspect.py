import errno
import json
import os
import shutil
from pathlib import Path

import pytest
from tests.cli.conftest import Run

import holdfast
from holdfast.disk import OsDisk, OsFile
from holdfast.logs.replicas import Replicas


def test_ls_lists_segments(path: Path, run: Run) -> None:
    title, *rows = run("log", "ls", path).stdout.splitlines()
    assert title.split() == ["NAME", "STATE", "FIRST", "LAST", "ENTRIES", "SIZE", "CREATED"]
    assert [row.split()[:7] for row in rows] == [
        ["segment_00001.wal", "sealed", "1", "4", "4", "124", "B"],
        ["segment_00002.wal", "sealed", "5", "8", "4", "124", "B"],
        ["segment_00003.wal", "active", "9", "10", "2", "95", "B"],
    ]
    last = json.loads(run("log", "ls", path, "--json").stdout.splitlines()[-1])
    assert (last["name"], last["state"], last["last_index"]) == ("segment_00003.wal", "active", 10)


def test_ls_reports_a_missing_segment(path: Path, run: Run) -> None:
    (path / "segment_00002.wal").unlink()
    result = run("log", "ls", path)
    assert result.exit_code == 2
    assert "segment_00002.wal at byte 0: missing" in result.stderr


def test_inspect_is_one_page(path: Path, run: Run) -> None:
    Replicas(OsDisk(path)).register("backup", 7)
    with holdfast.open_log(path):
        text = run("log", "inspect", path).stdout
    facts = dict(line.split("  ", 1) for line in text.splitlines() if line[0] != " ")
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    assert facts["entries"] == "10"
    assert facts["indexes"] == "1..10"
    assert facts["segments"] == "1 active, 2 sealed"
    assert facts["owner"] == f"process {os.getpid()} (alive)"
    assert "- backup: 7 acknowledged, 3 behind" in text
    assert "none (it was process" in run("log", "inspect", path).stdout


def test_inspect_in_json_has_it_all(torn: Path, run: Run) -> None:
    result = run("log", "inspect", torn, "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 3
    assert report["verdict"] == "torn tail"
    assert report["torn"]["offset"] == 95
    assert report["owner"] == {"pid": os.getpid(), "alive": False}
    assert [segment["name"] for segment in report["segments"]][-1] == "segment_00003.wal"


def test_inspect_of_an_empty_log(tmp_path: Path, run: Run) -> None:
    run("log", "create", tmp_path / "log", "--first-index", 5)
    assert "none; the next is 5" in run("log", "inspect", tmp_path / "log").stdout


def test_verify_has_a_verdict_for_each_segment(damaged: Path, run: Run) -> None:
    result = run("log", "verify", damaged)
    assert result.exit_code == 2
    assert [line.split()[1] for line in result.stdout.splitlines()[1:4]] == [
        "clean", "corrupt", "clean",
    ]  # fmt: skip
    assert "(affects entries 6..6)" in result.stdout
    assert result.stdout.splitlines()[-1].startswith(f"{damaged}: corrupt")


def test_verify_of_many_exits_with_the_gravest(path: Path, tmp_path: Path, run: Run) -> None:
    run("log", "create", tmp_path / "torn", "--format", "shanghai")
    with (tmp_path / "torn" / "segment_00001.wal").open("ab") as file:
        file.write(b"\0")
    both = run("log", "verify", path, tmp_path / "torn", "--json")
    assert both.exit_code == 3
    assert [report["verdict"] for report in map(json.loads, both.stdout.splitlines())] == [
        "clean",
        "torn tail",
    ]
    (path / "segment_00001.wal").write_bytes(b"")
    assert run("log", "verify", path, tmp_path / "torn").exit_code == 2
    assert run("log", "verify", tmp_path / "torn").stdout.splitlines()[1].split()[1:3] == [
        "torn", "tail",
    ]  # fmt: skip


def test_verify_exits_with_5_if_a_file_cannot_be_read(
    path: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("log", "create", tmp_path / "other", "--format", "file-log")
    fails_to_read(path, monkeypatch)
    result = run("log", "verify", path, tmp_path / "other", "--json")
    unreadable, other = map(json.loads, result.stdout.splitlines())
    assert (unreadable["path"], unreadable["verdict"]) == (str(path), "unreadable")
    assert "Input/output error" in unreadable["why"]
    assert other["verdict"] == "clean"
    assert result.exit_code == 5
    assert f"{path}: unreadable" in run("log", "verify", path).stdout


def test_corruption_is_graver_than_a_file_that_cannot_be_read(
    damaged: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(damaged, tmp_path / "unreadable")
    fails_to_read(tmp_path / "unreadable", monkeypatch)
    assert run("log", "verify", tmp_path / "unreadable").exit_code == 5
    assert run("log", "verify", damaged, tmp_path / "unreadable").exit_code == 2


def fails_to_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the second segment of this log fail, as on a disk with bad sectors."""
    honest = OsDisk.open

    def open_or_fail(self: OsDisk, name: str) -> OsFile:
        if (self.path, name) == (str(path), "segment_00002.wal"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)
        return honest(self, name)

    monkeypatch.setattr(OsDisk, "open", open_or_fail)


@pytest.mark.parametrize("verb", ["verify", "inspect", "cat"])
def test_a_log_one_level_down_is_named(path: Path, run: Run, verb: str) -> None:
    result = run("log", verb, path.parent)
    assert result.exit_code == 1
    assert result.stderr == f"holdfast: {path.parent} has no log; {path} has one (shanghai)\n"


@pytest.mark.parametrize("verb", ["verify", "inspect"])
def test_a_raft_boltdb_store_is_refused_by_name(tmp_path: Path, run: Run, verb: str) -> None:
    (tmp_path / "raft.db").write_bytes(b"bolt")
    result = run("log", verb, tmp_path)
    assert result.exit_code == 1
    assert "holds raft.db, a raft-boltdb store, which holdfast does not read" in result.stderr
    assert "migrate it to raft-wal" in result.stderr
