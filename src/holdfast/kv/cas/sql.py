"""Records of two-phase writes in a relational database: what the three dialects share.

A connection serves one call at a time; calls that overlap use several.  After an error a connection
is closed, because its state is unknown.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from holdfast.kv.cas.records import Record, SweptError, directory_of

_INSERT = """INSERT INTO holdfast_records (scope, directory, destination, source, committed)
             VALUES (?, ?, ?, ?, 0)"""
_FIND = "SELECT source, committed FROM holdfast_records WHERE scope = ? AND destination = ?"
_COMMIT = """UPDATE holdfast_records SET committed = 1
             WHERE scope = ? AND destination = ? AND source = ?"""
_UNCOMMITTED = """SELECT destination, source FROM holdfast_records
                  WHERE scope = ? AND committed = 0 ORDER BY destination"""
_FORGET = """DELETE FROM holdfast_records
             WHERE scope = ? AND directory = ? AND destination <= ? AND committed = 1"""
_WATERMARK = "SELECT boundary FROM holdfast_watermarks WHERE scope = ? AND directory = ?"
_EPOCH = "SELECT epoch FROM holdfast_epochs WHERE scope = ?"
_NEXT_EPOCH = "UPDATE holdfast_epochs SET epoch = epoch + 1 WHERE scope = ?"


@dataclass(frozen=True, slots=True)
class Dialect:
    """The SQL of one database."""

    tables: Sequence[str]  # statements that create the missing ones
    begin: str
    first_epoch: str
    raise_watermark: str
    for_share: str  # after a SELECT: no other transaction may change the row until ours ends
    placeholder: str
    taken: type[Exception]  # what a second insert of one key raises
    translate: Callable[[Exception], Exception]  # a driver's error to a HoldfastError or OSError


def tables(text: str) -> list[str]:
    """Return the tables of a dialect; `text` declares a name of {} bytes that sorts by byte."""
    name = text.format
    return [
        f"""CREATE TABLE IF NOT EXISTS holdfast_records (
                scope {name(300)} NOT NULL, directory {name(700)} NOT NULL,
                destination {name(700)} NOT NULL, source {name(760)} NOT NULL,
                committed SMALLINT NOT NULL, PRIMARY KEY (scope, destination))""",
        f"""CREATE TABLE IF NOT EXISTS holdfast_watermarks (
                scope {name(300)} NOT NULL, directory {name(700)} NOT NULL,
                boundary {name(700)} NOT NULL, PRIMARY KEY (scope, directory))""",
        f"""CREATE TABLE IF NOT EXISTS holdfast_epochs (
                scope {name(300)} NOT NULL PRIMARY KEY, epoch BIGINT NOT NULL)""",
    ]


class SqlRecords:
    """See Records.  `scope` distinguishes the stores that share one database."""

    def __init__(self, connect: Callable[[], Any], dialect: Dialect, scope: str) -> None:
        self._connect, self._dialect, self._scope = connect, dialect, scope
        self._idle: deque[Any] = deque()
        with self._connection() as connection:
            for statement in dialect.tables:
                connection.cursor().execute(statement)
            self._run(connection, dialect.first_epoch, scope)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._scope!r})"

    def epoch(self) -> int:
        return int(self._ask(_EPOCH, self._scope)[0][0])

    def insert(self, destination: str, source: str, epoch: int) -> Record:
        with self._connection() as connection:
            self._run(connection, self._dialect.begin)
            row = self._scope, directory_of(destination), destination, source
            try:
                self._run(connection, _INSERT, *row)
            except self._dialect.taken:
                self._run(connection, "ROLLBACK")
                return self._holder(connection, destination)
            # Look only now.  Had retire just removed a record and so let us in, it would have
            # raised the watermark before, and we see that.
            refusal = self._refusal(connection, destination, epoch)
            self._run(connection, "ROLLBACK" if refusal else "COMMIT")
            if refusal:
                raise refusal
            return Record(destination, source)

    def commit(self, record: Record) -> None:
        with self._connection() as connection:
            self._run(connection, _COMMIT, self._scope, record.destination, record.source)

    def find(self, destination: str) -> Record | None:
        with self._connection() as connection:
            return self._find(connection, destination)

    def uncommitted(self) -> list[Record]:
        return [Record(*row) for row in self._ask(_UNCOMMITTED, self._scope)]

    def retire(self, directory: str, boundary: str) -> None:
        with self._connection() as connection:
            self._run(connection, self._dialect.raise_watermark, self._scope, directory, boundary)
            self._run(connection, _FORGET, self._scope, directory, boundary)

    def begin_sweep(self) -> int:
        with self._connection() as connection:
            self._run(connection, _NEXT_EPOCH, self._scope)
        return self.epoch()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    __del__ = close  # also closes connections if the caller forgets it

    def _holder(self, connection: Any, destination: str) -> Record:
        holder = self._find(connection, destination)
        if holder is None:  # retired this instant
            raise _retired(destination)
        return holder

    def _find(self, connection: Any, destination: str) -> Record | None:
        rows = self._run(connection, _FIND, self._scope, destination).fetchall()
        return Record(destination, rows[0][0], bool(rows[0][1])) if rows else None

    def _refusal(self, connection: Any, destination: str, epoch: int) -> Exception | None:
        directory = directory_of(destination)
        for (boundary,) in self._run(connection, _WATERMARK, self._scope, directory).fetchall():
            if destination <= boundary:
                return _retired(destination)
        # Held until our record is there for all to see, so a sweep that begins will see it.
        statement = f"{_EPOCH} {self._dialect.for_share}"
        [(current,)] = self._run(connection, statement, self._scope).fetchall()
        return SweptError() if current != epoch else None

    def _ask(self, statement: str, *values: str) -> Sequence[Any]:
        with self._connection() as connection:
            rows: Sequence[Any] = self._run(connection, statement, *values).fetchall()
            return rows

    def _run(self, connection: Any, statement: str, *values: str) -> Any:
        cursor = connection.cursor()
        cursor.execute(statement.replace("?", self._dialect.placeholder), values)
        return cursor

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        connection = None
        try:
            with suppress(IndexError):
                connection = self._idle.pop()
            connection = connection or self._connect()
            yield connection
        except (SweptError, FileExistsError):
            self._idle.append(connection)  # it has answered, and is sound
            raise
        except Exception as error:
            if connection is not None:
                with suppress(Exception):  # report the first error
                    connection.close()
            raise self._dialect.translate(error) from error
        self._idle.append(connection)


def _retired(destination: str) -> FileExistsError:
    return FileExistsError(f"object {destination} was created, and retired")
