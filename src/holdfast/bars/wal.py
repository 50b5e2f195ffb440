"""The write-ahead log of a bar store: one file that grows, and what its messages come to.

Invariant: every write to the file is synced before the next begins.  So a crash tears the last
write and nothing else, and what makes no sense with more behind it is damage.
"""

import re
from dataclasses import dataclass, field

from holdfast.bars.pending import Change
from holdfast.disk import Disk, File
from holdfast.formats import market_wal as fmt
from holdfast.formats.flaw import Flaw

_NAME = re.compile(r"WALFile\.([0-9]{1,19})(\.walfile)?")


@dataclass(frozen=True, slots=True)
class Damage:
    """A place where durable bytes are not what they should be, and what may be lost with them."""

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
    """The logs in a root, oldest first."""
    matches = [(name, _NAME.fullmatch(name)) for name in disk.list()]
    return sorted(
        (LogName(int(match[1]), bool(match[2]), name) for name, match in matches if match),
        key=lambda log: (log.created_ns, not log.is_foreign),
    )


def log_name(created_ns: int) -> str:
    return f"WALFile.{created_ns}"


@dataclass(slots=True)
class Content:
    """What the messages of a log come to, as they are read."""

    name: str
    is_foreign: bool = False
    changes: list[Change] = field(default_factory=list)  # in order of commit
    undecided: dict[int, fmt.Group] = field(default_factory=dict)  # intended, by tgid
    damage: list[Damage] = field(default_factory=list)
    stray: list[str] = field(default_factory=list)  # what was passed over, with nothing lost
    tgid_max: int = 0
    stop: int = fmt.STATUS_SIZE  # behind the last write that is whole
    flaw: Flaw | None = None  # what is wrong behind it
    _base: int = 0  # where in the file the bytes begin that are being read
    _by_tgid: dict[int, list[Change]] = field(default_factory=dict)
    _open: fmt.Group | None = None  # written, and not yet said to be committed
    _doubt: Damage | None = None  # damage, if any write is behind it; else a torn one

    def read(self, data: memoryview, start: int = fmt.STATUS_SIZE) -> None:
        """Take in a whole file, from byte `start` on."""
        self._read(data, start)

    def read_on(self, data: memoryview) -> None:
        """Take in what has come: the bytes of the file behind `stop`."""
        self._base = self.stop
        self._read(data, 0)

    def forget_done(self) -> None:
        """Let go of groups that are in the year files."""
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
            else:
                self._take_gap(message)
        self.flaw = scan.flaw
        if self._doubt is not None:
            self.flaw = Flaw(self._doubt.offset, self._doubt.why)
        elif self.flaw is None and self.stop < self._base + len(data):
            self.flaw = Flaw(self.stop, "a group that was not committed")
        self._open = self._doubt = None

    def seen(self) -> set[int]:
        """The tgids of all groups that are in this log, whatever became of them."""
        return self._by_tgid.keys() | self.undecided.keys()

    def _take_info(self, info: fmt.Info) -> None:
        is_decision = info.destination == fmt.WAL and fmt.PREPARING < info.status <= fmt.ABORTED
        if self._open is not None and not (is_decision and info.tgid == self._open.tgid):
            self._doubt_open()
        if self._doubt is not None:
            return  # perhaps the end of the very write that is in doubt
        if info.destination == fmt.WAL and info.status == fmt.PREPARING:
            return  # a write begins; it counts when it is whole
        self.tgid_max = max(self.tgid_max, info.tgid)
        if info.destination == fmt.PRIMARY and info.status == fmt.COMPLETE:
            self._complete(info.tgid)
        elif is_decision:
            self._decide(info)
        self.stop = self._base + info.offset + fmt.INFO_SIZE

    def _decide(self, info: fmt.Info) -> None:
        """An info has no checksum.  So a group of ours that waits for a decision says so itself,
        and is decided by another group; the infos are for those who know the design only."""
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
        if self.is_foreign and done:  # the program says it once for all up to this one
            done = [change for change in self.changes if change.tgid <= tgid]
        for change in done:
            change.is_done = True

    def _doubt_open(self) -> None:
        """A group is decided in the write that brings it.  If not, that write was not whole."""
        if self._open is not None:
            why = "a whole group, and nothing says that it was committed"
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
        """Something was written behind it, so it was once whole and synced."""
        if self._doubt is not None:
            self.damage.append(self._doubt)
            self._doubt = None


class Wal:
    """A log of ours, open for writing.  One thread at a time."""

    def __init__(self, disk: Disk, name: str, file: File, size: int) -> None:
        self._disk, self.name, self._file, self.size = disk, name, file, size

    @classmethod
    def create(cls, disk: Disk, name: str, pid: int, messages: bytes = b"") -> "Wal":
        status = fmt.Status(fmt.OPEN, fmt.NOT_REPLAYED, pid)
        data = fmt.encode_status(status) + messages
        disk.create(name, data)
        return cls(disk, name, disk.open(name, writable=True), len(data))

    def append(self, messages: bytes) -> None:
        """Durable when it returns."""
        self._file.write_at(self.size, messages, sync=True)
        self.size += len(messages)

    def mark_replaying(self, pid: int) -> None:
        """The file's own status is left alone: torn, it must not read as closed and replayed."""
        status = fmt.encode_status(fmt.Status(fmt.OPEN, fmt.REPLAYING, pid))
        self._file.write_at(2, status[2:], sync=True)

    def mark(self, file_status: int, replay_state: int, pid: int) -> None:
        status = fmt.encode_status(fmt.Status(file_status, replay_state, pid))
        self._file.write_at(0, status, sync=True)

    def cut(self, stop: int) -> None:
        self._file.resize(stop)
        self._file.sync()
        self.size = stop

    def close(self) -> None:
        self._file.close()
