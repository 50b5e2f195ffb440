"""Records of two-phase writes in PostgreSQL."""

from typing import Any

from holdfast.errors import UnavailableError
from holdfast.kv.cas.records import driver_of
from holdfast.kv.cas.sql import Dialect, SqlRecords, tables

_SETUP_LOCK = 0x686F6C6466617374  # two clients that make the same table at once would collide


def open_postgres(url: str, scope: str) -> SqlRecords:
    """Open the records at postgresql://user@host:5432/database, as libpq takes it."""
    with driver_of("records in PostgreSQL need psycopg", "sql"):
        import psycopg

    def connect() -> Any:
        # In autocommit BEGIN and COMMIT are ours; read committed: each look sees the newest.
        connection = psycopg.connect(url, autocommit=True, connect_timeout=10)
        connection.execute("SET default_transaction_isolation = 'read committed'")
        connection.execute("SET synchronous_commit = 'on'")
        return connection

    def translate(error: Exception) -> Exception:
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return UnavailableError(f"PostgreSQL: {str(error).strip()}")
        return error

    dialect = Dialect(
        tables=[
            f"SELECT pg_advisory_lock({_SETUP_LOCK})",
            *tables('VARCHAR({}) COLLATE "C"'),
            f"SELECT pg_advisory_unlock({_SETUP_LOCK})",
        ],
        begin="BEGIN",
        first_epoch="INSERT INTO holdfast_epochs VALUES (?, 0) ON CONFLICT DO NOTHING",
        raise_watermark="""INSERT INTO holdfast_watermarks AS old VALUES (?, ?, ?)
            ON CONFLICT (scope, directory)
            DO UPDATE SET boundary = greatest(old.boundary, excluded.boundary)""",
        for_share="FOR SHARE",
        placeholder="%s",
        taken=psycopg.errors.UniqueViolation,
        translate=translate,
    )
    return SqlRecords(connect, dialect, scope)
