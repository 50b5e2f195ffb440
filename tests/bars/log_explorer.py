"""Crashes the log of a bar store alone, many thousands of times a second.

What a crash leaves of year files is tried by holdfast.testing.bars, and takes longer.  Here groups
are committed, prepared, decided and reported done, power is cut at every change, and the log that
is found must show every group that was acknowledged, in order, and nothing else.
"""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from holdfast.bars.view import complete
from holdfast.bars.wal import Content, Wal, find_logs
from holdfast.formats import market_wal as fmt
from holdfast.testing.explorer import BrokenPromiseError
from holdfast.testing.sim_disk import SimDisk

_NAME = "WALFile.1600000000000000000"


@dataclass(slots=True)
class LogLedger:
    """Tgids: of groups committed, done, and undecided; and what the write in flight would add."""

    committed: list[int] = field(default_factory=list)
    done: int = 0  # how many of these are in the year files
    undecided: list[int] = field(default_factory=list)
    flight: "tuple[list[int], int, list[int]] | None" = None

    def allows(self, committed: list[int], done: int, undecided: list[int]) -> bool:
        """Of what is done less may be known: then it is done again."""
        now = self.committed, self.done, self.undecided
        futures = [now] if self.flight is None else [now, self.flight]
        known = (committed, undecided) in [(one[0], one[2]) for one in futures]
        return known and self.done <= done <= futures[-1][1]


class LogExplorer:
    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.fired: Counter[str] = Counter()
        self._seen: set[int] = set()

    @property
    def images(self) -> int:
        """Distinct logs that were read and judged."""
        return len(self._seen)

    def life(self, seed: int, *, writes: int = 4, images_per_point: int = 25) -> None:
        """One log from its first write on; at each change, much of what a power cut could leave."""
        disk, ledger, random = SimDisk(), LogLedger(), Random(f"{self.seed}/{seed}")
        wal = Wal.create(disk, _NAME, 7)

        def crash() -> None:
            chance = Random(f"{self.seed}/{seed}/{disk.posix.operations}")
            for _ in range(images_per_point):
                self._judge(disk.after_power_cut(chance), ledger, seed)
            self._judge(disk.copy_after_kill(), ledger, seed)

        disk.posix.fired, disk.posix.witness = self.fired, crash
        for number in range(writes):
            self._write(wal, ledger, 100 + number, random)

    def _write(self, wal: Wal, ledger: LogLedger, tgid: int, random: Random) -> None:
        """One write of the store, of any kind."""
        committed, done, undecided = list(ledger.committed), ledger.done, list(ledger.undecided)
        place = fmt.encode_place(fmt.FIXED, "A/1D/BAR/2020.bin", 2020, 1)
        sets = fmt.encode_set(place, [3], random.randbytes(8), 8)
        kind = random.random()
        if kind < 0.2 and done < len(committed):
            fresh = committed[done:]
            infos = [fmt.encode_info(one, fmt.PRIMARY, fmt.COMPLETE) for one in fresh]
            messages, done = b"".join(infos), len(committed)
        elif kind < 0.4:
            messages = fmt.encode_write(
                tgid, fmt.encode_decision() + sets, 2, fmt.INTENDED
            ).messages
            undecided.append(tgid)
        elif kind < 0.6 and undecided:
            waiting = undecided.pop(0)
            status = fmt.COMPLETE if random.random() < 0.5 else fmt.ABORTED
            decision = fmt.encode_write(tgid, fmt.encode_decision(waiting, status), 1)
            messages = decision.messages + fmt.encode_info(waiting, fmt.WAL, status)
            committed += [waiting] if status == fmt.COMPLETE else []
        else:
            messages = fmt.encode_write(tgid, sets, 1).messages
            committed.append(tgid)
        ledger.flight = committed, done, undecided
        wal.append(messages)
        ledger.committed, ledger.done, ledger.undecided = ledger.flight
        ledger.flight = None

    def _judge(self, disk: SimDisk, ledger: LogLedger, seed: int) -> None:
        files = disk.files()
        image = hash((files.get(_NAME), str(ledger)))
        if image in self._seen:
            return
        self._seen.add(image)
        shown = _content_of(files[_NAME]) if find_logs(disk) else ([], 0, [])
        if not ledger.allows(*shown):
            raise BrokenPromiseError("lost", f"{shown} is not what {ledger} promised; seed {seed}")


def _content_of(data: bytes) -> tuple[list[int], int, list[int]]:
    content = Content(_NAME)
    content.read(memoryview(data))
    if content.damage:
        raise BrokenPromiseError("hidden", str(content.damage[0]))
    stop = content.stop
    if content.flaw is not None:  # it is cut there, and nothing of it may come back
        content = Content(_NAME)
        content.read(memoryview(data[:stop]))
        if content.flaw is not None:
            raise BrokenPromiseError("hidden", content.flaw.why)
    complete(content.changes)
    tgids = [change.tgid for change in content.changes]
    return tgids, sum(change.is_done for change in content.changes), list(content.undecided)
