"""The tests that every store of two-phase records must pass.  Provide the fixtures.

`another` opens one more client of the same store and scope, as another process would.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Thread

import pytest

from holdfast.bucket import Patience
from holdfast.kv.cas import Record, Records, SweptError

Another = Callable[[], Records]


class RecordsContract:
    racers, slots, retired = 6, 15, 20

    @pytest.fixture
    def records(self, another: Another) -> Records:
        return another()

    def test_an_insert_holds_its_name(self, records: Records, another: Another) -> None:
        mine = Record("wal/1", "wal/1.a")
        assert records.insert("wal/1", "wal/1.a", 0) == mine
        for client in (records, another()):
            assert client.insert("wal/1", "wal/1.b", 0) == mine
            assert client.find("wal/1") == mine
            assert client.find("wal/2") is None
            assert client.uncommitted() == [mine]

    def test_the_same_source_may_insert_again(self, records: Records) -> None:
        for _ in range(3):
            assert records.insert("wal/1", "wal/1.a", 0).source == "wal/1.a"
        records.commit(Record("wal/1", "wal/1.a"))
        records.begin_sweep()
        assert records.insert("wal/1", "wal/1.a", 0) == Record("wal/1", "wal/1.a", True)

    def test_a_commit_is_for_the_source_that_was_copied(self, records: Records) -> None:
        for name in ("b", "a", "wal/1"):
            records.insert(name, f"{name}.x", 0)
        records.commit(Record("a", "a.other"))
        records.commit(Record("never", "never.x"))
        assert [record.destination for record in records.uncommitted()] == ["a", "b", "wal/1"]
        for _ in range(2):
            records.commit(Record("a", "a.x"))
        assert [record.destination for record in records.uncommitted()] == ["b", "wal/1"]
        assert records.insert("a", "a.y", 0) == Record("a", "a.x", committed=True)

    def test_one_of_many_inserts_of_one_name_succeeds(self, another: Another) -> None:
        def race(racer: int) -> list[Record]:
            client = another()
            ask = Patience(budget_ms=20_000).ask
            held = [
                ask(partial(client.insert, f"wal/{n}", f"{n}.{racer}", 0))
                for n in range(self.slots)
            ]
            client.close()
            return held

        with ThreadPoolExecutor(self.racers) as pool:
            answers = list(pool.map(race, range(self.racers)))
        assert all(answer == answers[0] for answer in answers)
        assert [record.destination for record in another().uncommitted()] == sorted(
            f"wal/{n}" for n in range(self.slots)
        )

    def test_one_client_serves_many_threads(self, records: Records) -> None:
        def use(thread: int) -> int:
            for number in range(8):
                records.commit(records.insert(f"t{thread}/{number}", f"{thread}.{number}", 0))
            return len(records.uncommitted())

        with ThreadPoolExecutor(self.racers) as pool:
            list(pool.map(use, range(self.racers)))
        assert records.uncommitted() == []
        found = records.find("t0/7")
        assert found is not None
        assert found.committed

    def test_a_retired_name_stays_refused(self, records: Records, another: Another) -> None:
        for name in ("wal/1", "wal/2", "wal/3", "wal/4", "Wal/1", "walk/1", "wal/sub/1"):
            records.commit(records.insert(name, f"{name}.x", 0))
        pending = records.insert("wal/0", "wal/0.x", 0)
        records.retire("wal/", "wal/3")
        records.retire("wal/", "wal/2")  # a watermark never falls
        assert records.uncommitted() == [pending]
        for client in (records, another()):
            for name in ("wal/1", "wal/2", "wal/3", "wal/2.5"):
                assert client.find(name) is None
                with pytest.raises(FileExistsError, match="retired"):
                    client.insert(name, f"{name}.y", 0)
        for name in ("wal/4", "Wal/1", "walk/1", "wal/sub/1"):
            assert records.find(name) == Record(name, f"{name}.x", committed=True)
        assert records.insert("wal/5", "wal/5.x", 0) == Record("wal/5", "wal/5.x")
        records.commit(pending)
        records.retire("wal/", "wal/3")
        assert records.find("wal/0") is None

    def test_no_name_reopens_while_others_retire_it(self, another: Another) -> None:
        ask = Patience(budget_ms=20_000).ask  # some find a deadlock here, and say: try again
        held: dict[str, set[str]] = {f"wal/{number:03}": set() for number in range(self.retired)}

        def insist(rival: int, retires: bool) -> None:
            client = another()
            for name in held:
                for attempt in range(2):
                    source = f"{name}.{rival}.{attempt}"
                    try:
                        holder = ask(partial(client.insert, name, source, 0))
                    except FileExistsError:
                        continue
                    held[name].add(holder.source)
                    ask(partial(client.commit, holder))
                    if retires:
                        ask(partial(client.retire, "wal/", name))

        rivals = [Thread(target=insist, args=(rival, rival % 2 == 0)) for rival in range(4)]
        for rival in rivals:
            rival.start()
        for rival in rivals:
            rival.join()
        assert [sources for sources in held.values() if len(sources) != 1] == []

    def test_after_a_sweep_has_begun_the_old_epoch_is_over(
        self, records: Records, another: Another
    ) -> None:
        before = records.insert("wal/1", "wal/1.x", records.epoch())
        assert records.epoch() == 0
        assert another().begin_sweep() == 1
        with pytest.raises(SweptError):
            records.insert("wal/2", "wal/2.x", 0)
        assert records.find("wal/2") is None
        assert records.insert("wal/1", "wal/1.x", 0) == before
        assert records.insert("wal/1", "wal/1.y", 0) == before
        assert records.insert("wal/2", "wal/2.x", records.epoch()).source == "wal/2.x"

    def test_no_insert_slips_past_a_sweep(self, records: Records, another: Another) -> None:
        """A sweep sees every insert that was accepted under the old epoch."""
        accepted: list[str] = []
        epoch = records.epoch()

        def write() -> None:
            client = another()
            for number in range(10_000):
                try:
                    client.insert(f"wal/{number}", f"{number}.x", epoch)
                except SweptError:
                    return
                accepted.append(f"{number}.x")
                time.sleep(0.001)  # let the sweeper have the lock, too

        writer = Thread(target=write)
        writer.start()
        while len(accepted) < 5 and writer.is_alive():
            time.sleep(0.001)
        sweeper = another()
        sweeper.begin_sweep()
        seen = {record.source for record in sweeper.uncommitted()}
        writer.join()
        assert set(accepted) == seen
