import json
from pathlib import Path

from tests.cli.conftest import Run
from tests.cli.kv.stores import make_store


def test_snapshots_come_and_go(tmp_path: Path, run: Run) -> None:
    url = make_store(tmp_path / "kv")
    made = json.loads(run("kv", "snapshot", url, "create", "--ttl", "2h", "--json").stdout)
    assert made["expired"] is False
    printed = run("kv", "snapshot", url, "create", "--forever", "--at", made["manifest_id"]).stdout
    assert printed.endswith(f"keeps manifest {made['manifest_id']} until it is dropped\n")
    forever = printed.split()[0]
    extended = json.loads(
        run("kv", "snapshot", url, "extend", made["id"], "--ttl", "4h", "--json").stdout
    )
    assert extended["expires_ms"] > made["expires_ms"]
    lines = run("kv", "snapshot", url, "list", "--json").stdout.splitlines()
    listed = [json.loads(line) for line in lines]
    assert [each["id"] for each in listed] == [made["id"], forever]
    assert "never" in run("kv", "snapshot", url, "list").stdout
    plan = run("kv", "snapshot", url, "drop", made["id"], forever)
    assert plan.stdout.count("would drop") == 2
    assert run("kv", "snapshot", url, "list", "--json").stdout.count("\n") == 2
    dropped = run("kv", "snapshot", url, "drop", made["id"], forever, "--apply")
    assert dropped.stdout.count("dropped") == 2
    assert run("kv", "snapshot", url, "list", "--json").stdout == ""


def test_invalid_arguments_are_refused(tmp_path: Path, run: Run) -> None:
    url = make_store(tmp_path / "kv")
    strange = "00000000-0000-0000-0000-000000000000"
    for words, why in [
        (["create", "--ttl", "1h", "--forever"], "either --ttl DURATION or --forever"),
        (["create", "--ttl", "soon"], "not a duration"),
        (["create", "--ttl", "0s"], "invalid ttl_ms 0"),
        (["create", "--at", "1"], "manifest 1 is not active"),
        (["extend", strange], "either --ttl"),
        (["extend", strange, "--ttl", "1h"], f"no snapshot {strange}"),
        (["drop", strange], f"no snapshot {strange}"),
        (["drop", "x"], "x"),
    ]:
        result = run("kv", "snapshot", url, *words)
        assert (result.exit_code, why in result.stderr) == (1, True), result.stderr
        assert result.stderr.count("\n") == 1
    assert run("kv", "snapshot", url, "list", "--json").stdout == ""
