import json
import os
from pathlib import Path

from tests.cli.conftest import Run

import holdfast
from holdfast.disk import OsDisk
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


def test_ls_tells_of_a_missing_segment(path: Path, run: Run) -> None:
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
    run("log", "create", tmp_path / "torn")
    with (tmp_path / "torn" / "segment_00001.wal").open("ab") as file:
        file.write(b"\0")
    both = run("log", "verify", path, tmp_path / "torn", "--json")
    assert both.exit_code == 3
    assert [report["verdict"] for report in json.loads(both.stdout)] == ["clean", "torn tail"]
    (path / "segment_00001.wal").write_bytes(b"")
    assert run("log", "verify", path, tmp_path / "torn").exit_code == 2
    assert run("log", "verify", tmp_path / "torn").stdout.splitlines()[1].split()[1:3] == [
        "torn", "tail",
    ]  # fmt: skip
