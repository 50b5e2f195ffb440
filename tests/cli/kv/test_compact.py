import json
from pathlib import Path

from tests.cli.conftest import Run
from tests.cli.kv.stores import PAIRS, make_store, names, open_db, rows

from holdfast.bucket import DirectoryBucket
from holdfast.cli.output import PLANNED
from holdfast.kv.cas import TwoPhaseBucket, open_records
from holdfast.kv.compaction import Compactor


def make_garbage(path: Path) -> Path:
    """A store with things to compact and to collect, none of them too young."""
    make_store(path, gc_min_age_ms=0)
    for value in (b"1", b"2"):
        with open_db(path) as db:
            db.put(b"user/1", value).result()
    return path


def test_compaction_makes_one_run_and_changes_nothing(tmp_path: Path, run: Run) -> None:
    url = make_garbage(tmp_path / "kv")
    before = rows(url)
    quiet = run("kv", "compact", url)
    assert quiet.stdout == "nothing to compact; --everything makes one run\n"
    done = json.loads(run("kv", "compact", url, "--everything", "--json").stdout)
    assert done["steps"] == 2
    assert done["rows_written"] == 2 * len(PAIRS)  # to L0, and from there to the run
    assert rows(url) == before
    stats = json.loads(run("kv", "inspect", url, "--json").stdout)
    assert (stats["run_count"], stats["l0"]["objects"], stats["wal"]["objects"]) == (1, 0, 0)
    assert stats["everything"]["rows"] == len(before)
    assert run("kv", "compact", url, "--everything").stdout == "nothing to compact\n"


def test_gc_shows_a_plan_and_deletes_with_apply(tmp_path: Path, run: Run) -> None:
    url = make_garbage(tmp_path / "kv")
    run("kv", "compact", url, "--everything")
    before, state = names(url), rows(url)
    shown = run("kv", "gc", url)
    assert "manifests that no snapshot needs" in shown.stdout
    assert shown.stdout.endswith("nothing was changed; --apply carries it out\n")
    plan = json.loads(run("kv", "gc", url, "--json").stdout)
    assert (plan["applied"], names(url)) == (False, before)
    applied = run("kv", "gc", url, "--apply")
    assert "deleted" in applied.stdout, applied.stderr
    assert {each["name"] for each in plan["garbage"]}.isdisjoint(names(url))
    assert len(names(url)) < len(before)
    assert rows(url) == state
    again = json.loads(run("kv", "gc", url, "--apply", "--json").stdout)
    assert (again["applied"], again["counts"]) == (True, {})


def test_gc_leaves_what_is_young(tmp_path: Path, run: Run) -> None:
    url = make_store(tmp_path / "kv")
    run("kv", "compact", url, "--everything")
    before = names(url)
    assert "deleted 0 objects" in run("kv", "gc", url, "--apply").stdout
    assert names(url) == before


def test_gc_deletes_nothing_if_it_cannot_know(tmp_path: Path, run: Run) -> None:
    url = make_garbage(tmp_path / "kv")
    kept = json.loads(run("kv", "snapshot", url, "create", "--forever", "--json").stdout)
    run("kv", "put", url, "x", "y")
    file = url / "manifest" / f"{kept['manifest_id']:020}.manifest"
    file.write_bytes(b"rotten")
    before = names(url)
    for options in ([], ["--apply"]):
        result = run("kv", "gc", url, *options)
        assert (result.exit_code, file.name in result.stderr) == (2, True)
    assert names(url) == before


def test_a_compactor_that_was_taken_over_from_exits_with_four(
    tmp_path: Path, run: Run, monkeypatch: object
) -> None:
    url = make_garbage(tmp_path / "kv")
    commit = Compactor.commit

    def late(self: Compactor, *args: object) -> object:
        Compactor(DirectoryBucket(url))  # another takes over while we merge
        return commit(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Compactor, "commit", late)  # type: ignore[attr-defined]
    result = run("kv", "compact", url, "--everything", "--json")
    assert (result.exit_code, json.loads(result.stderr)["error"]) == (4, "fenced")


def test_repair_plans_and_finishes_two_phase_writes(tmp_path: Path, run: Run) -> None:
    url = make_store(tmp_path / "kv")
    result = run("kv", "repair", url)
    assert (result.exit_code, result.stdout.startswith("nothing to repair")) == (0, True)
    before = names(url)
    other = run("kv", "repair", url, "--apply", "--cas", f"sqlite:{tmp_path / 'none.db'}")
    assert (other.exit_code, "no two-phase writes" in other.stderr) == (1, True)
    assert names(url) == before
    url, address = tmp_path / "careful", f"sqlite:{tmp_path / 'records.db'}"
    assert run("kv", "put", url, "a", "1", "--create", "--cas", address).exit_code == 0
    records = open_records(address, f"file://{url}")
    careless = DirectoryBucket(url)
    name = "wal/00000000000000000099.sst"
    source = f"{name}.{'0' * 32}.{0:08x}"
    careless.put_if_absent(source, b"a write whose process died before the copy")
    records.insert(name, source, TwoPhaseBucket(careless, records)._records.epoch())
    records.close()
    before = names(url)
    plan = run("kv", "repair", url, "--cas", address)
    assert plan.exit_code == 0
    assert plan.stdout.splitlines() == [f"unfinished: {name}", PLANNED]
    assert names(url) == before
    assert name not in before
    result = run("kv", "repair", url, "--apply", "--cas", address, "--json")
    expected = {"applied": True, "unfinished": [name]}
    assert json.loads(result.stdout) == expected, result.stderr
    assert name in names(url)
    for options in ([], ["--apply"]):
        again = run("kv", "repair", url, "--cas", address, *options)
        assert again.stdout == "no write was unfinished\n"
