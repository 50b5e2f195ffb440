import asyncio
import threading
import time
from collections.abc import Callable

import pytest
from tests.kv.stores import Hand

from holdfast.errors import FencedError, PoisonedError, UnavailableError
from holdfast.formats.sst import Rows
from holdfast.handle import Handle
from holdfast.kv.options import Options
from holdfast.kv.write_queue import WriteQueue
from holdfast.kv.writes import Flush, WriteHandle
from holdfast.runtime import Runtime
from holdfast.testing.log_contract import run_all


class Rig:
    """A queue whose WAL is a dict, moved by hand."""

    def __init__(self, *, runtime: Runtime | None = None, **limits: object) -> None:
        self.hand = Hand()
        self.wal: dict[int, Rows] = {}
        self.landed: list[int] = []
        self.write: Callable[[int, Rows], int] = self.keep
        runtime = runtime or self.hand.runtime
        self.workers = runtime.workers(4)
        self.queue = WriteQueue(
            Options(**limits),  # type: ignore[arg-type]
            runtime,
            Handle("the kv store"),
            self.workers,
            first_id=1,
            last_seq=0,
            write=lambda wal_id, rows: self.write(wal_id, rows),
            landed=lambda flush: self.landed.append(flush.wal_id),
            changed=lambda: None,
        )

    def keep(self, wal_id: int, rows: Rows) -> int:
        self.wal[wal_id] = rows
        return rows.size

    def put(self, key: bytes, value: bytes | None = b"v", size: int = 100) -> WriteHandle:
        return self.queue.put(key, value, size)

    def begin(self) -> Flush:
        flush = self.queue.begin()
        assert flush is not None
        return flush

    def keys(self) -> dict[int, list[bytes]]:
        return {wal_id: rows.keys.to_pylist() for wal_id, rows in sorted(self.wal.items())}


def test_a_waiting_thread_writes_for_all() -> None:
    rig = Rig()
    first, second = rig.put(b"b"), rig.put(b"a")
    assert not first.done()
    assert second.result() == 2
    assert first.done()
    assert first.result() == 1
    assert rig.keys() == {1: [b"a", b"b"]}
    assert not rig.hand.steps  # no worker was needed


def test_the_last_of_a_key_is_written_once() -> None:
    rig = Rig()
    for value in (b"1", b"2", None):
        handle = rig.put(b"k", value)
    handle.result()
    assert rig.wal[1].to_pairs() == [(b"k", None, 3)]


def test_acknowledgements_come_in_order() -> None:
    rig = Rig(parallel_writes_max=2)
    a = rig.put(b"a")
    first = rig.begin()
    b = rig.put(b"b")
    second = rig.begin()
    rig.put(b"c")
    assert rig.queue.begin() is None  # the window is full
    rig.queue.run(second)
    assert (a.done(), b.done()) == (False, False)
    assert rig.queue.begin() is None  # 3 may not be begun before 1 is acknowledged
    rig.queue.run(first)
    assert (a.result(), b.result()) == (1, 2)
    assert rig.landed == [1, 2]


def test_out_of_order_acknowledgements_are_an_option() -> None:
    rig = Rig(parallel_writes_max=2, ordered_acks=False)
    a = rig.put(b"a")
    first = rig.begin()
    b = rig.put(b"b")
    rig.queue.run(rig.begin())
    assert b.result() == 2
    assert rig.landed == []  # readers wait at the gap, and so do our own durable views
    rig.write = fail_with(FencedError("writer 2 has taken over"))
    rig.queue.run(first)
    with pytest.raises(FencedError):
        a.result()
    assert b.result() == 2


