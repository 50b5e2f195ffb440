"""Key-value stores to be compared, each in a process of its own: none pays for another's threads.

A Contender is the handle on such a process.  `contender(verb, work)` has the store do a piece of
work and adds what it took to the contender's clocks: CPU of all its threads, and time on the wall.
"""

import asyncio
import multiprocessing
import os
import sqlite3
import time
from collections.abc import Coroutine, Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol, TypeVar

import lmdb
import rocksdict

from holdfast.bucket import DirectoryBucket
from holdfast.doors import open_kv
from holdfast.kv.compaction import Compactor

Pairs = list[tuple[bytes, bytes]]
Result = TypeVar("Result")
_BATCH_ROWS = 1000  # written at once, and those that SlateDB's scan hands over at once


class Store(Protocol):
    """What every one of them does.  `get` and `scan` answer how much they found."""

    def __init__(self, path: Path) -> None: ...

    def put(self, pairs: Pairs) -> None:
        """One by one, not waited for; all flushed at the end."""

    def put_durably(self, pairs: Pairs) -> None:
        """One by one, each waited for."""

    def batch(self, pairs: Pairs) -> None:
        """In batches of a thousand, not waited for; all flushed at the end."""

    def settle(self) -> None:
        """Out of memory and the log, into files that are made for reading."""

    def get(self, keys: list[bytes]) -> int: ...

    def scan(self) -> int: ...

    def close(self) -> None: ...


class Holdfast:
    """In a directory, with every sync that this takes."""

    def __init__(self, path: Path) -> None:
        self.bucket = DirectoryBucket(path)
        self.db = open_kv(self.bucket, create=True, maintain=False)

    def put(self, pairs: Pairs) -> None:
        for key, value in pairs:
            self.db.put(key, value)
        self.db.flush()

    def put_durably(self, pairs: Pairs) -> None:
        for key, value in pairs:
            self.db.put(key, value).result()

    def batch(self, pairs: Pairs) -> None:
        for batch in _batches(pairs):
            self.db.write(batch)
        self.db.flush()

    def settle(self) -> None:
        Compactor(self.bucket).compact_everything()
        self.db.refresh()

    def get(self, keys: list[bytes]) -> int:
        return sum(self.db.get(key) is not None for key in keys)

    def scan(self) -> int:
        return sum(batch.num_rows for batch in self.db.scan())

    def close(self) -> None:
        self.db.close()


class SlateDb:
    """The `slatedb` wheel on its local store, which syncs nothing."""

    flush_interval = '"100ms"'  # its default

    def __init__(self, path: Path) -> None:
        from slatedb import uniffi  # only this process needs its library

        self.api = uniffi
        path.mkdir(exist_ok=True)
        store = uniffi.ObjectStoreBuilder(uniffi.ObjectStoreType.LOCAL)
        store.with_config("local_path", str(path.absolute()))
        builder = uniffi.DbBuilder("db", store.build())
        settings = uniffi.Settings.default()
        settings.set("flush_interval", self.flush_interval)
        builder.with_settings(settings)
        self.loop = asyncio.new_event_loop()
        self.db = self._do(builder.build())

    def _do(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(work)

    def put(self, pairs: Pairs) -> None:
        async def work() -> None:
            for key, value in pairs:
                await self.db.put(key, value)
            await self.db.flush()

        self._do(work())

    def put_durably(self, pairs: Pairs) -> None:
        async def work() -> None:
            for key, value in pairs:
                handle = await self.db.put(key, value)
                await handle.await_durable()

        self._do(work())

    def batch(self, pairs: Pairs) -> None:
        async def work() -> None:
            for some in _batches(pairs):
                batch = self.api.WriteBatch()
                for key, value in some:
                    batch.put(key, value)
                await self.db.write(batch)
            await self.db.flush()

        self._do(work())

    def settle(self) -> None:
        into_sst = self.api.FlushOptions(flush_type=self.api.FlushType.MEM_TABLE)
        self._do(self.db.flush_with_options(into_sst))

    def get(self, keys: list[bytes]) -> int:
        async def work() -> int:
            return sum([await self.db.get(key) is not None for key in keys])

        return self._do(work())

    def scan(self) -> int:
        async def work() -> int:
            everything = self.api.KeyRange(
                start=None, start_inclusive=False, end=None, end_inclusive=False
            )
            rows, count = await self.db.scan(everything), 0
            while batch := await rows.next_batch(_BATCH_ROWS):
                count += len(batch)
            return count

        return self._do(work())

    def close(self) -> None:
        self._do(self.db.shutdown())


class HastySlateDb(SlateDb):
    """The same; a durable put waits for the next flush."""

    flush_interval = '"1ms"'


class RocksDb:
    """Through rocksdict."""

    def __init__(self, path: Path) -> None:
        self.db = rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True))
        self.synced = rocksdict.WriteOptions()
        self.synced.sync = True

    def put(self, pairs: Pairs) -> None:
        for key, value in pairs:
            self.db.put(key, value)
        self.db.flush_wal(sync=True)

    def put_durably(self, pairs: Pairs) -> None:
        for key, value in pairs:
            self.db.put(key, value, self.synced)

    def batch(self, pairs: Pairs) -> None:
        for some in _batches(pairs):
            batch = rocksdict.WriteBatch(raw_mode=True)
            for key, value in some:
                batch.put(key, value)
            self.db.write(batch)
        self.db.flush_wal(sync=True)

    def settle(self) -> None:
        self.db.flush()
        self.db.compact_range(None, None)

    def get(self, keys: list[bytes]) -> int:
        return sum(self.db.get(key) is not None for key in keys)

    def scan(self) -> int:
        return sum(1 for _ in self.db.items())

    def close(self) -> None:
        self.db.close()


