import random

import pytest

from holdfast.errors import MissingError, UnavailableError
from holdfast.kv.cas.postgres import open_postgres
from holdfast.testing.records_contract import Another, RecordsContract


class TestPostgresRecords(RecordsContract):
    @pytest.fixture
    def another(self, postgres: str) -> Another:
        scope = f"{random.getrandbits(64):x}"
        return lambda: open_postgres(postgres, scope)


def test_a_connection_that_broke_is_replaced(postgres: str) -> None:
    records = open_postgres(postgres, "broken")
    with records._connection() as connection:
        pid = connection.info.backend_pid
    killer = open_postgres(postgres, "killer")
    with killer._connection() as connection:
        connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
    with pytest.raises(UnavailableError, match="PostgreSQL"):
        records.insert("wal/1", "a", 0)
    assert records.insert("wal/1", "a", 0).source == "a"


def test_a_missing_server_is_unavailable() -> None:
    with pytest.raises(UnavailableError, match="PostgreSQL"):
        open_postgres("postgresql://test@127.0.0.1:1/postgres", "x")


def test_a_missing_driver_raises_an_error_that_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(MissingError, match=r"holdfast\[sql\]"):
        open_postgres("postgresql://test@127.0.0.1:1/postgres", "x")
