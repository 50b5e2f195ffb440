"""Records of two-phase writes in MySQL or MariaDB."""

from typing import Any
from urllib.parse import unquote, urlsplit

from holdfast.errors import UnavailableError
from holdfast.kv.cas.records import driver_of
from holdfast.kv.cas.sql import Dialect, SqlRecords, tables

_TIMEOUT_S = 30


def open_mysql(url: str, scope: str) -> SqlRecords:
    """Open the records at mysql://user:password@host:3306/database."""
    with driver_of("records in MySQL or MariaDB need PyMySQL", "sql"):
        import pymysql
    parts = urlsplit(url)

    def connect() -> Any:
        # In autocommit BEGIN and COMMIT are ours; read committed: each look sees the newest.
        return pymysql.connect(
            host=parts.hostname or "127.0.0.1",
            port=parts.port or 3306,
            user=unquote(parts.username or "root"),
            password=unquote(parts.password or ""),
            database=parts.path.strip("/"),
            autocommit=True,
            connect_timeout=10,
            read_timeout=_TIMEOUT_S,
            write_timeout=_TIMEOUT_S,
            init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        )

    def translate(error: Exception) -> Exception:
        if isinstance(error, pymysql.err.OperationalError | pymysql.err.InterfaceError):
            return UnavailableError(f"MySQL: {error}")
        return error

    dialect = Dialect(
        tables=[
            "SET sql_notes = 0",  # no notes about tables that exist
            *tables("VARCHAR({}) CHARACTER SET ascii COLLATE ascii_bin"),
        ],
        begin="START TRANSACTION",
        first_epoch="""INSERT INTO holdfast_epochs VALUES (?, 0)
            ON DUPLICATE KEY UPDATE epoch = epoch""",
        raise_watermark="""INSERT INTO holdfast_watermarks VALUES (?, ?, ?)
            ON DUPLICATE KEY UPDATE boundary = greatest(boundary, values(boundary))""",
        for_share="LOCK IN SHARE MODE",  # MariaDB does not know FOR SHARE
        placeholder="%s",
        taken=pymysql.err.IntegrityError,
        translate=translate,
    )
    return SqlRecords(connect, dialect, scope)
