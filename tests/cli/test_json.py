"""The rule of --json: one object per line; one line, unless the verb lists or streams rows."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run, copy
from tests.cli.kv.stores import make_store
from typer.main import get_command

from holdfast.cli.app import app

LINES = {
    *("log cat", "log tail", "log ls", "log append", "log verify", "log replicas list"),
    *("kv scan", "kv put", "kv delete", "kv manifest list", "kv snapshot list", "kv verify"),
    *("bars query", "bars latest", "bars symbols", "bars write", "bars verify"),
}
CASES: dict[str, list[str]] = {
    "log create": ["NEW"],
    "log append": ["LOG", "a", "b"],
    "log cat": ["LOG"],
    "log tail": ["LOG"],
    "log ls": ["LOG"],
    "log inspect": ["LOG"],
    "log verify": ["LOG", "LOG"],
    "log repair": ["LOG"],
    "log rotate": ["LOG"],
    "log trim": ["LOG", "--before", "9"],
    "log truncate": ["RAFT", "--after", "1"],
    "log replicate": ["LOG", "NEW", "--name", "r"],
    "log convert": ["LOG", "NEW", "--to", "raft-wal"],
    "log replicas register": ["LOG", "r"],
    "log replicas list": ["LOG"],
    "kv create": ["NEW"],
    "kv put": ["KV", "a", "1"],
    "kv get": ["KV", "vat"],
    "kv delete": ["KV", "a"],
    "kv scan": ["KV"],
    "kv load": ["KV", "FILE"],
    "kv inspect": ["KV"],
    "kv manifest show": ["KV"],
    "kv manifest list": ["KV"],
    "kv snapshot create": ["KV"],
    "kv snapshot list": ["KV"],
    "kv verify": ["KV"],
    "kv compact": ["KV"],
    "kv gc": ["KV"],
    "kv repair": ["KV"],
    "bars create": ["NEW"],
    "bars write": ["BARS", "A/1Min/OHLCV", "2024-01-02,1,2,0,1,5"],
    "bars import": ["BARS", "ROWS", "--timeframe", "1Min", "--group", "X"],
    "bars export": ["BARS", "A/1Min/OHLCV", "NEW", "--format", "csv"],
    "bars query": ["BARS", "A/1Min/OHLCV"],
    "bars latest": ["BARS", "*/1Min/OHLCV"],
    "bars symbols": ["BARS"],
    "bars delete": ["BARS", "A/1Min/OHLCV"],
    "bars replay": ["BARS"],
    "bars flush": ["BARS"],
    "bars backup": ["BARS", "NEW"],
    "bars inspect": ["BARS"],
    "bars verify": ["BARS"],
}


def words_of(verb: str, places: dict[str, Path]) -> list[object]:
    """The command; the groups replicas, manifest and snapshot take the store before the verb."""
    noun, *rest = verb.split()
    words: list[object] = [places.get(word, word) for word in CASES[verb]]
    if len(rest) == 2:
        return [noun, rest[0], words[0], rest[1], *words[1:]]
    return [noun, *rest, *words]


@pytest.mark.parametrize("verb", CASES)
def test_json_is_one_object_per_line(
    verb: str, path: Path, market: Path, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "rows.csv").write_text("key,value\na,1\n")
    (tmp_path / "bars.csv").write_text("symbol,time,Price\nA,60,1.5\n")
    places = {"LOG": path, "NEW": tmp_path / "new", "RAFT": tmp_path / "raft"}
    places |= {"FILE": tmp_path / "rows.csv", "ROWS": tmp_path / "bars.csv"}
    places |= {"KV": tmp_path / "kv", "BARS": tmp_path / "bars"}
    if "RAFT" in CASES[verb]:
        run("log", "create", places["RAFT"], "--format", "raft-wal")
        run("log", "append", places["RAFT"], "a", "b")
    if "KV" in CASES[verb]:
        make_store(places["KV"])
    if "BARS" in CASES[verb]:
        copy(market / "root", places["BARS"])
    result = run(*words_of(verb, places), "--json")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert all(isinstance(json.loads(line), dict) for line in lines)
    assert len(lines) == 1 or verb in LINES


def test_every_verb_of_a_store_is_in_the_table() -> None:
    root = get_command(app)
    elsewhere = {  # with Spark, or in tests of their own
        *("log scrub", "log replay", "log stats", "log snapshot show", "log snapshot create"),
        *("log snapshot install", "log replicas acknowledge", "log replicas forget"),
        *("kv snapshot extend", "kv snapshot drop"),
    }
    found = set()
    for noun in ("log", "kv", "bars"):
        for name, command in root.commands[noun].commands.items():  # type: ignore[attr-defined]
            below = getattr(command, "commands", None)
            found |= {f"{noun} {name} {b}" for b in below} if below else {f"{noun} {name}"}
    assert found == CASES.keys() | elsewhere
