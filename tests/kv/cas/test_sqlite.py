import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import CorruptError, UnavailableError
from holdfast.kv.cas.sqlite import open_sqlite
from holdfast.testing.records_contract import Another, RecordsContract


class TestSqliteRecords(RecordsContract):
    @pytest.fixture
    def another(self, tmp_path: Path) -> Another:
        return lambda: open_sqlite(str(tmp_path / "records.db"), "s3://bucket/kv")


def test_two_scopes_in_one_file_do_not_meet(tmp_path: Path) -> None:
    one, two = (open_sqlite(str(tmp_path / "r.db"), scope) for scope in ("one", "two"))
    one.insert("wal/1", "a", 0)
    one.retire("wal/", "wal/9")
    one.begin_sweep()
    assert two.insert("wal/1", "b", 0).source == "b"


RACER = """
import sys
from holdfast.kv.cas.sqlite import open_sqlite
for path in sys.stdin:
    records = open_sqlite(path.strip(), "x")
    print([records.insert(f"wal/{n}", sys.argv[1], 0).source for n in range(20)], flush=True)
"""


def test_processes_that_race_see_the_same_winners(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b", "c")
    ]
    for race in range(20):  # each begins with a file that nobody has made yet
        for racer in racers:
            assert racer.stdin
            racer.stdin.write(f"{tmp_path}/{race}.db\n")
            racer.stdin.flush()
        answers = {racer.stdout.readline() for racer in racers if racer.stdout}
        assert len(answers) == 1
    assert [(racer.communicate()[0], racer.returncode) for racer in racers] == [("", 0)] * 3


def test_a_commit_is_synced_and_private(tmp_path: Path) -> None:
    records = open_sqlite(str(tmp_path / "new" / "r.db"), "x")
    records.insert("wal/1", "a", 0)
    with records._connection() as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        for path in (tmp_path / "new").iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_is_something_else_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    path.write_bytes(b"not a database, but somebody's thesis" * 100)
    with pytest.raises(CorruptError, match="not a database"):
        open_sqlite(str(path), "x")
    assert path.read_bytes().startswith(b"not a database")


def test_a_lock_that_is_held_too_long_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.kv.cas.sqlite._BUSY_S", 0.05)
    records = open_sqlite(str(tmp_path / "r.db"), "x")
    other = sqlite3.connect(tmp_path / "r.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(UnavailableError, match="locked"):
        records.insert("wal/1", "a", 0)
    other.execute("ROLLBACK")
    assert records.insert("wal/1", "a", 0).source == "a"
    other.close()
