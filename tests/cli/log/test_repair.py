import json
import re
from pathlib import Path

import pytest
from tests.cli.conftest import Run

import holdfast
from holdfast.doors.logs import apply_repair, plan_repair


def test_the_plan_changes_nothing(damaged: Path, run: Run) -> None:
    before = {file.name: file.read_bytes() for file in damaged.iterdir()}
    result = run("log", "repair", damaged)
    assert result.exit_code == 2
    assert "kept: 1..5\nlost: 6..10\n" in result.stdout
    assert {file.name: file.read_bytes() for file in damaged.iterdir()} == before


def test_the_other_side_can_be_kept(damaged: Path, run: Run) -> None:
    assert "kept: 7..10" in run("log", "repair", damaged, "--keep", "after").stdout
    assert run("log", "repair", damaged, "--keep", "both").exit_code == 1


def test_apply_carries_the_plan_out(damaged: Path, run: Run) -> None:
    plan = run("log", "repair", damaged)
    assert plan.stdout.endswith("nothing was changed; --apply carries it out\n")
    assert run("log", "verify", damaged).exit_code == 2
    done = run("log", "repair", damaged, "--apply")
    assert done.exit_code == 0
    assert done.stdout.endswith(f"done; {damaged} now holds 1..5\n")
    assert run("log", "verify", damaged).exit_code == 0
    assert "cut files  3" in run("log", "inspect", damaged).stdout


def test_json_reports_what_was_done(damaged: Path, run: Run) -> None:
    document = json.loads(run("log", "repair", damaged, "--apply", "--json").stdout)
    assert document["applied"]
    assert (document["kept"], document["lost"]) == ([1, 5], [[6, 10]])
    assert not document["lossless"]
    assert all(step["text"] for step in document["steps"])


def test_a_torn_tail_loses_nothing(torn: Path, run: Run) -> None:
    plan = run("log", "repair", torn)
    assert plan.exit_code == 3
    assert "lost: nothing that was acknowledged" in plan.stdout
    assert run("log", "repair", torn, "--apply").exit_code == 0
    assert run("log", "verify", torn).exit_code == 0


def test_a_lost_header_is_not_called_lossless(path: Path, run: Run) -> None:
    for segment in ("segment_00001.wal", "segment_00002.wal", "segment_00003.wal"):
        (path / segment).write_bytes(b"?" * 64)
    assert not json.loads(run("log", "repair", path, "--json").stdout)["lossless"]


def test_a_repair_without_damage_does_nothing(path: Path, run: Run) -> None:
    result = run("log", "repair", path, "--apply")
    assert (result.exit_code, result.stdout) == (0, f"{path}: nothing to repair; it holds 1..10\n")


def test_a_live_owner_is_not_disturbed(damaged: Path, run: Run) -> None:
    with holdfast.open_log(damaged):
        result = run("log", "repair", damaged, "--apply", "--json")
    assert json.loads(result.stderr)["error"] == "locked"


def test_a_locked_log_is_named_with_its_owner(damaged: Path, run: Run) -> None:
    with holdfast.open_log(damaged):
        assert run("log", "repair", damaged).exit_code == 2, "a plan needs no lock"
        result = run("log", "repair", damaged, "--apply")
    assert result.exit_code == 1
    assert result.stderr.startswith("holdfast: ") and result.stderr.count("\n") == 1
    assert str(damaged) in result.stderr and "is owned by process" in result.stderr
    assert run("log", "repair", damaged, "--apply").exit_code == 0


def test_a_missing_path_is_one_line(tmp_path: Path, run: Run) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        result = run("log", "repair", path)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.count("\n") == 1 and str(path) in result.stderr


