"""Two programs change one log in turns, and both are compared with a model."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from holdfast.disk import OsDisk
from holdfast.formats.rlog_entry import encode_entries
from holdfast.logs.file_log import FileEntry, FileLog, FileLogReader
from holdfast.logs.file_log.directory import UNTOUCHED
from holdfast.logs.file_log.repair import plan_repair
from holdfast.logs.verify import verify_log

Program = Callable[..., Any]  # takes a command and its fields


@dataclass
class Model:
    """The state that both programs must show."""

    first: int = 1
    snapshot: tuple[int, int, bytes] = (0, 0, b"")
    entries: list[FileEntry] = field(default_factory=list)  # from `first` on

    @property
    def last(self) -> int:
        return self.first + len(self.entries) - 1

    @property
    def term(self) -> int:
        return self.entries[-1].term if self.entries else self.snapshot[1]

    def put(self, index: int, entries: list[FileEntry]) -> None:
        self.entries[index - self.first :] = entries

    def install(self, index: int, term: int, data: bytes) -> None:
        self.entries = self.entries[index + 1 - self.first :] if index <= self.last else []
        self.first, self.snapshot = index + 1, (index, term, data)


class Turns:
    """One directory and one model; two programs change it in turns."""

    def __init__(self, node: Program, path: Path, seed: int) -> None:
        self.node, self.path, self.random, self.model = node, path, Random(seed), Model()
        self.capacity = self.random.choice((1, 4, 16, 64))
        # Only we create a file after one with room left.  The other program reads such files and
        # continues after them, but cannot roll back over such a place.
        self.leaves_room = self.random.random() < 0.4
        self.number = seed * 10_000
        self.mine: FileLog | None = None
        path.mkdir()

    def run(self) -> None:
        for turn in range(4):
            is_ours = self.random.random() < 0.5 if turn else self.random.random() < 0.7
            self.open(ours=is_ours)
            for _ in range(self.random.randint(1, 6)):
                self.random.choice([self.append, self.append, self.append, self.cut, self.compact,
                                    self.discard, self.rotate])()  # fmt: skip
                if self.random.random() < 0.3:
                    self.look_at_a_copy()
            self.close()
            self.compare_theirs(self.path)
            self.compare_ours()

    # What either does

    def append(self) -> None:
        model, random = self.model, self.random
        term = max(model.term, 1) + (random.random() < 0.2)
        entries = [self.entry(term) for _ in range(random.choice((1, 1, 2, 5, 20)))]
        index = model.last + 1
        if self.may_cut and random.random() < 0.15:
            index = random.randint(model.first, model.last)
            before = model.entries[index - model.first - 1].term if index > model.first else 0
            term = max(before, model.snapshot[1], 1)
            entries = [FileEntry(term, e.data, e.type, e.request_id) for e in entries]
        self.put(entries, index)
        model.put(index, entries)

    def put(self, entries: list[FileEntry], index: int) -> None:
        given = index if index <= self.model.last else None
        if self.mine is not None:
            self.mine.append_entries(entries, given)
            return
        if len(entries) == 1 and given is None and self.random.random() < 0.5:
            one = entries[0]
            fields = {"requestId": one.request_id.hex(), "type": one.type, "term": one.term}
            self.node("entry", data=bytes(one.data).hex(), **fields)
            return
        encoded = self.encoded(entries)
        self.node("entries", entries=encoded, **({} if given is None else {"index": given}))

    def encoded(self, entries: list[FileEntry]) -> list[str]:
        return [encode_entries([entry])[0].hex() for entry in entries]

    @property
    def may_cut(self) -> bool:
        return bool(self.model.entries) and (self.mine is not None or not self.leaves_room)

    def cut(self) -> None:
        model = self.model
        if self.may_cut:
            index = self.random.randint(model.first, model.last)
            if self.mine is not None:
                self.mine.truncate_tail(index - 1)
            else:
                self.node("entries", entries=[], index=index)
            model.put(index, [])

    def compact(self) -> None:
        model = self.model
        if model.entries and self.random.random() < 0.5:
            index = self.random.randint(model.first, model.last)
            self.install(index, model.entries[index - model.first].term, compact_only=True)

    def discard(self) -> None:
        if self.random.random() < 0.3:
            index = self.model.last + self.random.randint(1, 30)
            self.install(index, self.model.term + 1, compact_only=False)

    def install(self, index: int, term: int, *, compact_only: bool) -> None:
        data = self.random.randbytes(self.random.choice((0, 1, 100, 5000)))
        if self.mine is not None:
            self.mine.install_snapshot(index, term, data, compact_only=compact_only)
        else:
            fields = {"index": index, "term": term, "data": data.hex()}
            self.node("snapshot", compactOnly=compact_only, **fields)
        self.model.install(index, term, data)

    def rotate(self) -> None:
        if self.mine is not None and self.leaves_room:
            self.mine.rotate()

    def entry(self, term: int) -> FileEntry:
        self.number += 1
        size = self.random.choice((1, 2, 3, 50, 900))
        request_id = b"\x7f\xff\xff\xff" + self.number.to_bytes(8, "big")
        return FileEntry(
            term, self.random.randbytes(size), self.random.choice((0, 0, 1)), request_id
        )

    # Opening, closing, comparing

    def open(self, *, ours: bool) -> None:
        if not ours:
            self.node("open", directory=str(self.path), capacity=self.capacity)
            return
        self.mine = FileLog(
            OsDisk(self.path),
            capacity=self.capacity,
            segment_size_max=500 if self.leaves_room else 2**20,
            sync_mode=self.random.choice(("ordered", "ordered", "original")),
        )
        assert self.mine.damage == ()

    def close(self) -> None:
        if self.mine is not None:
            self.mine.close()
            self.mine = None
        else:
            self.node("close")

    def look_at_a_copy(self) -> None:
        """The other program can read what a killed owner of ours leaves."""
        if self.mine is not None:
            copy = Path(shutil.copytree(self.path, self.path.with_name("copy")))
            self.compare_theirs(copy)
            shutil.rmtree(copy)

    def compare_theirs(self, path: Path) -> None:
        model = self.model
        self.node("open", directory=str(path), capacity=self.capacity)
        found = self.node("dump")
        known = [self.node("find", requestId=e.request_id.hex()) for e in model.entries[-3:]]
        self.node("close")
        index, term, data = model.snapshot
        assert found["snapshot"] == {"index": index, "term": term, "data": data.hex()}
        assert (found["firstIndex"], found["lastIndex"]) == (model.first, model.last)
        assert found["entries"] == self.encoded(model.entries)
        assert known == list(range(max(model.first, model.last - 2), model.last + 1))

    def compare_ours(self) -> None:
        model = self.model
        assert verify_log(OsDisk(self.path)).verdict == "clean"
        assert plan_repair(OsDisk(self.path)).damage == ()
        with FileLogReader(OsDisk(self.path)) as reader:
            assert (reader.damage, reader.last_index) == ((), model.last)
        assert not (self.path / UNTOUCHED).exists(), "the other program has opened the log"
        with FileLog(OsDisk(self.path)) as log:
            assert (log.damage, log.recovered) == ((), ())
            assert (log.first_index, log.last_index) == (model.first, model.last)
            assert [log.get_entry(i) for i in range(model.first, model.last + 1)] == model.entries
            assert (log.snapshot.index, log.snapshot.term) == model.snapshot[:2]
            assert log.read_snapshot() == model.snapshot[2]
            for index in range(max(model.first, model.last - 2), model.last + 1):
                assert log.find_request(log.get_entry(index).request_id) == index
