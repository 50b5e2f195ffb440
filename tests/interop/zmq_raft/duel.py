"""Both programs change one directory in turns: entries, requests that expire, snapshots, the state.

After every turn both are opened and must show the same: entries, snapshot, state, and the index of
every request.  The real zmq-raft is killed in the middle of commands, and our owner is left as a
kill leaves it.  A seed decides everything but the moment of a kill.
"""

import shutil
import time
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.interop.zmq_raft.node import Node
from tests.interop.zmq_raft.turns import Model, Turns

from holdfast.disk import OsDisk
from holdfast.formats.rlog_entry import NO_REQUEST, FileEntry
from holdfast.logs.file_log import RAFT_STATE, FileLog, FileLogReader
from holdfast.logs.file_log.repair import plan_repair
from holdfast.logs.file_log.state import read_state
from holdfast.logs.retention import Retention
from holdfast.logs.verify import verify_log
from holdfast.runtime import Runtime

TTL_MS = 60_000
START_MS = 1_704_164_645_678
STATE_KEYS = ("currentTerm", "votedFor", "peers", "peersIndex")


class Peer:
    """The real program, with the clock of a duel; it may be killed in the middle of a command."""

    def __init__(self, package: Path, duel: "Duel") -> None:
        self.package, self.duel = package, duel
        self.node: Node | None = None
        self.kills_next = False
        self.kills = 0

    def __call__(self, command: str, **fields: Any) -> Any:
        self.node = self.node or Node(self.package, str(START_MS))
        self.duel.now_ms += 1
        if not self.kills_next:
            return self.node(command, now=self.duel.now_ms, **fields)
        self.kills_next = False
        self.node.send(command, now=self.duel.now_ms, **fields)
        time.sleep(self.duel.random.random() * 0.004)  # any moment will do
        self.node.kill()
        self.kills, self.node = self.kills + 1, None
        return None

    def stop(self) -> None:
        if self.node is not None:
            self.node.stop()


