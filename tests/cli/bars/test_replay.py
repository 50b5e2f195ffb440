"""Logs of previous owners: planned, then replayed; damage, torn tails, undecided groups."""

import json
from pathlib import Path

from tests.cli.conftest import NOBODYS, Run, copy, flip, log_of, minute_bars

from holdfast.bars import BarStore
from holdfast.disk import OsDisk
from holdfast.doors import open_bars, read_bars


def count(path: Path) -> int:
    with read_bars(path) as guest:
        rows: int = guest.query("*", "1Min", "OHLCV").num_rows
        return rows


def test_replay_prints_a_plan_and_apply_carries_it_out(killed: Path, run: Run) -> None:
    plan = run("bars", "replay", killed)
    assert plan.exit_code == 0
    assert "open, not replayed" in plan.stdout
    assert "write 2 groups to the year files, remove it" in plan.stdout
    assert log_of(killed).exists()
    done = run("bars", "replay", killed, "--apply")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (
        *(0, "done: 2 groups written to the year files"),
    )
    assert not list(killed.glob("WALFile.*"))
    assert (
        run("bars", "replay", killed).stdout
        == f"{killed}: no WAL files; all rows are in the year files\n"
    )
    assert count(killed) == 14


def test_a_live_owner_is_reported(root: Path, run: Run) -> None:
    with open_bars(root, create=True) as store:
        store.write(minute_bars("A", 1), "1Min", "OHLCV")
        plan = json.loads(run("bars", "replay", root, "--json").stdout)
        assert plan["logs"][0]["owner"]["alive"]
        assert "uses it" in plan["logs"][0]["action"]
        assert run("bars", "replay", root, "--apply").exit_code == 1


def test_a_torn_tail_is_kept_aside(killed: Path, run: Run) -> None:
    with log_of(killed).open("ab") as log:
        log.write(b"\0torn")
    plan = run("bars", "replay", killed, "--json")
    assert plan.exit_code == 3
    assert "torn write of 5 bytes" in json.loads(plan.stdout)["logs"][0]["torn"]["why"]
    done = run("bars", "replay", killed, "--apply")
    assert (done.exit_code, "kept in" in done.stderr) == (0, True)
    assert [file.read_bytes() for file in killed.glob("*.cut")] == [b"\0torn"]
    assert count(killed) == 14


def test_damage_is_replayed_only_on_request(killed: Path, run: Run) -> None:
    log = log_of(killed)
    flip(log, log.read_bytes().index(b"A/1Min/OHLCV/2024.bin"))
    whole = log.read_bytes()
    assert run("bars", "replay", killed).exit_code == 2
    for words in (["replay", killed, "--apply"], ["flush", killed]):
        refused = run("bars", *words, "--json")
        assert (refused.exit_code, "checksum" in refused.stderr) == (2, True)
    written = run("bars", "write", killed, "A/1Min/OHLCV", "60,1,1,1,1,1")
    assert written.exit_code == 2
    assert log.read_bytes() == whole
    done = run("bars", "replay", killed, "--apply", "--salvage")
    assert (done.exit_code, "kept in a .cut file" in done.stderr) == (0, True)
    assert [file.read_bytes()[11:] for file in killed.glob("*.cut")] == [whole[11:]]
    assert count(killed) == 14  # the bar of C; that of A was an overwrite, and is as before
    assert run("bars", "verify", killed).exit_code == 0


def test_undecided_groups_are_decided(root: Path, tmp_path: Path, run: Run) -> None:
    store, tgids = BarStore(OsDisk(root), runtime=NOBODYS), []
    for symbol in "CD":
        group = store.group()
        group.write(minute_bars(symbol, 1), "1Min", "OHLCV")
        tgids.append(group.prepare())
    left = copy(root, tmp_path / "left")
    store.close()
    plan = json.loads(run("bars", "replay", left, "--json").stdout)
    assert plan["undecided"] == tgids
    words = ("--commit", tgids[0], "--abort", tgids[1])
    assert run("bars", "replay", left, *words).exit_code == 1  # only with --apply
    assert run("bars", "replay", left, "--apply").stdout.endswith("; 2 groups undecided\n")
    done = run("bars", "replay", left, "--apply", *words)
    assert (done.exit_code, "undecided\n" in done.stdout.splitlines()[-1]) == (0, False)
    assert run("bars", "symbols", left).stdout == "A\nB\nC\n"
    assert run("bars", "replay", left, "--apply", "--commit", 7).exit_code == 1
