import json
from pathlib import Path

from tests.cli.conftest import Run

import holdfast
from holdfast.disk import OsDisk
from holdfast.logs.replicas import Replicas


def test_create_makes_an_empty_log(tmp_path: Path, run: Run) -> None:
    result = run("log", "create", tmp_path / "a" / "log", "--first-index", 7, "--json")
    document = json.loads(result.stdout)
    assert (document["format"], document["first_index"], document["last_index"]) == (
        "raft-wal", 7, 6,
    )  # fmt: skip
    with holdfast.open_log(tmp_path / "a" / "log") as log:
        assert log.append([b"x"]) == 7


def test_create_refuses_taken_paths_and_invalid_options(
    path: Path, tmp_path: Path, run: Run
) -> None:
    assert "not empty" in run("log", "create", path).stderr
    assert "invalid log format 'x'" in run("log", "create", tmp_path / "n", "--format", "x").stderr
    (tmp_path / "file").write_text("")
    assert "Not a directory" in run("log", "create", tmp_path / "file").stderr
    assert run("log", "create", tmp_path / "n", "--first-index", 0).exit_code == 1
    assert "not a size" in run("log", "create", tmp_path / "n", "--segment-size", "x").stderr
    assert not (tmp_path / "n").exists()


def test_rotate_begins_a_new_segment_once(path: Path, run: Run) -> None:
    line = "segment_00004.wal is the active segment; all up to entry 10 is sealed\n"
    assert run("log", "rotate", path).stdout == line
    assert run("log", "rotate", path).stdout == line


def test_rotate_of_a_damaged_log_is_refused(path: Path, run: Run) -> None:
    (path / "segment_00002.wal").unlink()
    assert run("log", "rotate", path).exit_code == 2
    assert run("log", "trim", path, "--before", 9).exit_code == 2


def test_trim_plans_what_goes_and_why_it_stops(path: Path, run: Run) -> None:
    command = ["log", "trim", path, "--before", 9]
    plan = run(*command)
    assert "would remove 2 segments, 248 B; the log would begin at 9" in plan.stdout
    assert plan.stdout.endswith("nothing was changed; --apply carries it out\n")
    assert len(list(path.glob("*.wal"))) == 3
    assert "removed 2 segments" in run(*command, "--apply").stdout
    assert run(*command, "--apply").stdout == (
        "removed 0 segments, 0 B; the log begins at 9; the active segment stays\n"
    )


def test_trim_waits_for_replicas(path: Path, run: Run) -> None:
    Replicas(OsDisk(path)).register("slow", 5)
    done = json.loads(run("log", "trim", path, "--keep-size", "1", "--apply", "--json").stdout)
    assert [segment["name"] for segment in done["removed"]] == ["segment_00001.wal"]
    assert done["stopped_by"] == "replica slow has acknowledged only 5"
    assert (done["freed"], done["first_index"], done["applied"]) == (124, 5, True)


def test_trim_by_age_and_acknowledgement(path: Path, run: Run) -> None:
    assert "removed 0 segments" in run("log", "trim", path, "--older-than", "1d", "--apply").stdout
    assert "no replica is registered" in run("log", "trim", path, "--acknowledged").stderr
    Replicas(OsDisk(path)).register("quick", 10)
    assert "removed 2 segments" in run("log", "trim", path, "--acknowledged", "--apply").stdout


def test_trim_wants_a_limit_it_understands(path: Path, run: Run) -> None:
    assert "pass --before" in run("log", "trim", path).stderr
    assert "not a duration" in run("log", "trim", path, "--older-than", "7").stderr
    assert run("log", "trim", path, "--before", "-1").exit_code == 1
