"""Our journal beside PySyncObj's FileJournal, as it is and with the syncs that it leaves out."""

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj.journal import FileJournal

from benchmarks.harness import Measure, race
from holdfast.disk import OsDisk
from holdfast.integrations.pysyncobj import DurableSyncObj, RaftJournal

SYNCED, PLAIN = "FileJournal, synced", "FileJournal as it is: never synced"


def run(scale: float, only: str) -> Iterator[Measure]:
    for measure in (adds, votes, starts, commands):
        if only in measure.__name__:
            yield from measure(scale)


class Journals:
    """The three journals in one directory.  FileJournal is durable only after `flush`."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="bench-", dir="."))
        self.ours = RaftJournal(OsDisk(self.directory / "holdfast"))
        self.synced = FileJournal(str(self.directory / "synced"))
        self.plain = FileJournal(str(self.directory / "plain"))
        self.term = 0

    def fill(self, journal: Any, count: int) -> None:
        last = journal[-1][1] if len(journal) else 0
        for index in range(last + 1, last + count + 1):
            journal.add(b"\0" + random.randbytes(127), index, 1)

    def sync_meta(self) -> None:
        """What a rename needs to be durable: the file's bytes and the directory's names."""
        for path in (self.directory / "synced.meta", self.directory):
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)

    def close(self) -> None:
        for journal in (self.ours, self.synced, self.plain):
            journal._destroy()
        shutil.rmtree(self.directory)


def adds(scale: float) -> Iterator[Measure]:
    for size, rounds in ((1, 600), (100, 300)):
        journals = Journals()
        commands = [b"\0" + random.randbytes(127) for _ in range(size)]

        def add(journal: Any, finish: Callable[[], None], commands: list[bytes] = commands) -> None:
            last = journal[-1][1] if len(journal) else 0
            for index, command in enumerate(commands, last + 1):
                journal.add(command, index, 1)
            finish()

        ours, synced, plain = journals.ours, journals.synced, journals.plain
        contenders = {
            "holdfast": lambda ours=ours, add=add: add(ours, ours.flush),
            SYNCED: lambda synced=synced, add=add: add(synced, synced.flush),
            PLAIN: lambda plain=plain, add=add: add(plain, lambda: None),
        }
        medians, spreads = race(contenders, rounds=int(rounds * scale) or 3, per=1e-6)
        name = f"journal: {size} × 128 B added, then flushed"
        yield Measure(name, "µs", medians, spreads, aims={SYNCED: 1.0})
        journals.close()


def votes(scale: float) -> Iterator[Measure]:
    journals = Journals()

    def vote(journal: Any, finish: Callable[[], None]) -> None:
        journals.term += 1
        journal.setCurrentTerm(journals.term, "127.0.0.1:4321")
        finish()

    contenders = {
        "holdfast": lambda: vote(journals.ours, lambda: None),
        SYNCED: lambda: vote(journals.synced, journals.sync_meta),
        PLAIN: lambda: vote(journals.plain, lambda: None),
    }
    medians, spreads = race(contenders, rounds=int(300 * scale) or 3, per=1e-6)
    yield Measure("journal: a vote", "µs", medians, spreads, aims={SYNCED: 1.0})
    journals.close()


def starts(scale: float) -> Iterator[Measure]:
    """As many entries as PySyncObj lets gather, read and, by us, verified."""
    journals, count = Journals(), 5000
    for journal in (journals.ours, journals.plain):
        journals.fill(journal, count)
        journal._destroy()

    def open_ours() -> None:
        journals.ours = RaftJournal(OsDisk(journals.directory / "holdfast"))
        assert len(journals.ours) == count
        journals.ours._destroy()

    def open_plain() -> None:
        journals.plain = FileJournal(str(journals.directory / "plain"))
        assert len(journals.plain) == count
        journals.plain._destroy()

    contenders = {"holdfast": open_ours, PLAIN: open_plain}
    medians, spreads = race(contenders, rounds=int(30 * scale) or 3, per=1e-3)
    yield Measure(f"journal: opened with {count} × 128 B", "ms", medians, spreads)
    journals.synced._destroy()
    shutil.rmtree(journals.directory)


class Ours(DurableSyncObj):
    @replicated  # type: ignore[untyped-decorator]
    def put(self, word: bytes) -> None: ...


class Theirs(SyncObj):  # type: ignore[misc]
    @replicated  # type: ignore[untyped-decorator]
    def put(self, word: bytes) -> None: ...


def commands(scale: float) -> Iterator[Measure]:
    """From the call to the callback, through a whole node that is ticked without a pause."""
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir="."))
    nodes = {"holdfast": Ours, PLAIN: Theirs}
    started = {}
    for number, (name, kind) in enumerate(nodes.items()):
        address = f"127.0.0.1:{24_300 + os.getpid() % 5000 + number}"
        conf = SyncObjConf(
            journalFile=str(directory / f"{number}"),
            fullDumpFile=str(directory / f"{number}.dump"),
            autoTick=False,
            bindAddress=address,
            logCompactionMinEntries=10**9,
        )
        started[name] = kind(address, [], conf)
        while not started[name]._isLeader():
            started[name].doTick(0.01)

    def put(node: Any, count: int) -> None:
        heard: list[object] = []
        for _ in range(count):
            node.put(bytes(100), callback=lambda *answer: heard.append(answer))
        while len(heard) < count:
            node.doTick()

    for count, rounds in ((1, 200), (100, 60)):
        contenders = {
            name: lambda node=node, count=count: put(node, count) for name, node in started.items()
        }
        medians, spreads = race(contenders, rounds=int(rounds * scale) or 3, per=count)
        rates = {name: 1 / median for name, median in medians.items()}
        name = f"one node, {count} × 100 B at a time"
        yield Measure(name, "commands/s", rates, spreads, higher_is_better=True)
    for node in started.values():
        node.destroy()
    shutil.rmtree(directory)