class Lmdb:
    """Puts that are not waited for are transactions without a sync."""

    def __init__(self, path: Path) -> None:
        self.db = lmdb.open(str(path), map_size=1 << 34, sync=False)

    def put(self, pairs: Pairs) -> None:
        for key, value in pairs:
            with self.db.begin(write=True) as transaction:
                transaction.put(key, value)
        self.db.sync(True)

    def put_durably(self, pairs: Pairs) -> None:
        for key, value in pairs:
            with self.db.begin(write=True) as transaction:
                transaction.put(key, value)
            self.db.sync(True)

    def batch(self, pairs: Pairs) -> None:
        for batch in _batches(pairs):
            with self.db.begin(write=True) as transaction:
                for key, value in batch:
                    transaction.put(key, value)
        self.db.sync(True)

    def settle(self) -> None: ...

    def get(self, keys: list[bytes]) -> int:
        found = 0
        for key in keys:
            with self.db.begin() as transaction:
                found += transaction.get(key) is not None
        return found

    def scan(self) -> int:
        with self.db.begin() as transaction:
            return sum(1 for _ in transaction.cursor())

    def close(self) -> None:
        self.db.close()


class Sqlite:
    """A table without rowid, with a WAL; it is synced only where each put must be durable."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("pragma journal_mode=wal")
        self.db.execute("create table if not exists kv (k blob primary key, v blob) without rowid")

    def _put_each(self, pairs: Pairs, level: str) -> None:
        self.db.execute(f"pragma synchronous={level}")
        for pair in pairs:
            self.db.execute("insert or replace into kv values (?, ?)", pair)

    def put(self, pairs: Pairs) -> None:
        self._put_each(pairs, "off")

    def put_durably(self, pairs: Pairs) -> None:
        self._put_each(pairs, "full")

    def batch(self, pairs: Pairs) -> None:
        self.db.execute("pragma synchronous=off")
        for batch in _batches(pairs):
            self.db.execute("begin immediate")
            self.db.executemany("insert or replace into kv values (?, ?)", batch)
            self.db.execute("commit")

    def settle(self) -> None:
        self.db.execute("pragma wal_checkpoint(truncate)")

    def get(self, keys: list[bytes]) -> int:
        query = "select v from kv where k = ?"
        return sum(self.db.execute(query, (key,)).fetchone() is not None for key in keys)

    def scan(self) -> int:
        return len(self.db.execute("select k, v from kv order by k").fetchall())

    def close(self) -> None:
        self.db.close()


class DurableCreate:
    """No store: one file for each pair, written beside its place, synced, linked, synced."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path, self.directory = path, os.open(path, os.O_RDONLY)

    def put_durably(self, pairs: Pairs) -> None:
        for key, value in pairs:
            beside, place = self.path / "~", self.path / key.hex()
            file = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            os.write(file, key + value + bytes(250))  # about as much as an SST has besides
            os.fsync(file)
            os.close(file)
            place.hardlink_to(beside)
            beside.unlink()
            os.fsync(self.directory)

    def close(self) -> None:
        os.close(self.directory)


class Contender:
    """A store in its process.  It is opened by `open`, any number of times, one after the other."""

    def __init__(self, kind: type[Any], path: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(kind, path, other), daemon=True)
        self._process.start()
        self.cpu = self.wall = 0.0

    def __call__(self, verb: str, work: Any = None) -> Any:
        self._pipe.send((verb, work))
        answer, cpu, wall = self._pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        self.cpu, self.wall = self.cpu + cpu, self.wall + wall
        return answer

    def stop(self) -> None:
        self._pipe.send(None)
        self._process.join()


def _serve(kind: type[Any], path: Path, pipe: Connection) -> None:
    store: Any = None
    while message := pipe.recv():
        verb, work = message
        cpu, wall = time.process_time(), time.perf_counter()
        answer: object = None
        try:
            if verb == "open":
                store = kind(path)
            else:
                answer = getattr(store, verb)(*[work] * (work is not None))
        except Exception as error:
            answer = error
        pipe.send((answer, time.process_time() - cpu, time.perf_counter() - wall))


def _batches(pairs: Pairs) -> Iterator[Pairs]:
    for start in range(0, len(pairs), _BATCH_ROWS):
        yield pairs[start : start + _BATCH_ROWS]


def cpu(contenders: Iterable[Contender]) -> float:
    """What all of them took so far: a clock that stands still while none of them works."""
    return sum(contender.cpu for contender in contenders)


def wall(contenders: Iterable[Contender]) -> float:
    """The same, by the clock on the wall."""
    return sum(contender.wall for contender in contenders)
