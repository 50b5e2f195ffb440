"""What holds for every verb of `holdfast log`."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run

import holdfast

READERS = [["cat"], ["tail"], ["ls"], ["inspect"], ["verify"]]
WRITERS = [
    ["append", "x"],
    ["rotate"],
    ["trim", "--before", "9", "--apply"],
    ["repair", "--apply"],
]
REPLICAS = [["list"], ["register", "r"], ["acknowledge", "r", "1"], ["forget", "r"]]


def words(verb: list[str], path: object) -> list[str]:
    return ["log", verb[0], str(path), *verb[1:]]


ALL = [words(verb, "PATH") for verb in READERS + WRITERS]
ALL += [["log", "replicas", "PATH", *verb] for verb in REPLICAS]
ALL += [["log", "replicate", "PATH", "TARGET", "--name", "r"]]


@pytest.fixture(params=ALL, ids=lambda verb: " ".join(verb[1:4]))
def verb(request: pytest.FixtureRequest) -> list[str]:
    return list(request.param)


def at(verb: list[str], path: Path) -> list[str]:
    places = {"PATH": str(path), "TARGET": str(path.with_name("target"))}
    return [places.get(word, word) for word in verb]


def test_a_wrong_path_is_reported_and_nothing_is_created(
    verb: list[str], tmp_path: Path, run: Run
) -> None:
    result = run(*at(verb, tmp_path / "nothing"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no such directory; `holdfast log create" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_holds_no_log_is_left_alone(
    verb: list[str], tmp_path: Path, run: Run
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "notes.txt").write_text("mine")
    result = run(*at(verb, place), "--json")
    assert result.exit_code == 1
    assert json.loads(result.stderr)["error"] == "not_found"
    assert [file.name for file in place.iterdir()] == ["notes.txt"]


def test_a_file_is_not_a_log(verb: list[str], tmp_path: Path, run: Run) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"SHANGA\0\1")
    result = run(*at(verb, file))
    assert result.exit_code == 1
    assert "Not a directory" in result.stderr
    assert result.stderr.count("\n") == 1


def test_garbage_in_a_segment_never_ends_in_a_traceback(
    verb: list[str], tmp_path: Path, run: Run
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "segment_00001.wal").write_bytes(bytes(range(256)) * 4)
    result = run(*at(verb, place))
    assert result.exit_code in (0, 1, 2)
    assert isinstance(result.exception, SystemExit | None)
    if verb[1] in ("cat", "tail", "ls", "inspect", "verify", "append", "rotate", "compact"):
        assert result.exit_code == 2


def test_another_version_is_refused_clearly(path: Path, run: Run) -> None:
    file = path / "segment_00001.wal"
    data = bytearray(file.read_bytes())
    data[7] = 2
    file.write_bytes(data)
    for reader in READERS:
        result = run(*words(reader, path))
        assert result.exit_code == 1
        assert "version 2" in result.stderr


def test_writers_stay_out_of_a_log_that_is_owned_and_readers_do_not(path: Path, run: Run) -> None:
    with holdfast.open_log(path):
        for writer in WRITERS[:3]:
            result = run(*words(writer, path), "--json")
            assert result.exit_code == 1
            assert json.loads(result.stderr)["error"] == "locked"
        for reader in READERS:
            assert run(*words(reader, path)).exit_code == 0


def test_every_verb_answers_in_json(verb: list[str], path: Path, run: Run) -> None:
    if verb[-2:] == ["forget", "r"] or "acknowledge" in verb:
        run("log", "replicas", path, "register", "r")
    result = run(*at(verb, path), "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert all(isinstance(json.loads(line), dict) for line in lines)
    if verb[1] not in ("cat", "tail", "append", "ls") and verb[-1] != "list":
        assert len(lines) == 1
