import random

import pytest

from holdfast.errors import MissingError, UnavailableError
from holdfast.kv.cas.mysql import open_mysql
from holdfast.testing.records_contract import Another, RecordsContract


class TestMariadbRecords(RecordsContract):
    @pytest.fixture
    def another(self, mariadb: str) -> Another:
        scope = f"{random.getrandbits(64):x}"
        return lambda: open_mysql(mariadb, scope)


def test_a_connection_that_broke_is_replaced(mariadb: str) -> None:
    records = open_mysql(mariadb, "broken")
    with records._connection() as connection:
        number = connection.thread_id()
    killer = open_mysql(mariadb, "killer")
    with killer._connection() as connection:
        connection.kill(number)
    with pytest.raises(UnavailableError, match="MySQL"):
        records.insert("wal/1", "a", 0)
    assert records.insert("wal/1", "a", 0).source == "a"


def test_a_missing_server_is_unavailable() -> None:
    with pytest.raises(UnavailableError, match="MySQL"):
        open_mysql("mysql://root@127.0.0.1:1/x", "x")


def test_a_missing_driver_raises_an_error_that_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pymysql", None)
    with pytest.raises(MissingError, match=r"holdfast\[sql\]"):
        open_mysql("mysql://root@127.0.0.1:1/x", "x")
