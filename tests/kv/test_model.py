"""A store against a dict, with readers, compaction, collection, crashes and rivals in between."""

from random import Random

import pytest
from tests.kv.stores import Hand, collect, compact

from holdfast.bucket.memory import MemoryBucket
from holdfast.doors import open_kv, read_kv
from holdfast.errors import FencedError
from holdfast.kv import Kv, KvReader
from holdfast.kv.options import KvOptions
from holdfast.kv.view import PinnedView

State = dict[bytes, bytes]


class Life:
    """One store, one random walk.  `history[seq]` is the state after that row."""

    def __init__(self, seed: int) -> None:
        self.random, self.bucket, self.hand = Random(seed), MemoryBucket(), Hand(seed)
        self.history: list[State] = [{}]
        self.acked = 0
        self.views: list[tuple[PinnedView, State]] = []
        self.db = self.open()
        self.readers = [self.reader()]

    def open(self) -> Kv:
        options = KvOptions(
            flush_ms=None,
            watch_ms=None,
            flush_bytes=self.random.choice([1, 2000, 10_000]),
            skip_memtable_bytes=self.random.choice([1000, 10_000]),
            parallel_writes_max=self.random.choice([1, 1, 2, 4]),
            memory_bytes_max=self.random.choice([0, 2000, 2**20]),
            cache_bytes_max=self.random.choice([0, 2**20]),
        )
        return open_kv(self.bucket, create=True, runtime=self.hand.runtime, **options)

    def reader(self) -> KvReader:
        lazy, memory = self.random.random() < 0.3, self.random.choice([0, 2000, 2**20])
        return read_kv(self.bucket, lazy=lazy, memory_bytes_max=memory, runtime=self.hand.runtime)

    def key(self) -> bytes:
        return b"%02d" % self.random.randrange(40)

    def step(self) -> None:
        steps = {
            self.put: 30,
            self.batch: 10,
            self.check: 10,
            self.check_reader: 8,
            self.hand.work: 5,
            self.flush: 6,
            self.keep_view: 4,
            self.check_views: 4,
            self.compact: 4,
            self.collect: 3,
            self.refresh: 4,
            self.crash: 2,
            self.reopen: 2,
            self.be_fenced: 1,
        }
        self.random.choices(list(steps), list(steps.values()))[0]()

    def put(self) -> None:
        key, value = self.key(), self.random.randbytes(self.random.randrange(30))
        if self.random.random() < 0.3:
            handle = self.db.delete(key)
            self.note({key: None})
        else:
            handle = self.db.put(key, value)
            self.note({key: value})
        assert handle.seq == len(self.history) - 1
        if self.random.random() < 0.3:
            handle.result()
            self.acked = handle.seq

    def batch(self) -> None:
        keys = [self.key() for _ in range(self.random.randrange(1, 12))]
        rows = [(key, self.random.choice([None, b"batch"])) for key in keys]
        self.db.write(rows)
        for key, value in rows:
            self.note({key: value})

    def note(self, change: dict[bytes, bytes | None]) -> None:
        state = {**self.history[-1], **change}
        self.history.append({key: value for key, value in state.items() if value is not None})

    def check(self) -> None:
        model = self.history[-1]
        start, stop = sorted([self.key(), self.key()])
        expected = sorted((key, model[key]) for key in model if start <= key < stop)
        assert list(self.db.items(start, stop)) == expected
        assert list(self.db.items(start, stop, reverse=True)) == expected[::-1]
        assert dict(self.db.items()) == model
        for key in (self.key(), self.key()):
            assert self.db.get(key) == model.get(key)
        with self.db.view(durable_only=True) as view:
            assert dict(view.items()) in self.history[self.acked :]

    def check_reader(self) -> None:
        """It shows a state that was, never an older one than before."""
        reader = self.random.choice(self.readers)
        self.random.choice([reader.poll, reader.refresh])()
        shown = dict(reader.items())
        assert shown in self.history[self.acked :]
        assert {key: reader.get(key) for key in shown} == shown
        if self.random.random() < 0.2:
            reader.close()
            self.readers.remove(reader)
            self.readers.append(self.reader())

    def flush(self) -> None:
        self.db.flush()
        self.acked = len(self.history) - 1

    def keep_view(self) -> None:
        self.views.append((self.db.view(), self.history[-1]))

    def check_views(self) -> None:
        for view, state in self.views:
            assert dict(view.items()) == state
        if self.views and self.random.random() < 0.5:
            self.views.pop(0)[0].close()

    def compact(self) -> None:
        self.db.flush()
        self.acked = len(self.history) - 1
        compact(self.bucket, self.hand.runtime, into_run=self.random.random() < 0.5)

    def collect(self) -> None:
        collect(self.bucket, self.hand.runtime)

    def refresh(self) -> None:
        self.db.refresh()

    def crash(self) -> None:
        """The writer is gone; what was not acknowledged may be there, up to some row."""
        self.hand.steps.clear()
        self.survive(self.open())

    def be_fenced(self) -> None:
        old = self.db
        self.survive(self.open())
        with pytest.raises(FencedError):
            old.put(b"lost", b"lost").result()
        with pytest.raises(FencedError):
            old.close()

    def survive(self, db: Kv) -> None:
        self.views.clear()
        last = db._queue.seq
        assert self.acked <= last < len(self.history)
        assert dict(db.items()) == self.history[last]
        del self.history[last + 1 :]
        self.db, self.acked = db, last

    def reopen(self) -> None:
        self.views.clear()
        self.db.close()
        self.acked = len(self.history) - 1
        self.survive(self.open())


@pytest.mark.parametrize("seed", range(6))
def test_no_walk_loses_or_invents_anything(seed: int) -> None:
    life = Life(seed)
    for _ in range(100):
        life.step()
    life.reopen()
    life.check()
    for reader in life.readers:
        reader.close()
    life.db.close()
    with life.open() as db:
        assert dict(db.items()) == life.history[-1]