def test_a_damaged_side_file_is_repaired_too(path: Path, run: Run) -> None:
    """`verify` and `repair` agree."""
    assert run("log", "replicas", path, "register", "east", "--at", "3").exit_code == 0
    (path / "replicas/east.json").write_bytes(b"{}")
    assert run("log", "verify", path).exit_code == 2
    plan = run("log", "repair", path)
    assert plan.exit_code == 2
    assert "damage: replicas/east.json" in plan.stdout
    assert "step 1: rename replicas/east.json to a .cut file\n" in plan.stdout
    assert "lost: nothing that was acknowledged" in plan.stdout
    document = json.loads(run("log", "repair", path, "--apply", "--json").stdout)
    assert (document["applied"], document["kept"], document["lost"]) == (True, [1, 10], [])
    assert document["steps"][-1]["file"] == "replicas/east.json"
    assert run("log", "verify", path).exit_code == 0
    assert (path / "east.json.cut").read_bytes() == b"{}"


def test_a_replica_beyond_the_repaired_log_registers_again(damaged: Path, run: Run) -> None:
    """Else the log would not be clean: the replica has entries that the log has lost."""
    assert run("log", "replicas", damaged, "register", "east", "--at", "9").exit_code == 0
    assert "damage: replicas/east.json" in run("log", "repair", damaged).stdout
    assert run("log", "repair", damaged, "--apply").exit_code == 0
    assert run("log", "verify", damaged).exit_code == 0


def test_one_segment_that_is_cut_inside_its_first_entry_is_repaired(
    tmp_path: Path, run: Run
) -> None:
    path = tmp_path / "one"
    with holdfast.create_log(path, format="shanghai") as log:
        log.append([b"entry %d" % number for number in range(1, 17)])
    file = path / "segment_00001.wal"
    file.write_bytes(file.read_bytes()[:70])
    plan = run("log", "repair", path)
    assert "kept: none\nlost: 1..16\n" in plan.stdout
    assert run("log", "repair", path, "--apply").exit_code == 0
    assert run("log", "verify", path).exit_code == 0
    with holdfast.open_log(path) as log:
        assert log.append([b"more"]) == 17, "no index is used twice"


def test_a_first_segment_that_is_cut_in_its_header_is_listed_as_lost(path: Path, run: Run) -> None:
    file = path / "segment_00001.wal"
    file.write_bytes(file.read_bytes()[:55])
    for keep in ("before", "after"):
        assert "kept: 5..10\nlost: 1..4\n" in run("log", "repair", path, "--keep", keep).stdout
    assert run("log", "repair", path, "--apply", "--keep", "after").exit_code == 0
    with holdfast.read_log(path) as log:
        assert (log.first_index, log.last_index, log.verify().verdict) == (5, 10, "clean")


@pytest.mark.parametrize("bit", [8 * 32 + 6, 8 * 33, 8 * 39, 8 * 42 + 1, 8 * 24 + 7, 8 * 6 + 3])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_flipped_bit_in_a_header_has_clear_figures(
    path: Path, run: Run, number: int, bit: int
) -> None:
    file = path / f"segment_0000{number}.wal"
    data = bytearray(file.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    file.write_bytes(data)
    for verb in ("verify", "inspect", "cat", "repair"):
        result = run("log", verb, path)
        assert result.exit_code in (0, 2), result.stderr
        text = (result.stdout + result.stderr).replace(str(path), "")
        assert not re.search(r"(?<!\w)-\d|entries \d{5}|\.\.\d{5}|Traceback", text), text
    json.loads(run("log", "inspect", path, "--json").stdout)


def test_progress_reaches_the_end(damaged: Path) -> None:
    """The bar of a large log: what was read, of what there is to read."""
    seen: list[tuple[int, int]] = []
    plan = plan_repair(damaged, on_progress=lambda done, total: seen.append((done, total)))
    assert len(seen) > 5 and seen == sorted(seen)
    assert {total for _, total in seen} == {seen[0][1]} and seen[-1][0] == seen[-1][1]
    seen.clear()
    apply_repair(damaged, plan, on_progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]
