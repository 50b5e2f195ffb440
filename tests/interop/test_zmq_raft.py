"""The real zmq-raft reads, checks and continues our files, and we continue its files."""

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.interop.zmq_raft.duel import Duel
from tests.interop.zmq_raft.node import Node, find_package
from tests.interop.zmq_raft.turns import Turns

from holdfast.disk import OsDisk
from holdfast.errors import CorruptError
from holdfast.formats.rlog_entry import encode_entries
from holdfast.logs.file_log import (
    FileEntry,
    FileLog,
    FileLogReader,
    StateFile,
    promise,
    requests,
)
from holdfast.logs.file_log.directory import UNTOUCHED
from holdfast.logs.file_log.repair import apply_repair, plan_repair
from holdfast.logs.mark import MARK
from holdfast.reserve import RESERVE
from holdfast.runtime import Runtime

FROZEN_MS, HOST = 1_704_164_645_678, "golden-host"
FROZEN = Runtime(now_ns=lambda: FROZEN_MS * 10**6, hostname=lambda: HOST)
STAMP = "-2024-01-02-030405-678"


@pytest.fixture(scope="session")
def package() -> Path:
    package, reason = find_package()
    if package is None:
        pytest.skip(reason)
    return package


@pytest.fixture(scope="session")
def node(package: Path) -> Iterator[Node]:
    process = Node(package)
    yield process
    process.stop()


@pytest.mark.parametrize("seed", range(50))
def test_both_write_one_log_in_turns(node: Node, tmp_path: Path, seed: int) -> None:
    Turns(node, tmp_path / "raft", seed).run()


@pytest.mark.parametrize("seed", range(6))
def test_both_duel_over_requests_snapshots_and_state(
    package: Path, tmp_path: Path, seed: int
) -> None:
    """`make campaign` runs it with more seeds."""
    Duel(package, tmp_path / "raft", seed).run()


@pytest.mark.parametrize("bug", ["mark", "requests"])
def test_a_duel_catches_a_planted_bug(
    package: Path, tmp_path: Path, bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if bug == "mark":  # what zmq-raft has rolled back is missed
        monkeypatch.setattr(promise, "_still_holds", lambda *_: True)
    else:  # only the last file is searched
        load = requests.RequestCache.load
        monkeypatch.setattr(
            requests.RequestCache, "load", lambda self, parts: load(self, parts[-1:])
        )
    with pytest.raises((AssertionError, CorruptError)):
        for seed in range(12):
            Duel(package, tmp_path / str(seed), seed).run()


@pytest.mark.parametrize("how", ["cut", "flipped", "emptied", "files gone", "cut and appended to"])
def test_damage_is_found_after_the_original_was_there(node: Node, tmp_path: Path, how: str) -> None:
    with FileLog(OsDisk(tmp_path), capacity=8) as log:
        for number in range(1, 13):
            log.append([b"entry %d" % number])
    first, last = sorted(tmp_path.rglob("*.rlog"))
    node("open", directory=str(tmp_path), capacity=8, readOnly=True)
    node("close")
    assert (tmp_path / UNTOUCHED).exists(), "it opened the log read-only, and changed nothing"
    node("open", directory=str(tmp_path), capacity=8)
    if how == "cut and appended to":
        node("entries", entries=[encode_entries([FileEntry(2, b"more")])[0].hex()], index=13)
    node("close")
    assert not (tmp_path / UNTOUCHED).exists()
    data = last.read_bytes()
    if how == "flipped":
        last.write_bytes(data[:-1] + bytes((data[-1] ^ 1,)))
    elif how == "files gone":
        first.unlink()
        last.unlink()
    else:
        last.write_bytes(b"" if how == "emptied" else data[: -40 if "appended" in how else -3])
    lost = {"files gone": (1, 12), "emptied": (8, 12)}.get(how, (12, 12))
    with FileLogReader(OsDisk(tmp_path)) as reader:
        assert [(d.first_index, d.last_index) for d in reader.damage] == [lost]
    with FileLog(OsDisk(tmp_path)) as log, pytest.raises(CorruptError):
        log.append([b"no"])
    apply_repair(OsDisk(tmp_path), plan_repair(OsDisk(tmp_path)))
    node("open", directory=str(tmp_path), capacity=8)
    assert node("dump")["lastIndex"] == lost[0] - 1
    node("close")


def test_both_write_one_state_file_in_turns(node: Node, tmp_path: Path) -> None:
    random = Random(1)
    values: dict[str, Any] = {}
    for turn in range(12):
        updates = [
            random.choice(
                (
                    {"currentTerm": random.choice((1, 127, 2**31, 2**40 + turn))},
                    {"votedFor": random.choice((None, "id1", "z" * 300))},
                    {"peers": [["id1", "tcp://127.0.0.1:8047"]], "peersIndex": turn},
                    {},
                )
            )
            for _ in range(random.randint(1, 5))
        ]
        for update in updates:
            values.update(update)
        rotates = random.random() < 0.3
        if turn % 2:
            found = node("state", directory=str(tmp_path), updates=updates, rotate=rotates)
        else:
            with StateFile(OsDisk(tmp_path)) as state:
                for update in updates:
                    state.update(update)
                if rotates:
                    state.rotate()
                found = state.values
        assert {name: found[name] for name in values} == values


class Twins(Turns):
    """The same operations by both programs, each in its own directory, with a stopped clock."""

    def __init__(self, node: Node, path: Path, seed: int) -> None:
        super().__init__(node, path / "ours", seed)
        self.theirs, self.leaves_room = path / "theirs", False
        self.theirs.mkdir()

    def run(self) -> None:
        for _ in range(3):
            self.open(ours=True)
            self.node("open", directory=str(self.theirs), capacity=self.capacity)
            for _ in range(self.random.randint(1, 8)):
                step = self.random.choice([self.append, self.append, self.cut, self.compact,
                                           self.discard])  # fmt: skip
                step()
            self.close()
            self.node("close")
            assert files_of(self.path) == files_of(self.theirs)

    def open(self, *, ours: bool) -> None:
        self.mine = FileLog(OsDisk(self.path), capacity=self.capacity, runtime=FROZEN)

    def put(self, entries: list[FileEntry], index: int) -> None:
        given = {"index": index} if index <= self.model.last else {}
        encoded = [encode_entries([entry])[0].hex() for entry in entries]
        self.node("entries", entries=encoded, **given)
        super().put(entries, index)

    def cut(self) -> None:
        before = self.model.last
        super().cut()
        if self.model.last < before:
            self.node("entries", entries=[], index=self.model.last + 1)

    def install(self, index: int, term: int, *, compact_only: bool) -> None:
        super().install(index, term, compact_only=compact_only)
        data = self.model.snapshot[2].hex()
        fields = {"index": index, "term": term, "data": data}
        self.node("snapshot", compactOnly=compact_only, **fields)


def files_of(path: Path) -> list[tuple[str, bytes]]:
    """Names, without the number that a stopped clock makes necessary, and contents."""
    return sorted(
        (re.sub(rf"{STAMP}\w+", STAMP, str(file.relative_to(path))), file.read_bytes())
        for file in path.rglob("*")
        if file.is_file() and file.name not in ("LOCK", RESERVE, MARK, UNTOUCHED)
    )


@pytest.mark.parametrize("seed", range(12))
def test_the_same_operations_give_the_same_bytes(package: Path, tmp_path: Path, seed: int) -> None:
    node = Node(package, str(FROZEN_MS))
    Twins(node, tmp_path, seed).run()
    node.stop()
