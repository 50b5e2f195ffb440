import json
from pathlib import Path

from tests.cli.conftest import Run

import holdfast


def test_the_plan_changes_nothing(damaged: Path, run: Run) -> None:
    before = {file.name: file.read_bytes() for file in damaged.iterdir()}
    result = run("log", "repair", damaged)
    assert result.exit_code == 2
    assert "kept: 1..5\nlost: 6..10\n" in result.stdout
    assert {file.name: file.read_bytes() for file in damaged.iterdir()} == before


def test_the_other_side_can_be_kept(damaged: Path, run: Run) -> None:
    assert "kept: 7..10" in run("log", "repair", damaged, "--keep", "after").stdout
    assert run("log", "repair", damaged, "--keep", "both").exit_code == 1


def test_it_asks_and_then_does_it(damaged: Path, run: Run) -> None:
    refused = run("log", "repair", damaged, "--apply", stdin="n\n")
    assert refused.exit_code == 1
    assert "nothing was changed" in refused.stderr
    assert run("log", "repair", damaged, "--apply").exit_code == 1  # nobody there to answer
    assert run("log", "verify", damaged).exit_code == 2
    done = run("log", "repair", damaged, "--apply", stdin="y\n")
    assert done.exit_code == 0
    assert done.stdout.endswith(f"done; {damaged} now holds 1..5\n")
    assert run("log", "verify", damaged).exit_code == 0
    assert "kept aside  3" in run("log", "inspect", damaged).stdout


def test_it_tells_in_json_what_it_did(damaged: Path, run: Run) -> None:
    assert "confirm with --yes" in run("log", "repair", damaged, "--apply", "--json").stderr
    document = json.loads(run("log", "repair", damaged, "--apply", "--yes", "--json").stdout)
    assert document["applied"]
    assert (document["kept"], document["lost"]) == ([1, 5], [[6, 10]])
    assert not document["lossless"]
    assert all(step["text"] for step in document["steps"])


def test_a_torn_tail_loses_nothing(torn: Path, run: Run) -> None:
    plan = run("log", "repair", torn)
    assert plan.exit_code == 3
    assert "lost: nothing that was acknowledged" in plan.stdout
    assert run("log", "repair", torn, "--apply", "--yes").exit_code == 0
    assert run("log", "verify", torn).exit_code == 0


def test_a_lost_header_is_not_called_lossless(path: Path, run: Run) -> None:
    for segment in ("segment_00001.wal", "segment_00002.wal", "segment_00003.wal"):
        (path / segment).write_bytes(b"?" * 64)
    assert not json.loads(run("log", "repair", path, "--json").stdout)["lossless"]


def test_there_may_be_nothing_to_do(path: Path, run: Run) -> None:
    result = run("log", "repair", path, "--apply")
    assert (result.exit_code, result.stdout) == (0, f"{path}: nothing to repair; it holds 1..10\n")


def test_a_live_owner_is_not_disturbed(damaged: Path, run: Run) -> None:
    with holdfast.open_log(damaged):
        result = run("log", "repair", damaged, "--apply", "--yes", "--json")
    assert json.loads(result.stderr)["error"] == "locked"
