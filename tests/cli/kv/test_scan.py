import json
from pathlib import Path

import pytest
from tests.cli.conftest import WAIT_SECONDS, Run, start
from tests.cli.kv.stores import PAIRS, make_store, names, open_db, rows


@pytest.fixture
def url(tmp_path: Path) -> Path:
    return make_store(tmp_path / "kv")


def test_get_is_the_bytes_and_nothing_else(url: Path, run: Run) -> None:
    before = names(url)
    assert run("kv", "get", url, "user/1").stdout_bytes == b"Ada"
    assert run("kv", "get", url, "vat").stdout_bytes == b""
    assert run("kv", "get", url, b"user/\xff".hex(), "--hex").stdout == "0080\n"
    assert run("kv", "get", url, "dXNlci8x", "--base64").stdout == "QWRh\n"
    assert json.loads(run("kv", "get", url, "user/1", "--json").stdout)["value"] == "Ada"
    assert names(url) == before


def test_a_missing_key_differs_from_a_missing_store(url: Path, run: Run) -> None:
    result = run("kv", "get", url, "user/3", "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert json.loads(result.stderr) == {"error": "absent", "message": "no key user/3"}
    result = run("kv", "get", url.with_name("none"), "user/3", "--json")
    assert (result.exit_code, json.loads(result.stderr)["error"]) == (1, "not_found")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], b"user/1\tAda\nuser/2\tBob\nuser/\\xff\t\\x00\\x80\nvat\t\n"),
        (["--prefix", "user/", "--limit", 2], b"user/1\tAda\nuser/2\tBob\n"),
        (["--start", "user/2", "--stop", "v", "--keys-only"], b"user/2\nuser/\\xff\n"),
        (["--reverse", "--limit", 1, "--keys-only"], b"vat\n"),
        (["--limit", 0], b""),
        (["--prefix", "nothing"], b""),
        (["--start", "y", "--stop", "z"], b""),
        (["--raw"], b"user/1\tAda\nuser/2\tBob\nuser/\xff\t\0\x80\nvat\t\n"),
        (["--raw", "--keys-only", "--prefix", "v"], b"vat\n"),
        (["--hex", "--prefix", "76"], b"766174\t\n"),
        (["--base64", "--start", "dmF0"], b"dmF0\t\n"),
    ],
)
def test_scan_shows_what_is_asked_for(
    options: list[object], expected: bytes, url: Path, run: Run
) -> None:
    before = names(url)
    result = run("kv", "scan", url, *options)
    assert (result.exit_code, result.stdout_bytes) == (0, expected), result.stderr
    assert names(url) == before


def test_what_scan_prints_put_and_load_take(url: Path, tmp_path: Path, run: Run) -> None:
    lines, other, third = tmp_path / "rows.jsonl", tmp_path / "other", tmp_path / "third"
    lines.write_bytes(run("kv", "scan", url, "--json").stdout_bytes)
    assert json.loads(lines.read_text().splitlines()[0]) == {
        "key": "user/1",
        "value": "Ada",
        "seq": 1,
    }
    assert run("kv", "put", other, "--create", "--file", lines).exit_code == 0
    assert run("kv", "load", third, "--create", lines).exit_code == 0
    assert rows(other) == rows(third) == PAIRS


def test_older_states_can_be_read(url: Path, run: Run) -> None:
    kept = json.loads(run("kv", "snapshot", url, "create", "--json").stdout)
    with open_db(url) as db:
        db.put(b"user/1", b"Augusta").result()
    for options in (["--at", kept["manifest_id"]], ["--snapshot", kept["id"]]):
        assert run("kv", "get", url, "user/1", *options).stdout == "Ada"
        shown = run("kv", "scan", url, "--limit", 1, "--pin", *options)
        assert shown.stdout == "user/1\tAda\n", shown.stderr
    assert run("kv", "get", url, "user/1").stdout == "Augusta"
    result = run("kv", "scan", url, "--at", 99)
    assert (result.exit_code, "manifest 99 is not active" in result.stderr) == (1, True)
    strange = "00000000-0000-0000-0000-000000000000"
    assert "no snapshot 0" in run("kv", "scan", url, "--snapshot", strange).stderr
    both = run("kv", "scan", url, "--snapshot", strange, "--at", 1)
    assert "exclude each other" in both.stderr
    assert run("kv", "scan", url, "--snapshot", "7").exit_code == 1


def test_damage_exits_with_two(url: Path, run: Run) -> None:
    assert run("kv", "compact", url, "--everything").exit_code == 0
    shown = json.loads(run("kv", "manifest", url, "show", "--ssts", "--json").stdout)
    sst = url / "levels" / f"{shown['levels'][0]['ssts'][0]['id']:020}.sst"
    data = bytearray(sst.read_bytes())
    data[data.index(b"Ada")] ^= 1
    sst.write_bytes(data)
    for verb in (["get", "user/1"], ["scan"]):
        result = run("kv", verb[0], url, *verb[1:])
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"levels/{sst.name} at byte" in result.stderr
        assert "holdfast kv verify" in result.stderr
    result = run("kv", "verify", url)
    assert result.exit_code == 2
    assert result.stdout.startswith(f"levels/{sst.name}: ")
    sst.unlink()
    assert run("kv", "scan", url).exit_code == 2
    assert "missing" in run("kv", "verify", url, "--json").stdout


def test_a_manifest_that_rots_exits_with_two(url: Path, run: Run) -> None:
    newest = max((url / "manifest").iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    for verb in ("scan", "inspect", "gc", "compact", "verify"):
        result = run("kv", verb, url, "--json")
        assert (result.exit_code, json.loads(result.stderr)["error"]) == (2, "corrupt"), verb


def test_wrong_usage_is_refused(url: Path, run: Run) -> None:
    assert "exclude each other" in run("kv", "scan", url, "--raw", "--json").stderr
    assert "start 'zz' is not hex" in run("kv", "scan", url, "--hex", "--start", "zz").stderr
    assert run("kv", "get", url, "").exit_code == 1
    assert run("kv", "scan", url, "--limit", -1).exit_code == 1


def test_a_closed_pipe_ends_a_scan_without_an_error(url: Path) -> None:
    with open_db(url) as db:
        db.write({b"big/%05d" % i: b"x" * 1000 for i in range(3000)}).result()
    with start("kv", "scan", url) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"big/")
        process.stdout.close()
        assert process.wait(WAIT_SECONDS) == 141
        assert process.stderr.read() == b""
