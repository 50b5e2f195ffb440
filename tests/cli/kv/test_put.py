import json
import os
from base64 import b64encode
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cli.conftest import WAIT_SECONDS, Run, start
from tests.cli.kv.stores import PAIRS, make_store, open_db, rows

import holdfast
from holdfast.errors import FencedError


def test_what_was_put_is_there(tmp_path: Path, run: Run) -> None:
    url = tmp_path / "kv?"  # in a path that is a name, in an address a query
    made = run("kv", "create", url)
    assert made.stdout == f"created {url}: an empty kv store\n"
    assert run("kv", "put", url, "a", "1", "b", "", "--", "--c", "-3").stdout == "put 3 keys\n"
    assert rows(url) == {b"a": b"1", b"b": b"", b"--c": b"-3"}
    assert run("kv", "delete", url, "b", "none").stdout == "deleted 2 keys\n"
    assert rows(url) == {b"a": b"1", b"--c": b"-3"}


def test_bytes_are_put_as_hex_and_base64(tmp_path: Path, run: Run) -> None:
    url = tmp_path / "kv"
    assert run("kv", "put", url, "00ff", "80", "--hex", "--create").exit_code == 0
    assert run("kv", "put", url, "AQ==", b64encode(b"\xfe").decode(), "--base64").exit_code == 0
    assert rows(url) == {b"\0\xff": b"\x80", b"\1": b"\xfe"}
    assert run("kv", "delete", url, "01", "--hex").exit_code == 0
    assert rows(url) == {b"\0\xff": b"\x80"}


def test_a_value_comes_from_a_file_or_from_stdin(tmp_path: Path, run: Run) -> None:
    url, file = make_store(tmp_path / "kv"), tmp_path / "value"
    file.write_bytes(b"\xff\n\0")
    assert run("kv", "put", url, "k", "--file", file).exit_code == 0
    assert run("kv", "put", url, "l", "-", stdin="from\nhere\n").exit_code == 0
    assert rows(url) == {**PAIRS, b"k": b"\xff\n\0", b"l": b"from\nhere\n"}


def test_json_lines_are_put_in_batches_and_null_deletes(tmp_path: Path, run: Run) -> None:
    url, file = make_store(tmp_path / "kv"), tmp_path / "lines"
    lines = [
        {"key": "é", "value": "x", "seq": 7},
        {"key_hex": "ff00", "value_base64": "gA=="},
        {"key": "user/1", "value": None},
    ]
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    result = run("kv", "put", url, "--file", file, "--batch", 2, "--json")
    acknowledged = [json.loads(line) for line in result.stdout.splitlines()]
    assert [batch["count"] for batch in acknowledged] == [2, 1]
    assert acknowledged[1]["last_seq"] == acknowledged[0]["last_seq"] + 1
    expected = {**PAIRS, "é".encode(): b"x", b"\xff\0": b"\x80"}
    del expected[b"user/1"]
    assert rows(url) == expected


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "input line 2 is not JSON"),
        ("[" * 100_000, "input line 2 is not JSON"),
        ("[1]", "input line 2 has no key"),
        ('{"value": "a"}', "input line 2 has no key"),
        ('{"key": "a"}', "input line 2 has no value"),
        ('{"key": "a", "val": "b"}', "input line 2 has no value"),
        ('{"key": null, "value": "b"}', "input line 2: key is null"),
        ('{"key": "a", "value": 7}', "input line 2: value is int, not text"),
        ('{"key": "a", "key_hex": "61", "value": ""}', "has both key and key_hex"),
        ('{"key_hex": "6", "value": ""}', "input line 2: key_hex '6' is not hexadecimal"),
        ('{"key_base64": "=", "value": ""}', "is not base64"),
        (r'{"key": "\ud800", "value": ""}', "surrogates not allowed"),
        ('{"key": "", "value": ""}', "the key has 0 bytes"),
        ('{"key": "' + "k" * 70_000 + '", "value": ""}', "the key has 70000 bytes"),
    ],
)
def test_an_invalid_line_raises_and_the_lines_before_it_stay(
    line: str, why: str, tmp_path: Path, run: Run
) -> None:
    url, file = tmp_path / "kv", tmp_path / "lines"
    file.write_text('{"key": "good", "value": "1"}\n' + line + '\n{"key": "after", "value": ""}\n')
    result = run("kv", "put", url, "--create", "--batch", 1, "--file", file)
    assert (result.exit_code, result.stdout) == (1, "put 1 key\n")
    assert why in result.stderr
    assert result.stderr.count("\n") == 1
    assert rows(url) == {b"good": b"1"}


