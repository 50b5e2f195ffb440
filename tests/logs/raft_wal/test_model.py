"""Random sequences of operations, against a model of a dozen lines."""

from random import Random

import pytest

from holdfast.errors import OutOfRangeError
from holdfast.formats.raft_entry import RaftEntry
from holdfast.logs.raft_wal import RAFT_CODEC, RaftWal, RaftWalReader
from holdfast.runtime import Runtime
from holdfast.testing import SimDisk


class Model:
    """What raft is promised: a row of entries, cut at either end, and a few keys."""

    def __init__(self) -> None:
        self.entries: dict[int, RaftEntry] = {}
        self.stable: dict[bytes, bytes] = {}

    def bounds(self) -> tuple[int, int]:
        return (min(self.entries), max(self.entries)) if self.entries else (0, 0)

    def store(self, entries: list[RaftEntry]) -> bool:
        _, last = self.bounds()
        if self.entries and entries[0].index != last + 1:
            return False
        self.entries |= {entry.index: entry for entry in entries}
        return True

    def delete(self, low: int, high: int) -> bool:
        first, last = self.bounds()
        if low > high or not self.entries or high < first or low > last:
            return True
        if low > first and high < last:
            return False
        self.entries = {i: e for i, e in self.entries.items() if not low <= i <= high}
        return True


class Trial:
    def __init__(self, seed: int) -> None:
        self.random, self.model, self.disk = Random(seed), Model(), SimDisk()
        self.size = self.random.choice((100, 300, 1000, 4096))
        self.wal = self.open()

    def open(self) -> RaftWal:
        return RaftWal(
            self.disk,
            codec=RAFT_CODEC,
            segment_size_max=self.size,
            runtime=Runtime(now_ns=lambda: 10**6),
        )

    def run(self) -> None:
        steps = [self.store, self.store, self.store, self.delete, self.reopen, self.set]
        for _ in range(40):
            self.random.choice(steps)()
            self.compare(self.wal)
        with RaftWalReader(self.disk) as guest:
            assert guest.damage == ()
            for index, entry in self.model.entries.items():
                assert guest.get_log(index) == entry
            rows = [row["index"] for batch in guest.scan() for row in batch.to_pylist()]
            assert rows == sorted(self.model.entries)

    def store(self) -> None:
        random, (_, last) = self.random, self.model.bounds()
        first = last + 1
        if random.random() < 0.1 or not self.model.entries:
            first = random.randint(1, 2 * last + 20)
        entries = [
            RaftEntry(
                index, random.randint(1, 2**40), 0, random.randbytes(random.choice((0, 9, 150)))
            )
            for index in range(first, first + random.randint(1, 5))
        ]
        if self.model.store(entries):
            self.wal.store_logs(entries)
        else:
            with pytest.raises(ValueError, match="non-monotonic"):
                self.wal.store_logs(entries)

    def delete(self) -> None:
        first, last = self.model.bounds()
        low = self.random.choice((0, first, self.random.randint(0, last + 2)))
        high = self.random.choice((2**64 - 1, last, self.random.randint(0, last + 2)))
        if self.model.delete(low, high):
            self.wal.delete_range(low, high)
        else:
            with pytest.raises(ValueError, match="only suffix or prefix"):
                self.wal.delete_range(low, high)

    def reopen(self) -> None:
        if self.random.random() < 0.5:
            self.wal.close()
        else:
            self.disk = self.disk.after_power_cut(self.random)
        self.wal = self.open()

    def set(self) -> None:
        key, value = self.random.choice((b"a", b"b")), self.random.randbytes(4)
        if self.random.random() < 0.3:
            self.model.stable.pop(key, None)
            self.wal.set(key, None)
        else:
            self.model.stable[key] = value
            self.wal.set(key, value)

    def compare(self, wal: RaftWal) -> None:
        assert (wal.raft_first_index, wal.raft_last_index) == self.model.bounds()
        assert wal.stable == self.model.stable
        first, last = self.model.bounds()
        for index in {first, last, (first + last) // 2} if last else ():
            assert wal.get_log(index) == self.model.entries[index]
        for index in (first - 1, last + 1):
            with pytest.raises(OutOfRangeError):
                wal.get_log(index)


@pytest.mark.parametrize("seed", range(60))
def test_it_does_what_the_model_does(seed: int) -> None:
    Trial(seed).run()