def test_a_write_acknowledged_after_a_gap_is_not_visible() -> None:
    rig = Rig(parallel_writes_max=3, ordered_acks=False)
    handles, flushes = [], []
    for key in (b"a", b"b", b"c"):
        handles.append(rig.put(key))
        flushes.append(rig.begin())
    rig.write = fail_with(UnavailableError("no answer"))
    rig.queue.run(flushes[0])
    rig.write = rig.keep
    rig.queue.run(flushes[2])
    rig.queue.run(flushes[1])
    assert [handle.done() for handle in handles] == [True, True, True]
    assert handles[2].result() == 3
    assert rig.landed == []
    assert [layer.rows for layer in rig.queue.unwritten()] == [
        {},
        {b"c": (b"v", 3)},
        {b"b": (b"v", 2)},
    ]


def test_ordered_writes_after_a_failed_one_fail_too() -> None:
    rig = Rig(parallel_writes_max=3)
    handles, flushes = [], []
    for key in (b"a", b"b", b"c"):
        handles.append(rig.put(key))
        flushes.append(rig.begin())
    late = rig.put(b"d")
    rig.queue.run(flushes[2])
    rig.write = fail_with(UnavailableError("no answer"))
    rig.queue.run(flushes[1])
    rig.write = rig.keep
    assert not handles[0].done()  # what is in flight runs to its end
    rig.queue.run(flushes[0])
    assert handles[0].result() == 1
    with pytest.raises(UnavailableError):
        handles[1].result()
    for handle in (handles[2], late):
        with pytest.raises(PoisonedError, match="no answer"):
            handle.result()
    with pytest.raises(PoisonedError, match="reopen"):
        rig.put(b"e")
    with pytest.raises(PoisonedError):
        rig.queue.flush()
    assert rig.landed == [1]


def fail_with(error: Exception) -> Callable[[int, Rows], int]:
    def write(wal_id: int, rows: Rows) -> int:
        raise error

    return write


def test_a_batch_stays_together_and_a_big_one_stays_alone() -> None:
    rig = Rig(flush_bytes=1000, skip_memtable_bytes=500)
    rig.put(b"a")
    rig.queue.put_all([b"b", b"c"], [b"1", None], 200)
    rig.queue.put_all([b"d", b"e", b"d"], [b"1", b"2", b"3"], 600)
    last = rig.put(b"f")
    assert rig.hand.steps  # a big one is flushed soon
    last.result()
    assert rig.keys() == {1: [b"a", b"b", b"c"], 2: [b"d", b"e"], 3: [b"f"]}
    assert rig.wal[2].to_pairs() == [(b"d", b"3", 6), (b"e", b"2", 5)]


def test_bytes_and_ticks_flush_by_themselves() -> None:
    rig = Rig(flush_bytes=1000)
    for i in range(25):
        rig.put(b"%02d" % i)
    rig.hand.work()
    assert rig.landed[-1] >= 1
    assert sum(len(rows) for rows in rig.wal.values()) >= 20
    rig.queue.tick()
    rig.hand.work()
    assert sum(len(rows) for rows in rig.wal.values()) == 25
    rig.queue.tick()
    assert not rig.hand.steps  # nothing to do


def test_frozen_memtables_are_joined_as_they_come() -> None:
    rig = Rig()
    for i in range(500):
        rig.put(b"%03d" % i)
        with rig.queue.lock:
            rig.queue.freeze()  # what a view does
        rig.put(b"again")
    assert len(rig.queue.unwritten()) < 12
    rig.queue.flush()
    assert rig.queue._waiting_bytes == 0
    assert rig.keys() == {1: [*(b"%03d" % i for i in range(500)), b"again"]}


def test_puts_wait_while_too_much_is_unflushed() -> None:
    go, entered = threading.Event(), threading.Event()
    rig = Rig(runtime=Runtime(), flush_bytes=200, unflushed_bytes_max=400)

    def write(wal_id: int, rows: Rows) -> int:
        entered.set()
        assert go.wait(10)
        return rig.keep(wal_id, rows)

    rig.write = write
    puts = 0

    def put_twenty() -> None:
        nonlocal puts
        for i in range(20):
            rig.put(b"%02d" % i)
            puts += 1

    thread = threading.Thread(target=put_twenty)
    thread.start()
    assert entered.wait(10)
    time.sleep(0.05)
    assert puts <= 5
    go.set()
    thread.join(10)
    rig.queue.flush()
    rig.workers.close()
    assert puts == 20
    assert sorted(key for keys in rig.keys().values() for key in keys) == [
        b"%02d" % i for i in range(20)
    ]