def test_wrong_usage_writes_nothing(tmp_path: Path, run: Run) -> None:
    url = make_store(tmp_path / "kv")
    file = tmp_path / "value"
    file.write_bytes(b"x")
    cases: list[tuple[list[object], str]] = [
        (["a"], "has no VALUE"),
        (["a", "b", "--file", file], "give one KEY"),
        (["a", "-", "b", "-"], "only one VALUE"),
        (["zz", "00", "--hex"], "key 'zz' is not hexadecimal"),
        (["YQ", "YQ==", "--base64"], "key 'YQ' is not base64"),
        (["aa", "bb", "--hex", "--base64"], "exclude each other"),
        (["--hex"], "key_hex"),
        (["k", "--file", tmp_path / "none"], "No such file"),
        (["", "x"], "the key has 0 bytes"),
    ]
    for words, why in cases:
        result = run("kv", "put", url, *words)
        assert (result.exit_code, why in result.stderr) == (1, True), result.stderr
    assert rows(url) == PAIRS


def test_a_store_is_made_only_when_asked_and_not_among_other_files(
    tmp_path: Path, run: Run
) -> None:
    url = tmp_path / "kv"
    result = run("kv", "put", url, "a", "1")
    assert result.exit_code == 1
    assert f"`holdfast kv create {url}` creates one" in result.stderr
    assert not url.exists()
    assert run("kv", "create", url, "--gc-min-age", "1s", "--json").exit_code == 0
    assert "a kv store exists already" in run("kv", "create", url).stderr
    with holdfast.create_log(tmp_path / "log"):
        pass
    for verb in (["create"], ["put", "--create"]):
        result = run("kv", *verb, tmp_path / "log", *(["a", "b"] if verb[0] == "put" else []))
        assert result.exit_code == 1
        assert "foreign file" in result.stderr
    for address in ("memory://x", "", "ftp://x/y", "s3://", "az://container/kv?nonsense=1"):
        result = run("kv", "put", address, "a", "b")
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.stderr


def test_a_writer_that_was_taken_over_from_exits_with_four(tmp_path: Path) -> None:
    url = make_store(tmp_path / "kv")
    with start("kv", "put", url, "--json") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b'{"key": "mine", "value": "1"}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["count"] == 1
        with open_db(url) as db:
            process.stdin.write(b'{"key": "late", "value": "2"}\n')
            process.stdin.close()
            assert process.wait(WAIT_SECONDS) == 4
            assert json.loads(process.stderr.read())["error"] == "fenced"
            assert db.get(b"mine") == b"1"
            assert db.get(b"late") is None
    assert rows(url) == {**PAIRS, b"mine": b"1"}


def test_many_puts_leave_a_short_wal(tmp_path: Path, run: Run) -> None:
    url = tmp_path / "kv"
    for number in range(8):
        result = run("kv", "put", url, f"k{number}", "1", "--create")
        assert (result.stdout, result.stderr) == ("put 1 key\n", "")
    status = json.loads(run("kv", "inspect", url, "--json").stdout)
    assert status["wal"]["objects"] < 4
    assert len(rows(url)) == 8


@pytest.mark.parametrize("words", [("put", "a", "1"), ("delete", "a")])
def test_a_live_writer_is_not_taken_over_unless_asked(
    tmp_path: Path, run: Run, words: tuple[str, ...]
) -> None:
    url, (verb, *rest) = tmp_path / "kv", words
    with open_db(url) as db:
        db.put(b"mine", b"1").result()
        result = run("kv", verb, url, *rest, "--json")
        assert result.exit_code == 1
        error = json.loads(result.stderr)
        assert error["error"] == "locked"
        assert "--take-over" in error["message"]
        assert f"pid {os.getpid()}" in error["message"]
        assert db.put(b"mine", b"2").result()  # it writes on
        assert run("kv", verb, url, *rest, "--take-over").exit_code == 0
        with pytest.raises(FencedError):
            db.put(b"mine", b"3").result()
        with suppress(FencedError):
            db.close()
    assert run("kv", verb, url, *rest).exit_code == 0
