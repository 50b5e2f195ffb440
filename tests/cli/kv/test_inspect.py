import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run
from tests.cli.kv.stores import PAIRS, make_store, names, open_db

from holdfast.bucket import DirectoryBucket
from holdfast.errors import UnavailableError


def facts_of(text: str) -> dict[str, str]:
    pairs = (line.split("  ", 1) for line in text.splitlines())
    return {name.strip(): value.strip() for name, value in pairs}


def test_stats_are_one_page_and_write_nothing(tmp_path: Path, run: Run) -> None:
    url = make_store(tmp_path / "kv")
    run("kv", "snapshot", url, "create")
    before = names(url)
    facts = facts_of(run("kv", "inspect", url).stdout)
    assert facts["epochs"] == "writer 1, compactor 0"
    assert facts["rows"] == str(len(PAIRS))
    assert facts["WAL"].startswith("2 SSTs, ")
    assert facts["WAL"].endswith(f"{len(PAIRS)} rows, 1 fence")
    assert facts["snapshots"] == "1"
    assert facts["garbage"].endswith("more younger than 5m")
    assert names(url) == before


def test_stats_as_json_and_for_prometheus_agree(tmp_path: Path, run: Run) -> None:
    url = make_store(tmp_path / "kv")
    run("kv", "compact", url, "--everything")
    stats = json.loads(run("kv", "inspect", url, "--json").stdout)
    assert stats["url"] == str(url)
    lines = run("kv", "inspect", url, "--prometheus").stdout.splitlines()
    metrics = dict(line.rsplit(" ", 1) for line in lines if line[0] != "#")
    assert metrics[f'holdfast_kv_runs_rows{{store="{url}"}}'] == str(stats["runs"]["rows"]) == "4"
    assert metrics[f'holdfast_kv_manifest_id{{store="{url}"}}'] == str(stats["manifest_id"])
    assert run("kv", "inspect", url, "--prometheus", "--json").exit_code == 1


def test_manifests_are_listed_and_shown(tmp_path: Path, run: Run) -> None:
    url = make_store(tmp_path / "kv")
    run("kv", "compact", url, "--everything")
    kept = json.loads(run("kv", "snapshot", url, "create", "--json").stdout)
    with open_db(url) as db:
        db.put(b"x", b"y").result()
    lines = run("kv", "manifest", url, "list", "--json").stdout.splitlines()
    listed = [json.loads(line) for line in lines]
    states = {each["id"]: each["state"] for each in listed}
    assert states[kept["manifest_id"]] == "kept"
    assert list(states.values()).count("current") == 1
    title, *rows = run("kv", "manifest", url, "list").stdout.splitlines()
    assert title.split() == ["ID", "STATE", "SIZE", "WRITTEN"]
    assert len(rows) == len(listed)

    text = run("kv", "manifest", url, "show", "--id", kept["manifest_id"], "--ssts").stdout
    assert text.startswith(f"manifest {kept['manifest_id']}\n  writer epoch 1, compactor epoch 1\n")
    assert kept["id"] in text
    assert "  sst " in text
    assert "user/1" in text
    shown = json.loads(run("kv", "manifest", url, "show", "--json").stdout)
    assert shown["writer_epoch"] == 2
    (level,) = shown["levels"]
    assert (level["kind"], level["rows"], level["sst_count"]) == ("run", 4, 1)
    assert (level["first_key"], level["last_key"]) == ("user/1", "vat")
    absent = run("kv", "manifest", url, "show", "--id", 99, "--json")
    assert (absent.exit_code, json.loads(absent.stderr)["error"]) == (1, "absent")
    assert "no kv store here" in run("kv", "manifest", tmp_path / "none", "show").stderr


def test_verify_reads_everything(tmp_path: Path, run: Run) -> None:
    url = make_store(tmp_path / "kv")
    result = run("kv", "verify", url)
    assert (result.exit_code, f"{url}: clean (1 manifest, 2 SSTs, 4 rows" in result.stdout) == (
        0,
        True,
    ), result.stdout
    assert json.loads(run("kv", "verify", url, "--json").stdout)["verdict"] == "clean"


Fail = Callable[[str], None]


def test_an_sst_that_cannot_be_read_is_named_and_the_rest_is_verified(
    tmp_path: Path, run: Run, unreadable: Fail
) -> None:
    url = make_store(tmp_path / "kv")
    fence, wal = sorted((url / "wal").iterdir())
    unreadable(wal.name)
    result = run("kv", "verify", url)
    assert result.exit_code == 5
    assert result.stdout.startswith(f"wal/{wal.name}: ")
    assert "Permission denied" in result.stdout
    assert result.stdout.splitlines()[-1].startswith(f"{url}: unreadable (")
    document = json.loads(run("kv", "verify", url, "--json").stdout)
    assert (document["verdict"], document["problems"]) == ("unreadable", [])
    assert [one["name"] for one in document["unreadable"]] == [f"wal/{wal.name}"]
    fence.write_bytes(b"")
    assert run("kv", "verify", url).exit_code == 2  # damage is graver


def test_a_manifest_of_a_snapshot_that_cannot_be_read_is_named(
    tmp_path: Path, run: Run, unreadable: Fail
) -> None:
    url = make_store(tmp_path / "kv")
    kept = json.loads(run("kv", "snapshot", url, "create", "--json").stdout)["manifest_id"]
    run("kv", "compact", url, "--everything")
    (name,) = (name for name in names(url) if f"{kept:020d}" in name and "manifest" in name)
    unreadable(name)
    result = run("kv", "verify", url)
    assert (result.exit_code, result.stdout.startswith(f"{name}: ")) == (5, True)


def test_a_store_that_does_not_answer_is_unreadable(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = make_store(tmp_path / "kv")

    def no_answer(self: DirectoryBucket, *words: Any, **more: Any) -> Any:
        raise UnavailableError("the store did not answer")

    monkeypatch.setattr(DirectoryBucket, "list", no_answer)
    result = run("kv", "verify", url, "--json")
    assert (result.exit_code, result.stderr) == (5, "")
    assert json.loads(result.stdout)["verdict"] == "unreadable"


def test_a_missing_store_is_not_a_verdict(tmp_path: Path, run: Run) -> None:
    result = run("kv", "verify", tmp_path / "none")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "`holdfast kv create" in result.stderr


def test_a_noun_without_a_verb_shows_what_there_is(tmp_path: Path, run: Run) -> None:
    url = tmp_path / "kv"
    assert run("kv", "put", url, "a", "1", "--create").exit_code == 0
    shown = run("kv", "manifest", url)
    assert (shown.exit_code, shown.stdout) == (0, run("kv", "manifest", url, "show").stdout)
    assert "writer epoch 1" in shown.stdout
    listed = run("kv", "snapshot", url)
    assert (listed.exit_code, listed.stdout) == (0, run("kv", "snapshot", url, "list").stdout)


@pytest.mark.parametrize("verb", ["inspect", "verify", "scan", "gc", "compact", "create"])
def test_credentials_of_an_address_are_never_printed(run: Run, verb: str) -> None:
    for url in ("s3://key:hidden@bucket/x", "ftp://hidden@h/x?x=hidden"):
        result = run("kv", verb, url)
        assert result.exit_code == 1
        assert "hidden" not in result.output
        assert result.stderr.count(url.partition("@")[2].partition("?")[0]) <= 2