class Duel(Turns):
    def __init__(self, package: Path, path: Path, seed: int) -> None:
        self.now_ms = START_MS
        self.peer = Peer(package, self)
        super().__init__(self.peer, path, seed)
        self.runtime = Runtime(now_ns=lambda: self.now_ms * 10**6)
        self.ids: list[bytes] = []  # of all requests
        self.state: dict[str, Any] = dict(RAFT_STATE)
        self.copies = 0

    def run(self) -> None:
        try:
            for _ in range(5):
                self.turn()
        finally:
            if self.mine is not None:
                self.mine.close()
            self.peer.stop()

    def turn(self) -> None:
        random, kills = self.random, self.peer.kills
        self.open(ours=random.random() < 0.5)
        steps = [self.append, self.append, self.append, self.request, self.request, self.cut,
                 self.compact, self.discard, self.rotate, self.prune, self.update]  # fmt: skip
        before, is_ours = deepcopy((self.model, self.state)), self.mine is not None
        for _ in range(random.randint(2, 8)):
            before = deepcopy((self.model, self.state))
            self.peer.kills_next = not is_ours and random.random() < 0.15
            random.choice(steps)()
            if self.peer.kills > kills:
                break
        self.peer.kills_next = False
        self.now_ms += 1000 + random.choice((0, 5_000, 20_000, TTL_MS + 1_000))
        if self.peer.kills > kills:
            self.recover(*before)
        elif is_ours and random.random() < 0.3:
            self.leave_as_a_kill_does()
        else:
            self.close()
        assert [d for d in plan_repair(OsDisk(self.path)).damage if not d.torn] == []
        for compare in random.sample((self.compare_with_theirs, self.compare_with_ours), 2):
            compare()
        self.compare_requests()

    def open(self, *, ours: bool) -> None:
        if not ours:
            self.node("open", directory=str(self.path), capacity=self.capacity, ttl=TTL_MS)
            return
        self.mine = self.opened(sync_mode=self.random.choice(("ordered", "ordered", "original")))

    def opened(self, **options: Any) -> FileLog:
        self.now_ms += 1
        size = 500 if self.leaves_room else 2**20
        log = FileLog(
            OsDisk(self.path),
            capacity=self.capacity,
            segment_size_max=size,
            request_ttl_ms=TTL_MS,
            runtime=self.runtime,
            **options,
        )
        assert log.damage == (), "no program has damaged it"
        return log

    # What either does

    def entry(self, term: int) -> FileEntry:
        plain = super().entry(term)
        return FileEntry(term, plain.data, plain.type, self.new_id())

    def new_id(self) -> bytes:
        """Return an id that is fresh, too old, or missing; or one that was used before."""
        kind = self.random.random()
        if kind < 0.25:
            return NO_REQUEST
        if kind < 0.35 and self.ids:
            return self.random.choice(self.ids[-20:])
        age_ms = self.random.choice((0, 0, 10_000, TTL_MS - 1_000, 3 * TTL_MS))
        seconds = (self.now_ms - age_ms) // 1000
        self.ids.append(seconds.to_bytes(4, "big") + self.number.to_bytes(8, "big"))
        return self.ids[-1]

    def request(self) -> None:
        """Send a request, perhaps once more: it is appended only if it is not remembered."""
        self.number += 1
        request_id, data = self.new_id(), self.random.randbytes(20)
        if request_id == NO_REQUEST:
            return
        term = max(self.model.term, 1)
        if self.mine is not None:
            known = self.mine.find_request(request_id)
            index = self.mine.append_request(request_id, data, term=term)
            assert index == (known or self.model.last + 1)
        else:
            fields = {"requestId": request_id.hex(), "term": term, "data": data.hex()}
            index = self.node("request", **fields) or self.model.last + 1
        if index > self.model.last:
            self.model.put(index, [FileEntry(term, data, 0, request_id)])

    def prune(self) -> None:
        """Remove files that the snapshot covers: we keep those with remembered requests."""
        if self.mine is not None:
            now_ms, known = self.now_ms, [self.mine.find_request(one) for one in self.ids]
            self.mine.trim(Retention(before=self.mine.first_index))
            self.mine.close()
            self.mine = self.opened()
            self.now_ms = now_ms
            assert [self.mine.find_request(one) for one in self.ids] == known
            return
        for one, two in pairwise(sorted((self.path / "log").rglob("*.rlog"))):
            if int(two.stem, 16) <= self.model.first:  # zmq-raft leaves this to its operator
                one.unlink()

    def update(self) -> None:
        """Change the server's state; large values make the file roll."""
        random = self.random
        many = [[f"id{n}", f"tcp://{n:0200}"] for n in range(random.choice((0, 1, 800)))]
        updates: list[dict[str, Any]] = [
            random.choice(
                (
                    {"currentTerm": random.choice((1, 127, 2**31, 2**40 + random.randrange(9)))},
                    {"votedFor": random.choice((None, "id1", "z" * 300))},
                    {"peers": many, "peersIndex": random.randrange(100)},
                    {"currentTerm": random.randrange(99), "votedFor": "id2"},
                )
            )
            for _ in range(random.randint(1, 4))
        ]
        rotates = random.random() < 0.2
        if self.mine is not None:
            for update in updates:
                self.mine.state.update(update)
            if rotates:
                self.mine.state.rotate()
        else:
            fields = {"updates": updates, "rotate": rotates}
            self.node("state", directory=str(self.path), **fields)
        self.updates = updates
        for update in updates:
            self.state.update(update)

    # After a kill

    def leave_as_a_kill_does(self) -> None:
        """Continue with a copy of the directory: our owner closes the one that nobody sees."""
        assert self.mine is not None
        self.copies += 1
        copy = self.path.with_name(f"{self.path.name}-{self.copies}")
        shutil.copytree(self.path, copy)
        self.mine.close()
        shutil.rmtree(self.path)
        self.mine, self.path = None, copy

    def recover(self, before: Model, state: dict[str, Any]) -> None:
        """The command was carried out, or a part of it, or nothing.  We open the log first."""
        after = self.model
        with FileLogReader(OsDisk(self.path)) as guest:
            assert guest.damage == ()
        with self.opened() as log:
            self.model = found = shown(log)
            found_state = log.state.values
        if found.snapshot == before.snapshot:
            assert found.first == before.first
            assert is_between(found.entries, before, after)
        else:
            assert (found.first, found.snapshot) == (after.first, after.snapshot)
            assert found.entries == after.entries
        states = [state]
        for update in self.updates if state != self.state else []:
            states.append({**states[-1], **update})
        assert only(found_state) in [only(one) for one in states]
        self.state = found_state

    # Comparing

    def compare_with_theirs(self) -> None:
        model = self.model
        self.open(ours=False)
        found = self.node("dump")
        self.node("close")
        index, term, data = model.snapshot
        assert found["snapshot"] == {"index": index, "term": term, "data": data.hex()}
        assert (found["firstIndex"], found["lastIndex"]) == (model.first, model.last)
        assert found["entries"] == self.encoded(model.entries)
        state = self.node("state", directory=str(self.path), updates=[], rotate=False)
        assert only(state) == only(self.state)

    def compare_with_ours(self) -> None:
        with FileLogReader(OsDisk(self.path)) as guest:
            assert guest.damage == ()
            assert shown(guest) == self.model
        assert only({**RAFT_STATE, **read_state(OsDisk(self.path))}) == only(self.state)
        with self.opened() as log:
            assert shown(log) == self.model
            assert only(log.state.values) == only(self.state)
        assert verify_log(OsDisk(self.path)).verdict == "clean"

    def compare_requests(self) -> None:
        """Both programs find the same entry for every request."""
        self.open(ours=False)
        asked_ms = self.now_ms  # when they looked at all ids
        theirs = self.node("findAll", requestIds=[one.hex() for one in self.ids])
        self.node("close")
        with self.opened() as log:
            self.now_ms = asked_ms
            ours = [log.find_request(one) for one in self.ids]
        rows = zip(self.ids, ours, theirs, strict=True)
        assert [row for row in rows if row[1] != row[2]] == []


def shown(log: FileLog | FileLogReader) -> Model:
    model = Model()
    model.first = log.first_index
    model.entries = [log.get_entry(i) for i in range(log.first_index, log.last_index + 1)]
    model.snapshot = log.snapshot.index, log.snapshot.term, log.read_snapshot()
    return model


def is_between(found: list[FileEntry], before: Model, after: Model) -> bool:
    """Whether a program that was killed may leave this: entries go and come one after another."""
    if before.snapshot != after.snapshot:
        return found == before.entries
    pairs = zip(before.entries, after.entries, strict=False)
    both = min(len(before.entries), len(after.entries))
    common = next((n for n, (one, two) in enumerate(pairs) if one != two), both)
    count = len(found)
    return count >= common and found in (before.entries[:count], after.entries[:count])


def only(state: dict[str, Any]) -> dict[str, Any]:
    return {name: state[name] for name in STATE_KEYS}
