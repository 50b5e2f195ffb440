"""Records of two-phase writes in PostgreSQL."""

from typing import Any

from holdfast.errors import MissingError, UnavailableError
from holdfast.kv.cas.sql import Dialect, SqlRecords, tables

_SETUP_LOCK = 0x686F6C6466617374  # two clients that make the same table at once would collide


def open_postgres(url: str, scope: str) -> SqlRecords:
    """`url` as libpq takes it: postgresql://user@host:5432/database"""
    try:
        import psycopg
    except ImportError as error:
        raise MissingError(
            "records in PostgreSQL need psycopg: pip install 'holdfast[sql]'"
        ) from error

    def connect() -> Any:
        # In autocommit BEGIN and COMMIT are ours; read committed: each look sees the newest.
        connection = psycopg.connect(url, autocommit=True, connect_timeout=10)
        connection.execute("SET default_transaction_isolation = 'read committed'")
        connection.execute("SET synchronous_commit = 'on'")
        return connection

    def told(error: Exception) -> Exception:
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
        told=told,
    )
    return SqlRecords(connect, dialect, scope)
