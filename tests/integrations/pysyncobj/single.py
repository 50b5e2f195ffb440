"""A cluster of one node.  As a program, it writes to a journal and a dump in a fork, and ends."""

import sys
from collections.abc import Callable
from pathlib import Path

from pysyncobj import SyncObjConf, replicated
from tests.integrations.pysyncobj.test_kills import free_addresses

from holdfast.integrations.pysyncobj import DurableSyncObj


class Single(DurableSyncObj):
    """A cluster of one, ticked by hand."""

    def __init__(self, path: Path, address: str, *, use_fork: bool = False) -> None:
        conf = SyncObjConf(
            journalFile=str(path / "journal"),
            autoTick=False,
            bindAddress=address,
            raftMinTimeout=0.04,
            raftMaxTimeout=0.05,
            appendEntriesPeriod=0.01,
            useFork=use_fork,
        )
        super().__init__(address, [], conf)
        self.words: list[str] = []

    @replicated  # type: ignore[untyped-decorator]
    def put(self, word: str) -> int:
        self.words.append(word)
        return len(self.words)

    def tick_until(self, is_done: Callable[[], bool]) -> None:
        for _ in range(2000):
            if is_done():
                return
            self.doTick(0.005)
        raise AssertionError("it never comes to that")

    def write(self, *words: str) -> None:
        heard: list[int] = []
        for word in words:
            self.put(word, callback=lambda result, reason: heard.append(reason))
        self.tick_until(lambda: len(heard) == len(words))
        assert not any(heard)

    def dump(self) -> None:
        self.forceLogCompaction()
        self.tick_until(lambda: self._getRaftLogSize() == 2)

    def settle(self) -> None:
        self.tick_until(self._isLeader)
        last = self._SyncObj__raftLog[-1][1]
        self.tick_until(lambda: self.raftLastApplied >= last)


def main() -> None:
    (address,) = free_addresses(1)
    node = Single(Path(sys.argv[1]), address, use_fork=True)
    node.write("a", "b", "c")
    node.dump()
    node.write("d")
    node.destroy()


if __name__ == "__main__":
    main()
