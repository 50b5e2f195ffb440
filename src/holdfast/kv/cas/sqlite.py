"""Records of two-phase writes in a SQLite file, for writers on one machine.

Write-ahead log, synchronous=FULL: a commit that has returned survives a power cut.
"""

import sqlite3
from contextlib import closing, suppress
from typing import Any

from holdfast.bucket import DirectoryBucket
from holdfast.errors import CorruptError, DiskFullError, UnavailableError
from holdfast.kv.cas.sql import Dialect, SqlRecords, tables

_BUSY_S = 10.0
_VERSIONS = slice(
    18, 20
)  # in a file's header: the versions that may write and read it, 2 for write-ahead logs


def open_sqlite(path: str, scope: str) -> SqlRecords:
    """Open a file of records; create it, readable by its owner only, if it is missing."""
    directory, _, name = path.rpartition("/")
    bucket = DirectoryBucket(directory or ("/" if path.startswith("/") else "."))
    with suppress(FileExistsError):  # durable, private, and safe if two do it at once
        bucket.put_if_absent(name, _empty())

    def connect() -> Any:
        connection = sqlite3.connect(
            path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            connection.close()  # the file is not a database, or it is locked
            raise
        return connection

    def translate(error: Exception) -> Exception:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return CorruptError(path, 0, str(error))
        if code == sqlite3.SQLITE_FULL:
            return DiskFullError(f"{path}: {error}; free some space; what was acknowledged is safe")
        if isinstance(error, sqlite3.OperationalError):
            return UnavailableError(f"{path}: {error}")
        return error

    dialect = Dialect(
        tables=tables("VARCHAR({})"),
        begin="BEGIN IMMEDIATE",
        first_epoch="INSERT INTO holdfast_epochs VALUES (?, 0) ON CONFLICT DO NOTHING",
        raise_watermark="""INSERT INTO holdfast_watermarks VALUES (?, ?, ?)
            ON CONFLICT (scope, directory)
            DO UPDATE SET boundary = max(boundary, excluded.boundary)""",
        for_share="",  # BEGIN IMMEDIATE keeps all others out
        placeholder="?",
        taken=sqlite3.IntegrityError,
        translate=translate,
    )
    return SqlRecords(connect, dialect, scope)


def _empty() -> bytes:
    """Return an empty database in write-ahead mode.

    If several processes turn the mode on at the same time, SQLite fails all but one, regardless of
    the timeout.
    """
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("VACUUM")  # makes the first page
        image = bytearray(connection.serialize())
    image[_VERSIONS] = b"\2\2"
    return bytes(image)
