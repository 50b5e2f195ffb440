"""Damage logs at random, repair them, and compare the result with what the plan promised.

    Repairs("shanghai").trial(seed)

A log is written, and its files are kept at several moments.  Some files are then cut, flipped,
zeroed, deleted, swapped, duplicated or replaced by older copies.  What must hold:

1. `verify` and the plan agree: the log is damaged, torn or clean for both.
2. Readers return the entries that were acknowledged, or report damage.  Ranges are those of
   entries that the log had.
3. After the repair the log holds exactly the entries `kept`, and they are what was acknowledged.
4. Every entry is kept or listed as lost, unless what says how far the log went is harmed too.
5. Entries of files on the kept side of the damage, which nothing has touched, are kept.
6. `verify` is clean afterwards, and appends continue after the last entry that is kept.
7. Every payload that was still in a file is in a file: of the log, or a .cut file.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from random import Random
from typing import Any, Literal, NoReturn
from uuid import UUID

from holdfast.disk import Disk
from holdfast.errors import (
    CorruptError,
    HoldfastError,
    NotFoundError,
    OutOfRangeError,
    UnsupportedError,
)
from holdfast.logs import staging
from holdfast.logs.file_log import FileLog
from holdfast.logs.log import Damage, Log
from holdfast.logs.mark import MARK, REMEMBERED
from holdfast.logs.opening import FORMATS
from holdfast.logs.origin import Origin, write_origin
from holdfast.logs.repair import apply_repair, plan_repair
from holdfast.logs.repairing import Keep, RepairPlan
from holdfast.logs.replicas import Replicas
from holdfast.logs.retention import Retention
from holdfast.logs.verify import verify_log
from holdfast.ownership import LOCK
from holdfast.runtime import Runtime
from holdfast.testing.explorer import BrokenPromiseError
from holdfast.testing.harmed_files import Files, Harmed
from holdfast.testing.logs import NoTicker
from holdfast.testing.sim_disk import SimDisk

State = Literal["closed", "killed"]

OPTIONS: dict[str, dict[str, Any]] = {
    "shanghai": {"segment_size_max": 300},
    "raft-wal": {"segment_size_max": 400},
    "file-log": {"segment_size_max": 400, "capacity": 4},
}
KEEPS: tuple[Keep, ...] = "before", "after"
STATES: tuple[State, ...] = "closed", "killed"
# Files that say what the log had.  If they are damaged too, not every loss can be known.
WITNESSES = {MARK, REMEMBERED, "metadata.json", "wal-meta.db", "snap", "snap.tmp-0-mark"}
_HARMS_MAX = 3
_APP = "an application"


@dataclass(slots=True)
class Written:
    """A log before the damage: its files, its entries, and its files at earlier moments."""

    entries: dict[int, bytes] = field(default_factory=dict)  # all that were ever acknowledged
    first: int = 1  # those before were trimmed
    in_flight: dict[int, bytes] = field(default_factory=dict)
    files: Files = field(default_factory=dict)
    older: list[Files] = field(default_factory=list)
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)  # of each segment

    @property
    def last(self) -> int:
        return max(self.entries)


class Repairs:
    """Trials of one format, each decided by its seed.  `counts` says what came of them."""

    def __init__(self, format: str) -> None:
        self.format, self.counts = format, Counter[str]()
        self._logs: dict[tuple[int, State], Written] = {}

    def trial(self, seed: int) -> None:
        """Damage a log and repair it in both ways.  BrokenPromiseError if a promise is broken."""
        random = Random(f"{self.format} {seed}")
        state = random.choice(STATES)
        written = self.log(seed // 20, state)
        harm = Harmed(dict(written.files), written.older, protected)
        try:
            count = random.randint(1, _HARMS_MAX)
            while len(harm.done) < count:
                harm.harm(random)
            self.judge(written, harm)
        except Exception as error:
            error.add_note(f"{self.format}, seed {seed}, {state}: {'; '.join(harm.done)}")
            raise
        self.counts["trials"] += 1

    # Logs

    def log(self, seed: int, state: State) -> Written:
        """Return a log that was closed, or whose writer was killed."""
        if (seed, state) not in self._logs:
            self._logs[seed, state] = self._write(Random(f"log {self.format} {seed}"), state)
        return self._logs[seed, state]

    def _write(self, random: Random, state: State) -> Written:
        disk, written = SimDisk(), Written()
        log = self.open(disk, random)
        for step in range(random.randint(8, 14)):
            self._append(log, random, written)
            if random.random() < 0.3:
                log.rotate()
            if random.random() < 0.2:
                log.close()
                log = self.open(disk, random)
            if step == 6:
                self._add_side_files(disk, log, random)
                written.first = self.trim(log)
            written.older.append(files_of(disk))
        if state == "closed":
            log.close()
        written.files = files_of(disk)
        with closing(FORMATS[self.format].open_reader(disk)) as reader:
            written.spans = {s.name: (s.first_index, s.last_index) for s in reader.segments()}
        if state == "killed" and self.format != "file-log":
            written.files = self._torn(disk, log, random, written)
        return written

    def open(self, disk: Disk, random: Random) -> Log:
        """Own the log.  Its clock stands still, and its ids are decided by the seed."""
        runtime = Runtime(
            now_ns=lambda: 1_700_000_000 * 10**9,
            new_id=lambda: UUID(int=random.getrandbits(128)),
            ticker=NoTicker,
        )
        return FORMATS[self.format].open_writer(disk, runtime=runtime, **OPTIONS[self.format])

    def trim(self, log: Log) -> int:
        """Remove some old entries; return the first index that stays."""
        before = log.last_index // 3
        if isinstance(log, FileLog):
            log.create_snapshot(before, b"the state at %d" % before)
        log.trim(Retention(before=before))
        return log.first_index

    def _append(self, log: Log, random: Random, written: Written) -> None:
        payloads = [random.randbytes(random.randint(12, 60)) for _ in range(random.randint(1, 4))]
        first = log.last_index + 1
        log.append(payloads)
        written.entries |= dict(enumerate(payloads, first))

    def _add_side_files(self, disk: Disk, log: Log, random: Random) -> None:
        Replicas(disk, last_index=lambda: log.last_index).register("one", log.last_index)
        write_origin(disk, Origin("elsewhere", 1, {}))
        area = staging.area(disk)
        area.write_intent({})
        area.finish(staging.Transaction(_APP, 7), ())

    def _torn(self, disk: SimDisk, log: Log, random: Random, written: Written) -> Files:
        """Return the files as they are when a writer is killed during an append."""
        before, more = written.files, Written()
        self._append(log, random, more)
        after = files_of(disk)
        changed = [n for n in after if n != MARK and after[n] != before.get(n)]
        if after.keys() != before.keys() or len(changed) != 1 or random.random() < 0.3:
            return before
        written.in_flight = more.entries
        (name,) = changed
        a, b = before[name].ljust(len(after[name]), b"\0"), after[name]
        differing = [at for at in range(len(b)) if a[at] != b[at]]
        cut = random.randint(differing[0], differing[-1] + 1)
        size = max(len(before[name]), cut)
        return before | {name: (b[:cut] + a[cut:])[:size]}

    # Judgement

    def judge(self, written: Written, harm: Harmed) -> None:
        """Compare what verify, readers, plans and repaired logs say with what was written."""
        verdict = self._verdict(harm)
        self.counts[verdict] += 1
        self._compare_reader(written, harm)
        self._compare_owner(written, harm)
        for keep in KEEPS:
            disk = disk_of(harm.files)
            try:
                plan = plan_repair(disk, keep=keep)
            except (UnsupportedError, NotFoundError) as error:
                if verdict in ("clean", "torn tail"):
                    broken("broken", f"verify says {verdict}, repair {error!r}")
                self.counts["refused"] += 1
                continue
            if files_of(disk) != harm.files:
                broken("broken", "a plan has changed the log")
            planned = _verdict_of(plan)
            if planned != (verdict if verdict in ("clean", "torn tail") else "corrupt"):
                broken("broken", f"verify says {verdict}, the plan for {keep!r} says {planned}")
            try:
                self._compare_plan(written, harm, plan)
                apply_repair(disk, plan)
                self._compare_repaired(written, harm, plan, disk)
            except Exception as error:
                error.add_note(_described(plan))
                raise
            self.counts["repairs"] += planned == "corrupt"

    def _verdict(self, harm: Harmed) -> str:
        disk = disk_of(harm.files)
        try:
            report = verify_log(disk, pause=lambda ms: None)
        except (CorruptError, UnsupportedError, NotFoundError) as error:
            return type(error).__name__
        if files_of(disk) != harm.files:
            broken("broken", "verify has changed the log")
        for segment in report.segments:
            self._check_count(segment.first_index, segment.last_index, segment)
        self._check_count(1, report.entries, report)
        return report.verdict

    def _compare_reader(self, written: Written, harm: Harmed) -> None:
        try:
            reader = FORMATS[self.format].open_reader(disk_of(harm.files))
        except HoldfastError:
            return
        found: list[Damage] = []
        with closing(reader):
            self._check_ranges(written, harm, reader.damage)
            for segment in reader.segments():
                self._check_count(segment.first_index, segment.last_index, segment)
            try:
                batches = reader.scan(on_damage=found.append)
                rows = dict(chain.from_iterable(map(rows_of, batches)))
            except HoldfastError:
                rows = {}
            for index in (*written.entries, *written.in_flight):
                try:
                    rows[index] = reader.read(index)
                except (CorruptError, OutOfRangeError):
                    continue
        self._check_payloads(written, rows, "a reader")

    def _compare_owner(self, written: Written, harm: Harmed) -> None:
        """An owner that finds damage appends nothing and changes nothing."""
        disk = disk_of(harm.files)
        try:
            log = self.open(disk, Random(1))
        except HoldfastError:
            return
        with closing(log):
            self._check_ranges(written, harm, log.damage)
            if not log.damage:
                return
            try:
                log.append([b"over it"])
            except CorruptError:
                pass
            else:
                broken("broken", "an owner has appended to a damaged log")
        if files_of(disk) != harm.files:
            broken("broken", "an owner has changed a damaged log")

    def _compare_plan(self, written: Written, harm: Harmed, plan: RepairPlan[Any]) -> None:
        known = written.entries.keys() | written.in_flight.keys()
        kept = set(range(plan.kept[0], plan.kept[1] + 1))
        lost = [index for first, last in plan.lost for index in numbers(first, last)]
        self._check_ranges(written, harm, plan.damage)
        if lost != sorted(set(lost)):
            broken("broken", f"ranges of lost entries overlap: {plan.lost}")
        if wrong := kept & set(lost):
            broken("broken", f"{sorted(wrong)} are kept and lost")
        claimed = kept if harm.touched & WITNESSES else kept | set(lost)
        if wrong := claimed - known:
            broken("invented", f"{sorted(wrong)[:5]} were never there")
        missing = set(range(written.first, written.last + 1)) - kept - set(lost)
        if missing and not harm.touched & WITNESSES:
            broken("lost", f"{sorted(missing)} are neither kept nor listed as lost")
        if not harm.touched - written.spans.keys():
            self._compare_untouched(written, harm, plan, kept)

    def _compare_untouched(
        self, written: Written, harm: Harmed, plan: RepairPlan[Any], kept: set[int]
    ) -> None:
        order = [*written.spans]
        at = [number for number, name in enumerate(order) if name in harm.touched]
        sound = order[: at[0]] if plan.keep == "before" else order[at[-1] + 1 :]
        for name in sound:
            if gone := set(numbers(*written.spans[name])) - kept:
                broken("lost", f"{sorted(gone)} of {name}, which was not touched, are not kept")

    def _compare_repaired(
        self, written: Written, harm: Harmed, plan: RepairPlan[Any], disk: SimDisk
    ) -> None:
        after = [*files_of(disk).values()]
        for index, payload in written.entries.items():
            if index < written.first:
                continue  # trimmed, and in a file that was restored
            if is_in(payload, harm.files.values()) and not is_in(payload, after):
                broken("lost", f"the payload of entry {index} is in no file any more")
        self._compare_log(written, plan, disk, {})
        more = [b"after the repair", b"and one more"]
        with closing(self.open(disk, Random(1))) as log:
            last = log.append(more)
        if last != plan.kept[1] + 2:
            broken("broken", f"appended up to {last}, but {plan.kept} was kept")
        self._compare_log(written, plan, disk, dict(enumerate(more, plan.kept[1] + 1)))

    def _compare_log(
        self, written: Written, plan: RepairPlan[Any], disk: Disk, more: dict[int, bytes]
    ) -> None:
        with closing(FORMATS[self.format].open_reader(disk)) as reader:
            if reader.damage:
                broken("broken", f"still damaged: {reader.damage[0]}")
            rows = dict(chain.from_iterable(map(rows_of, reader.scan())))
        if [*rows] != [*numbers(plan.kept[0], plan.kept[1] + len(more))]:
            broken("broken", f"the plan keeps {plan.kept}, but the log holds {[*rows]}")
        for index, payload in more.items():
            if rows.pop(index) != payload:
                broken("lost", f"entry {index}, appended after the repair, is another one")
        self._check_payloads(written, rows, "the repaired log")
        report = verify_log(disk, pause=lambda ms: None)
        if report.verdict != "clean":
            broken("broken", f"{report.verdict} after the repair: {report.segments}")

    def _check_payloads(self, written: Written, rows: Mapping[int, bytes], where: str) -> None:
        known = written.entries | written.in_flight
        if wrong := [index for index in rows if rows[index] != known.get(index)]:
            broken("invented", f"{where} has other entries than were written: {wrong[:5]}")

    def _check_ranges(self, written: Written, harm: Harmed, damage: Any) -> None:
        last = max(written.entries.keys() | written.in_flight.keys())
        if harm.touched & WITNESSES:
            last = 2**40  # nothing contradicts a file that was copied to a later name
        for one in damage:
            if not (0 <= one.first_index <= one.last_index <= last and one.offset >= 0):
                broken("invented", f"the log never had such entries: {one}")

    def _check_count(self, first: int, last: int, what: object) -> None:
        if last < first - 1 or last >= 2**40:
            broken("invented", f"absurd figures: {what}")


def files_of(disk: SimDisk) -> Files:
    """Return the files of a log, without its lock."""
    return {name: data for name, data in disk.files().items() if name != LOCK}


def disk_of(files: Files) -> SimDisk:
    """Return a disk with these files."""
    disk = SimDisk()
    for name, data in files.items():
        disk.create(name, data)
    return disk


def is_in(payload: bytes, files: Iterable[bytes]) -> bool:
    """Return whether a file has these bytes."""
    return any(payload in data for data in files)


def rows_of(batch: Any) -> Iterator[tuple[int, bytes]]:
    """Yield the entries of a scanned batch."""
    return zip(batch["index"].to_pylist(), batch["payload"].to_pylist(), strict=True)


def protected(name: str, data: bytes) -> tuple[int, int]:
    """Return the range of bytes of a file in which a change is noticed."""
    return (0, 24 if name.endswith(".rlog") else len(data))  # a FileLog has no checksums


def numbers(first: int, last: int) -> range:
    """Return the indexes of a range, both ends included; no more than a test can hold."""
    return range(first, min(last, first + 10_000) + 1)


def broken(kind: str, what: str) -> NoReturn:
    raise BrokenPromiseError(kind, what)


def _verdict_of(plan: RepairPlan[Any]) -> str:
    if not plan.is_needed:
        return "clean"
    return "corrupt" if plan.side_files or not all(d.torn for d in plan.damage) else "torn tail"


def _described(plan: RepairPlan[Any]) -> str:
    steps = "; ".join(map(str, plan.steps))
    damage = "; ".join(map(str, (*plan.damage, *plan.side_files)))
    return (
        f"keep {plan.keep}: kept {plan.kept}, lost {plan.lost}, unknown {plan.unknown}; "
        f"steps: {steps}; damage: {damage}"
    )
