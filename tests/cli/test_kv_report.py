import json
from pathlib import Path

from tests.cli.conftest import Run
from tests.cli.kv_stores import PAIRS, make_store, names, open_db


def facts_of(text: str) -> dict[str, str]:
    pairs = (line.split("  ", 1) for line in text.splitlines())
    return {name.strip(): value.strip() for name, value in pairs}


def test_stats_are_one_page_and_write_nothing(tmp_path: Path, run: Run) -> None:
    url = make_store(tmp_path / "kv")
    run("kv", "snapshot", url, "create")
    before = names(url)
    facts = facts_of(run("kv", "stats", url).stdout)
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
    stats = json.loads(run("kv", "stats", url, "--json").stdout)
    assert stats["url"] == str(url)
    lines = run("kv", "stats", url, "--prometheus").stdout.splitlines()
    told = dict(line.rsplit(" ", 1) for line in lines if line[0] != "#")
    assert told[f'holdfast_kv_runs_rows{{store="{url}"}}'] == str(stats["runs"]["rows"]) == "4"
    assert told[f'holdfast_kv_manifest_id{{store="{url}"}}'] == str(stats["manifest_id"])
    assert run("kv", "stats", url, "--prometheus", "--json").exit_code == 1


def test_manifests_are_listed_and_shown(tmp_path: Path, run: Run) -> None:
    url = make_store(tmp_path / "kv")
    run("kv", "compact", url, "--everything")
    kept = json.loads(run("kv", "snapshot", url, "create", "--json").stdout)
    with open_db(url) as db:
        db.put(b"x", b"y").result()
    listed = json.loads(run("kv", "manifest", url, "list", "--json").stdout)
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
    assert json.loads(run("kv", "verify", url, "--json").stdout)["sound"] is True