def test_a_put_that_waits_for_room_raises_after_a_failure() -> None:
    go = threading.Event()
    rig = Rig(runtime=Runtime(), flush_bytes=200, unflushed_bytes_max=400)

    def write(wal_id: int, rows: Rows) -> int:
        assert go.wait(10)
        raise UnavailableError("no answer")

    rig.write = write
    threading.Timer(0.05, go.set).start()
    with pytest.raises(PoisonedError, match="no answer"):
        for i in range(20):
            rig.put(b"%02d" % i)
    rig.workers.close()


def test_a_wait_may_take_too_long() -> None:
    rig = Rig(runtime=Runtime())
    handle = rig.put(b"a")
    flush = rig.begin()  # somebody else writes it, slowly
    with pytest.raises(TimeoutError, match="may still be"):
        handle.result(timeout=0.02)
    rig.queue.run(flush)
    assert handle.result(timeout=0) == 1


def test_an_interrupted_leader_poisons_and_leaves_no_thread_waiting() -> None:
    rig = Rig()
    handle = rig.put(b"a")
    flush = rig.begin()

    def write(wal_id: int, rows: Rows) -> int:
        raise KeyboardInterrupt

    rig.write = write
    with pytest.raises(KeyboardInterrupt):
        rig.queue.run(flush)
    with pytest.raises(PoisonedError, match="interrupted"):
        handle.result()


def test_many_threads_share_few_flushes() -> None:
    rig = Rig(runtime=Runtime(), parallel_writes_max=2)

    def write(wal_id: int, rows: Rows) -> int:
        time.sleep(0.002)
        return rig.keep(wal_id, rows)

    rig.write = write
    seqs: list[int] = []

    def put_ten(name: int) -> Callable[[], None]:
        def run() -> None:
            seqs.extend(rig.put(b"%d/%d" % (name, i)).result(10) for i in range(10))

        return run

    run_all([put_ten(name) for name in range(16)])
    rig.workers.close()
    assert sorted(seqs) == list(range(1, 161))
    assert rig.landed == sorted(rig.wal)
    assert len(rig.wal) < 100


def test_handles_can_be_awaited() -> None:
    rig = Rig(runtime=Runtime())

    async def main() -> list[int]:
        lone = await rig.put(b"lone")
        many = await asyncio.gather(*(wait(rig.put(b"%d" % i)) for i in range(50)))
        again = rig.put(b"again")
        await again
        return [lone, *many, await again]

    assert asyncio.run(main()) == list(range(1, 53))
    assert len(rig.wal) <= 10
    rig.write = fail_with(FencedError("writer 2 has taken over"))
    with pytest.raises(FencedError):
        asyncio.run(wait(rig.put(b"late")))
    rig.workers.close()


async def wait(handle: WriteHandle) -> int:
    return await handle


def test_an_awaiting_task_may_be_cancelled() -> None:
    go = threading.Event()
    rig = Rig(runtime=Runtime())

    def write(wal_id: int, rows: Rows) -> int:
        assert go.wait(10)
        return rig.keep(wal_id, rows)

    rig.write = write
    handle = rig.put(b"a")

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait(handle), 0.01)

    asyncio.run(main())
    go.set()
    assert handle.result(10) == 1
    rig.workers.close()


def test_limits_are_checked() -> None:
    with pytest.raises(ValueError, match="flush_bytes is 0"):
        Options(flush_bytes=0)
    with pytest.raises(ValueError, match="parallel_writes_max is 0"):
        Options(parallel_writes_max=0)
    assert repr(Rig().put(b"k")) == "<Submitted: pending>"
