"""A checkpoint belongs to one pipeline, and remembers what that was."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.spark.pipelines.samples import FOUR_SINKS, write, write_ticks

from holdfast.errors import CorruptError, LockedError
from holdfast.spark.pipelines import ChangedError, Declared, read
from holdfast.spark.pipelines.checkpoint import (
    Query,
    agree,
    describe,
    note_batch,
    owned,
    read_progress,
)

VIEWS = {"lines": "lines", "bars": "minutes", "prices": "last", "archive": "ticks"}


def declared(path: Path, *changes: tuple[str, str]) -> Declared:
    text = FOUR_SINKS
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    if not (path / "ticks-log").exists():
        write_ticks(path / "ticks-log", 1, 1)
    return read(write(path / "ticks.toml", text))


def queries(found: Declared, sources: Sequence[str] = ("ticks",)) -> dict[str, Query]:
    """As Spark's plans would tell."""
    return {
        sink.name: describe(found, sink, sources, {"ticks", VIEWS[sink.name]})
        for sink in found.sinks
    }


def agreed(found: Declared, *, accept_changes: bool = False) -> None:
    agree(found, queries(found), accept_changes=accept_changes)


def test_an_equivalent_pipeline_counts_as_unchanged(tmp_path: Path) -> None:
    agreed(declared(tmp_path))
    agreed(declared(tmp_path, ("maxEntriesPerTrigger = 50", "maxEntriesPerTrigger = 7")))
    agreed(declared(tmp_path, ("SELECT concat_ws", "SELECT    concat_ws")))
    assert json.loads((tmp_path / "state" / "pipeline.json").read_text())["pipeline"] == "ticks"


def test_every_change_is_reported_with_what_to_do(tmp_path: Path) -> None:
    agreed(declared(tmp_path))
    changed = declared(
        tmp_path,
        ("size BIGINT", "size INT"),
        ("_index, symbol", "symbol, _index"),
        ("[sink.prices]", "[sink.costs]"),
    )
    VIEWS["costs"] = "last"
    with pytest.raises(ChangedError) as raised:
        agreed(changed)
    text = str(raised.value)
    for phrase in (
        "source.ticks.schema has changed",
        "step.lines.sql has changed",
        "sink.costs is new",
        "sink.prices was removed",
        "--accept-changes",
        "start over, with another checkpoint and new paths for the sinks",
    ):
        assert phrase in text
    agreed(changed, accept_changes=True)
    agreed(changed)
    with pytest.raises(ChangedError, match=r"sink\.prices is new"):
        agreed(declared(tmp_path, ("[sink.prices]", "[sink.prices]")))


def test_offsets_of_other_sources_are_never_accepted(tmp_path: Path) -> None:
    found = declared(tmp_path)
    agreed(found)
    with pytest.raises(ChangedError, match=r"lines now reads ticks .*, ticks .*, but its progress"):
        agree(found, queries(found, ["ticks", "ticks"]), accept_changes=True)


def test_a_checkpoint_of_another_is_refused(tmp_path: Path) -> None:
    agreed(declared(tmp_path))
    with pytest.raises(ChangedError, match="belongs to the pipeline 'ticks': name another"):
        agreed(declared(tmp_path, ('name = "ticks"', 'name = "other"')), accept_changes=True)
    (tmp_path / "state" / "pipeline.json").write_text("{}")
    with pytest.raises(CorruptError, match="not a pipeline's record"):
        agreed(declared(tmp_path))
    (tmp_path / "state" / "pipeline.json").rename(tmp_path / "state" / "metadata")
    with pytest.raises(ChangedError, match="is not the checkpoint of a pipeline: it has metadata"):
        agreed(declared(tmp_path))


def test_two_cannot_run_it_at_once(tmp_path: Path) -> None:
    with owned(str(tmp_path)), pytest.raises(LockedError), owned(str(tmp_path)):
        pass
    with owned(str(tmp_path)):
        assert (tmp_path / "LOCK").exists()


def test_progress_is_that_of_the_last_commit(tmp_path: Path) -> None:
    home = tmp_path / "queries" / "a"
    for name in ("offsets", "commits"):
        (home / name).mkdir(parents=True)
    assert read_progress(str(tmp_path), "a") is None
    for batch in (9, 10, 11):
        (home / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"index": {batch}}}\n-')
        (home / "commits" / str(batch - 1)).write_text("v1\n{}")
    found = read_progress(str(tmp_path), "a")
    assert found is not None
    assert (found.batch, found.rows, found.offsets) == (10, None, ({"index": 10}, None))
    for batch, rows in ((9, None), (10, 70)):  # a note of an older batch says nothing of this one
        note_batch(str(tmp_path), "a", batch, 7 * batch)
        found = read_progress(str(tmp_path), "a")
        assert found is not None
        assert found.rows == rows
    (tmp_path / "batches" / "a.json").write_text("7")
    with pytest.raises(CorruptError, match="not a batch's rows"):
        read_progress(str(tmp_path), "a")
    (home / "offsets" / "10").write_text("v1\n{}\n{")
    with pytest.raises(CorruptError, match="not a batch's offsets"):
        read_progress(str(tmp_path), "a")
