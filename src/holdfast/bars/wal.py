"""The write-ahead log of a bar store: one growing file, and the state that its messages describe.

Invariant: every write to the file is synced before the next begins.  So a crash tears the last
write and nothing else.  Invalid bytes with valid messages after them are damage.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from holdfast.bars.view import Change
from holdfast.disk import Disk, File, Lock
from holdfast.formats import market_wal as fmt
from holdfast.formats.flaw import Flaw
from holdfast.ownership import LOCK
from holdfast.runtime import Runtime

_NAME = re.compile(r"WALFile\.([0-9]{1,19})(\.walfile)?")


@dataclass(frozen=True, slots=True)
class Damage:
    """A place where durable bytes are invalid, and what may be lost with them."""

    file: str
    offset: int
    why: str

    def __str__(self) -> str:
        return f"{self.file} at byte {self.offset}: {self.why}"


@dataclass(frozen=True, slots=True)
class LogName:
    created_ns: int
    is_foreign: bool  # written by MarketStore's own program
    name: str


def find_logs(disk: Disk) -> list[LogName]:
    """Return the logs in a root, oldest first."""
    matches = [(name, _NAME.fullmatch(name)) for name in disk.list()]
    return sorted(
        (LogName(int(match[1]), bool(match[2]), name) for name, match in matches if match),
        key=lambda log: (log.created_ns, not log.is_foreign),
    )


def noted(disk: Disk) -> bytes:
    """Return what owners have written to LOCK: who was the last, and which log it began last."""
    try:
        with closing(disk.open(LOCK)) as file:
            return file.read_at(0, file.size())
    except FileNotFoundError:
        return b""


def noted_ns(disk: Disk) -> int:
    """Return the number of the log that an owner began last, if it is known: 0 if not."""
    word = noted(disk)[20:40].strip()
    return int(word) if word.isdigit() and int(word) < 2**62 else 0


def log_name(created_ns: int) -> str:
    return f"WALFile.{created_ns}"


@dataclass(slots=True)
class Content:
    """The state that the messages of a log describe, updated as they are read."""

    name: str
    is_foreign: bool = False
    changes: list[Change] = field(default_factory=list)  # in order of commit
    undecided: dict[int, fmt.Group] = field(default_factory=dict)  # intended, by tgid
    damage: list[Damage] = field(default_factory=list)
    stray: list[str] = field(default_factory=list)  # what was passed over, with nothing lost
    tgid_max: int = 0
    stop: int = fmt.STATUS_SIZE  # the end of the last complete write
    flaw: Flaw | None = None  # what is invalid after it
    _base: int = 0  # where in the file the bytes begin that are being read
    _by_tgid: dict[int, list[Change]] = field(default_factory=dict)
    _open: fmt.Group | None = None  # written; its commit was not read yet
    _doubt: Damage | None = None  # damage, if a write follows; else a torn write

    def read(self, data: memoryview, start: int = fmt.STATUS_SIZE) -> None:
        """Read a whole file, from byte `start` on."""
        self._read(data, start)

    def read_on(self, data: memoryview) -> None:
        """Read on: `data` are the bytes of the file after `stop`."""
        self._base = self.stop
        self._read(data, 0)

    def forget_done(self) -> None:
        """Drop groups that are in the year files."""
        self.changes = [change for change in self.changes if not change.is_done]
        for twins in self._by_tgid.values():
            twins[:] = [change for change in twins if not change.is_done]

    def _read(self, data: memoryview, start: int) -> None:
        scan = fmt.scan(data, start)
        for message in scan.messages:
            if isinstance(message, fmt.Info):
                self._take_info(message)
            elif isinstance(message, fmt.Group):
                self._doubt_open()
                self._settle_doubt()
                self._open = message
                self.tgid_max = max(self.tgid_max, message.tgid)  # an info has no checksum
            else:
                self._take_gap(message)
        self.flaw = scan.flaw
        if self._doubt is not None:
            self.flaw = Flaw(self._doubt.offset, self._doubt.why)
        elif self.flaw is None and self.stop < self._base + len(data):
            self.flaw = Flaw(self.stop, "a group that was not committed")
        self._open = self._doubt = None

    def seen(self) -> set[int]:
        """Return the tgids of all groups in this log, decided or not."""
        return self._by_tgid.keys() | self.undecided.keys()

    def _take_info(self, info: fmt.Info) -> None:
        is_decision = info.destination == fmt.WAL and fmt.PREPARING < info.status <= fmt.ABORTED
        if self._open is not None and not (is_decision and info.tgid == self._open.tgid):
            self._doubt_open()
        if info.destination == fmt.PRIMARY and info.status == fmt.COMPLETE:
            self._settle_doubt()  # another write records this, so the one in doubt was synced
        if self._doubt is not None:
            return  # perhaps the end of the write that is in doubt
        if info.destination == fmt.WAL and info.status == fmt.PREPARING:
            return  # a write begins; it counts when it is whole
        if info.destination == fmt.PRIMARY and info.status == fmt.COMPLETE:
            self._complete(info.tgid)
        elif is_decision:
            self._decide(info)
        self.stop = self._base + info.offset + fmt.INFO_SIZE

    def _decide(self, info: fmt.Info) -> None:
        """An info has no checksum.  So a prepared group of Holdfast contains a set that marks it as
        waiting, and another group decides on it.  The infos are for other programs that know the
        design.
        """
        group, self._open = self._open or self.undecided.get(info.tgid), None
        if group is None or (info.tgid in self.undecided and group.first_kind == fmt.DECISION):
            return
        sets = fmt.decode_sets(group) if group.first_kind == fmt.DECISION else []
        if isinstance(sets, list) and sets and sets[0].count and sets[0].width:
            for tgid, (status, *_) in zip(sets[0].index, sets[0].rows, strict=True):
                self._settle(int(tgid), int(status))
        elif sets or info.status == fmt.INTENDED:
            self.undecided[info.tgid] = group
        else:
            self.undecided[info.tgid] = group
            self._settle(info.tgid, info.status)

    def _settle(self, tgid: int, status: int) -> None:
        group = self.undecided.pop(tgid, None)
        if group is None:
            return
        twins = self._by_tgid.setdefault(tgid, [])
        if status == fmt.COMPLETE and group.body not in [one.group.body for one in twins]:
            change = Change(group, self.name)
            self.changes.append(change)
            twins.append(change)

    def _complete(self, tgid: int) -> None:
        done = self._by_tgid.get(tgid, [])
        if self.is_foreign and done:  # that program records it once for all groups up to this one
            done = [change for change in self.changes if change.tgid <= tgid]
        for change in done:
            change.is_done = True

    def _doubt_open(self) -> None:
        """A write that contains a group also contains its decision.  If not, the write is
        incomplete.
        """
        if self._open is not None:
            why = "a complete group without its commit"
            self._doubt = Damage(self.name, self._base + self._open.offset, why)
            self._open = None

    def _take_gap(self, gap: fmt.Gap) -> None:
        self._settle_doubt()
        if self.is_foreign and gap.stop - gap.offset < fmt.GROUP_SIZE_MIN and self._open is None:
            self.stray.append(f"{gap.stop - gap.offset} stray bytes at {gap.offset}: {gap.why}")
            self.stop = self._base + gap.stop
        else:
            self._doubt = Damage(self.name, self._base + gap.offset, gap.why)
        self._open = None

    def _settle_doubt(self) -> None:
        """Report the doubt as damage: a later write follows it, so it was synced once."""
        if self._doubt is not None:
            self.damage.append(self._doubt)
            self._doubt = None


class Wal:
    """A log of Holdfast, open for writing.  For one thread at a time."""

    def __init__(self, disk: Disk, name: str, file: File, size: int) -> None:
        self._disk, self.name, self._file, self.size = disk, name, file, size

    @classmethod
    def create(cls, disk: Disk, name: str, pid: int, messages: bytes = b"") -> "Wal":
        status = fmt.Status(fmt.OPEN, fmt.NOT_REPLAYED, pid)
        data = fmt.encode_status(status) + messages
        disk.create(name, data)
        return cls(disk, name, disk.open(name, writable=True), len(data))

    def append(self, messages: bytes) -> None:
        """Append messages; durable when this returns."""
        self._file.write_at(self.size, messages, sync=True)
        self.size += len(messages)

    def mark_replaying(self, pid: int) -> None:
        self._file.write_at(*fmt.encode_replaying(pid), sync=True)

    def mark(self, file_status: int, replay_state: int, pid: int) -> None:
        status = fmt.encode_status(fmt.Status(file_status, replay_state, pid))
        self._file.write_at(0, status, sync=True)

    def close(self) -> None:
        self._file.close()


class Logs:
    """The logs of an owner: the active one, and full ones that still have groups to write back.

    A log is removed when all of it is in the year files, oldest first.  So a decision in a newer
    log is never removed before the older log that still has the group.  For one thread at a time.
    """

    def __init__(self, disk: Disk, lock: Lock, runtime: Runtime, size_max: int) -> None:
        self._disk, self._lock, self._size_max = disk, lock, size_max
        self._now_ns = runtime.now_ns
        self._pid = runtime.process_id()
        self._logs: dict[str, Wal] = {}  # oldest first
        self._active: Wal | None = None  # the last of these, if it is not full
        self.last_ns = 0

    def next_ns(self) -> int:
        """Return the time, greater than any that was returned before."""
        self.last_ns = max(self._now_ns(), self.last_ns + 1)
        return self.last_ns

    def active(self, carried: Callable[[], Iterable[bytes]]) -> Wal:
        """Return the log to write to.  A new one begins with the groups that are carried over.

        Nothing else happens until all of them are written, so no older log with them is removed.
        """
        if self._active is not None and self._active.size >= self._size_max:
            self._active = None
        if self._active is None:
            number = self.next_ns()
            name = log_name(number)
            self._lock.note(number)  # for a reader to which the log comes and goes unseen
            wal = self._logs[name] = Wal.create(self._disk, name, self._pid)
            for messages in carried():
                wal.append(messages)
            self._active = wal
        return self._active

    def adopt(self, name: str, size: int) -> None:
        """Take over a log of a previous owner, which is being replayed."""
        file = self._disk.open(name, writable=True)
        wal = self._logs[name] = Wal(self._disk, name, file, size)
        wal.mark_replaying(self._pid)

    def record_done(self, changes: Sequence[Change]) -> None:
        """Record that these are durable in the year files, oldest log first.

        In another order an old group could be replayed over a newer one.
        """
        for name, wal in self._logs.items():
            infos = [
                fmt.encode_info(change.tgid, fmt.PRIMARY, fmt.COMPLETE)
                for change in changes
                if change.log == name
            ]
            if infos:
                wal.append(b"".join(infos))

    def remove_finished(self, wanted: Collection[str]) -> None:
        """Remove full logs, oldest first, up to one that is wanted."""
        for name, wal in list(self._logs.items()):
            if wal is self._active or name in wanted:
                return
            self._remove(wal)

    def finish(self, *, is_wanted: bool) -> None:
        """Remove the last log, or keep it for prepared groups.  All others are written back."""
        if self._active is not None and is_wanted:
            self._active.mark(fmt.CLOSED, fmt.NOT_REPLAYED, self._pid)
        elif self._active is not None:
            self._remove(self._active)

    @property
    def size(self) -> int:
        """Return the bytes in all logs."""
        return sum(wal.size for wal in self._logs.values())

    def close(self) -> None:
        for wal in self._logs.values():
            wal.close()

    def _remove(self, wal: Wal) -> None:
        wal.mark(fmt.CLOSED, fmt.REPLAYED, self._pid)
        wal.close()
        self._disk.remove(wal.name)
        del self._logs[wal.name]
