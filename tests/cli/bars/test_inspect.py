"""How a store fares: inspect and verify, on sound roots, damaged ones and hostile files."""

import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Run, flip, log_of, minute_bars

from holdfast.doors import open_bars
from holdfast.formats.year_file import HEADER_SIZE

ARCHIVE = Path(__file__).parents[2] / "golden/market_wal/marketstore.tar.xz"
BARS, TICKS = "A/1Min/OHLCV/2024.bin", "A/1Min/TICK/2024.bin"
FIRST = 1440 + 14 * 60 + 30  # the interval of 2024-01-02 14:30, from 0


def test_inspect_summarizes_a_store(killed: Path, run: Run) -> None:
    page = run("bars", "inspect", killed)
    assert page.exit_code == 0
    assert "1Min/OHLCV: bars of 2 symbols, 2024..2024; Open f8, High f8" in page.stdout
    assert "groups to write back  2" in page.stdout
    report = json.loads(run("bars", "inspect", killed, "--json").stdout)
    assert (report["verdict"], report["symbols"], report["year_files"]) == ("clean", 2, 3)
    assert report["logs"][0]["committed"] == 2
    text = run("bars", "inspect", killed, "--prometheus").stdout
    assert f'holdfast_bars_waiting_groups{{path="{killed}"}} 2\n' in text


def test_a_log_message_by_message(killed: Path, run: Run) -> None:
    log = log_of(killed)
    report = json.loads(run("bars", "inspect", log, "--json").stdout)
    kinds = [(message["kind"], message["text"]) for message in report["messages"]]
    assert kinds[:3] == [
        *(("info", "log: preparing"), ("group", "1 rows, 1 files"), ("info", "log: complete"))
    ]
    assert report["messages"][1]["sets"][0] == {"path": BARS, "kind": "bars", "rows": 1}
    assert f"{BARS}: 1 bars" in run("bars", "inspect", log).stdout
    flip(log, log.read_bytes().index(b"A/1Min"))
    assert run("bars", "inspect", log).exit_code == 2
    log.write_bytes(log.read_bytes()[:11])
    assert run("bars", "inspect", log).exit_code == 0
    log.write_bytes(b"\0")
    assert run("bars", "inspect", log).exit_code == 3


def test_logs_of_marketstore_itself(tmp_path: Path, run: Run) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    logs = sorted(tmp_path.glob("*/wals/*.walfile"))
    assert logs
    groups = 0
    for log in logs[:20]:
        result = run("bars", "inspect", log, "--json")
        assert result.exit_code in (0, 2, 3), result.stderr
        report = json.loads(result.stdout)
        assert report["dialect"] == "marketstore"
        groups += sum(message["kind"] == "group" for message in report["messages"])
    assert groups


def test_one_year_file(root: Path, run: Run) -> None:
    report = json.loads(run("bars", "inspect", root / TICKS, "--json").stdout)
    assert (report["year"], report["kind"], report["rows"]) == (2024, "ticks", 2)
    assert report["columns"] == {"Price": "f8"}
    elsewhere = root / "copied.bin"
    elsewhere.write_bytes((root / BARS).read_bytes())
    page = run("bars", "inspect", elsewhere)
    assert (page.exit_code, "rows         10\n" in page.stdout) == (0, True)
    elsewhere.write_bytes(b"no year")
    assert run("bars", "inspect", elsewhere).exit_code == 2


def test_a_sound_store_is_clean(root: Path, killed: Path, run: Run) -> None:
    assert run("bars", "verify", root).stdout == (
        f"{root}: clean (3 year files, 15 rows; 0 WAL files, 0 groups)\n"
    )
    lines = run("bars", "verify", root, killed, "--json").stdout.splitlines()
    both = [json.loads(line) for line in lines]
    assert [report["verdict"] for report in both] == ["clean", "clean"]
    assert both[1]["groups"] == 2


