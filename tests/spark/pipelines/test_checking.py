"""Report all problems at once, each with its key and what to do."""

from pathlib import Path

import pytest
from tests.spark.pipelines.samples import FOUR_SINKS, write, write_ticks

from holdfast.spark.pipelines import InvalidError, read
from holdfast.spark.pipelines.reading import read_tables

WRONG = """
nam = "ticks"
checkpoint = "state"
trigger = "sometimes"

[source.ticks]
format = "holdfast-log"
path = "nowhere"
parse = "jsn"
options = { maxEntryPerTrigger = 5, startingIndex = [1] }

[source.files]
format = "parqet"
path = "."

[source.bare]
format = "parquet"
path = "."
watermark = "at"

[source.own]
format = "holdfast-kv"
path = "."
schema = "a INT"
options = { startingWalId = "earliest" }

[step.ticks]
sql = "SELECT 1"

[step.both]
sql = "SELECT 1"
function = "nowhere:f"

[step.late]
function = "steps:f"

[sink.a]
from = "tick"
format = "holdfast-log"
path = "out"
mode = "complete"

[sink.b]
from = "late"
format = "parquet"
path = "out"

[sink.c-d]
format = "parquet"
path = 3
"""

EXPECTED = {
    "nam": "remove it: unknown key; did you mean name?",
    "name": 'add name = "...": the checkpoint belongs to this name',
    "trigger": 'write "available-now", "once" or "every 5s", not \'sometimes\'',
    "source.ticks.path": "{}/nowhere does not exist: create it, or correct the path",
    "source.ticks.parse": "set another than 'jsn'; did you mean json?",
    "source.ticks.options.startingIndex": "write a string, a number or a boolean, not [1]",
    "source.ticks.options": "remove the option 'maxEntryPerTrigger': holdfast-log has the options",
    "source.ticks.schema": 'add schema = "column TYPE, ..."',
    "source.files.format": "set another than 'parqet'; did you mean parquet?",
    "source.bare.schema": 'add schema = "column TYPE, ..."',
    "source.bare.watermark": 'write "COLUMN DELAY", as in "at 5 minutes"',
    "source.own.schema": 'remove it, or add parse = "json": holdfast-kv has its own',
    "step.ticks": "use another name: ticks is a source or a table already",
    "step.both": 'give it either sql = "SELECT ..." or function = "module:name"',
    "step.both.function": 'write "module:name": nowhere cannot be imported',
    "step.late.function": "no source or earlier step is called tocks; did you mean ticks?",
    "sink.a.from": "no source or step is called tick; did you mean ticks?",
    "sink.a.mode": "set append or update: holdfast-log cannot complete",
    "sink.b.path": "name another: sink.a writes to it",
    "sink.c-d": "use letters, digits and '_' in its name, a letter first",
    "sink.c-d.from": "add from = one of ticks",
    "sink.c-d.path": "write a string, not 3",
}


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    write(tmp_path / "steps.py", "def f(tocks):\n    return tocks\n")
    file = write(tmp_path / "wrong.toml", WRONG)
    with pytest.raises(InvalidError) as raised:
        read(file)
    found = {problem.key: problem.what for problem in raised.value.problems}
    assert found.keys() == EXPECTED.keys()
    for key, message in EXPECTED.items():
        assert found[key].startswith(message.format(tmp_path)), key
    assert f"{file}: nam: remove it" in str(raised.value)


def test_an_empty_file_reports_all_that_it_needs(tmp_path: Path) -> None:
    with pytest.raises(InvalidError) as raised:
        read(write(tmp_path / "empty.toml", ""))
    keys = [problem.key for problem in raised.value.problems]
    assert keys == ["name", "checkpoint", "source", "sink"]


def test_circular_links_are_reported(tmp_path: Path) -> None:
    (tmp_path / "ticks-log").symlink_to("ticks-log")
    file = write(tmp_path / "ticks.toml", FOUR_SINKS.replace('"state"', '"ticks-log"'))
    with pytest.raises(InvalidError, match=r"source\.ticks\.path: .* does not exist"):
        read(file)


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    write_ticks(tmp_path / "a" / "ticks-log", 1, 1)
    write(tmp_path / "a" / "ticks.toml", FOUR_SINKS)
    monkeypatch.chdir(tmp_path)
    declared = read("a/ticks.toml")
    assert declared.sources[0].path == str(tmp_path / "a" / "ticks-log")
    assert declared.sinks[0].path == str(tmp_path / "a" / "lines")
    assert declared.dead_letters == str(tmp_path / "a" / "state" / "dead-letters")
    assert declared.sources[0].options == {"maxEntriesPerTrigger": "50"}
    assert read_tables("a/ticks.toml")["name"] == declared.name == "ticks"
