"""Records of two-phase writes in memory, with the network faults of sim_bucket."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TypeVar

from holdfast.kv.cas.records import Record, SweptError, directory_of
from holdfast.testing.sim_bucket import Call, Faults, FaultyLine

Result = TypeVar("Result")
CHANGES = frozenset({"insert", "commit", "retire", "begin_sweep"})


class SimRecords:
    """See Records."""

    def __init__(self, random: Random | None = None, faults: Faults | None = None) -> None:
        self.line = FaultyLine(random or Random(0), faults or Faults())
        self.records: dict[str, Record] = {}
        self.watermarks: dict[str, str] = {}
        self.epochs = 0
        self._mutex = threading.Lock()

    @property
    def fired(self) -> Counter[str]:
        return self.line.fired

    def __repr__(self) -> str:
        return f"SimRecords({len(self.records)} records)"

    def epoch(self) -> int:
        return self._send("epoch", "", lambda: self.epochs)

    def insert(self, destination: str, source: str, epoch: int) -> Record:
        def act() -> Record:
            if destination in self.records:
                return self.records[destination]
            if destination <= self.watermarks.get(directory_of(destination), ""):
                raise FileExistsError(f"object {destination} was created, and retired")
            if epoch != self.epochs:
                raise SweptError
            self.records[destination] = Record(destination, source)
            return self.records[destination]

        return self._send("insert", destination, act)

    def commit(self, record: Record) -> None:
        def act() -> None:
            found = self.records.get(record.destination)
            if found and found.source == record.source:
                self.records[record.destination] = replace(found, committed=True)

        self._send("commit", record.destination, act)

    def find(self, destination: str) -> Record | None:
        return self._send("find", destination, lambda: self.records.get(destination))

    def uncommitted(self) -> list[Record]:
        return self._send(
            "uncommitted",
            "",
            lambda: [
                self.records[k] for k in sorted(self.records) if not self.records[k].committed
            ],
        )

    def retire(self, directory: str, boundary: str) -> None:
        def act() -> None:
            mark = max(boundary, self.watermarks.get(directory, ""))
            self.watermarks[directory] = mark
            for name, record in list(self.records.items()):
                if record.committed and directory_of(name) == directory and name <= boundary:
                    del self.records[name]

        self._send("retire", boundary, act)

    def begin_sweep(self) -> int:
        def act() -> int:
            self.epochs += 1
            return self.epochs

        return self._send("begin_sweep", "", act)

    def close(self) -> None:
        pass

    def _send(self, verb: str, name: str, act: Callable[[], Result]) -> Result:
        def alone() -> Result:
            with self._mutex:
                return act()

        return self.line.send(Call(verb, (name,)), alone, changes=verb in CHANGES)