DAMAGE = {
    "a version": (BARS, 0, "version"),
    "a year": (BARS, 264, "year"),
    "a type": (BARS, 33080, "type"),
    "a record's index": (BARS, HEADER_SIZE + FIRST * 48, "says it is that of"),
    "an index in a hole": (BARS, HEADER_SIZE + 9 * 48 + 1, "interval 10 says"),
    "a slot's offset": (TICKS, HEADER_SIZE + FIRST * 24 + 14, "points to"),
    "a slot's length": (TICKS, HEADER_SIZE + FIRST * 24 + 16, "points to"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_found_where_it_is(root: Path, run: Run, case: str) -> None:
    name, offset, why = DAMAGE[case]
    flip(root / name, offset)
    result = run("bars", "verify", root)
    assert result.exit_code == 2
    assert why in result.stdout
    report = json.loads(run("bars", "verify", root, "--json").stdout)
    assert [one["name"] for one in report["year_files"] if one["verdict"] == "corrupt"] == [name]


def test_a_year_file_that_is_cut_or_of_other_columns(root: Path, run: Run) -> None:
    file = root / BARS
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert "cut to" in run("bars", "verify", root).stdout
    file.write_bytes(whole + b"more")
    assert "after the last record" in run("bars", "verify", root).stdout
    file.write_bytes(whole)
    with open_bars(root, create=True) as store:
        times = {"time": np.array([1735828200 * 10**9]), "Price": [1.0]}
        store.write(times, "1Min", "OTHER", symbol="A")
    (root / "A/1Min/OTHER/2025.bin").rename(root / "A/1Min/OHLCV/2025.bin")
    assert "other columns than an earlier year" in run("bars", "verify", root).stdout
    (root / "A/1Min").rename(root / "A/5Min")
    assert "of another timeframe" in run("bars", "verify", root).stdout


def test_payloads_that_overlap(root: Path, run: Run) -> None:
    run("bars", "write", root, "A/1Min/TICK", "2024-01-02T14:31,5")
    data = bytearray((root / TICKS).read_bytes())
    first = HEADER_SIZE + FIRST * 24
    data[first + 24 + 8 : first + 24 + 24] = data[first + 8 : first + 24]
    (root / TICKS).write_bytes(data)
    assert "overlap" in run("bars", "verify", root).stdout


def test_a_torn_tail_and_damage_in_logs(killed: Path, run: Run) -> None:
    log = log_of(killed)
    with log.open("ab") as file:
        file.write(b"\0torn")
    for verb in ("verify", "inspect"):
        result = run("bars", verb, killed)
        assert (result.exit_code, "torn write of 5 bytes" in result.stdout) == (3, True)
    flip(log, log.read_bytes().index(b"A/1Min"))
    for verb in ("verify", "inspect"):
        result = run("bars", verb, killed)
        assert (result.exit_code, "checksum" in result.stdout) == (2, True)


def test_records_that_the_log_will_write_again_are_not_damage(killed: Path, run: Run) -> None:
    flip(killed / BARS, HEADER_SIZE + FIRST * 48)  # the bar that waits in the log is this one
    assert run("bars", "verify", killed).exit_code == 0
    assert run("bars", "query", killed, "A/1Min/OHLCV").exit_code == 0
    (killed / "C/1Min/OHLCV").mkdir(parents=True)
    (killed / "C/1Min/OHLCV/2024.bin").write_bytes(b"half a header")
    for verb in ("verify", "inspect"):
        assert run("bars", verb, killed).exit_code == 0, verb
    assert run("bars", "flush", killed).exit_code == 0
    assert run("bars", "verify", killed).exit_code == 0


def test_beside_a_live_owner(root: Path, run: Run) -> None:
    with open_bars(root, create=True) as store:
        store.write(minute_bars("A", 5, 7), "1Min", "OHLCV")
        report = json.loads(run("bars", "inspect", root, "--json").stdout)
        assert (report["owner"]["alive"], report["waiting"]) == (True, 1)
        assert run("bars", "verify", root).exit_code == 0


def test_a_path_that_is_not_a_store(tmp_path: Path, path: Path, run: Run) -> None:
    for verb in ("inspect", "verify"):
        assert run("bars", verb, tmp_path / "none").exit_code == 1
        assert "no bar store at" in run("bars", verb, path).stderr


Fail = Callable[[str], None]


def test_a_year_file_that_cannot_be_read_is_named_and_the_rest_is_verified(
    root: Path, run: Run, unreadable: Fail
) -> None:
    (file, other) = sorted(path for path in root.rglob("2024.bin") if "OHLCV" in str(path))
    unreadable("/".join(file.parts[-4:]))
    result = run("bars", "verify", root)
    assert result.exit_code == 5, result.output
    assert "cannot be read: Permission denied" in result.stdout
    assert result.stdout.splitlines()[-1].startswith(f"{root}: unreadable (")
    flip(other, HEADER_SIZE)
    assert run("bars", "verify", root).exit_code == 2  # damage is graver
