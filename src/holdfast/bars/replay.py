"""Opening a root: what do the logs in it say, and may one believe them?

Nothing is changed here but by `mend`.  Every group is checked before any is written: lengths,
paths, years, intervals and columns.  One that fails is damage, and then nothing is written at all.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from holdfast.bars import foreign
from holdfast.bars.catalog import Catalog, leads_astray, split_path
from holdfast.bars.pending import Change, complete
from holdfast.bars.query import new_schema
from holdfast.bars.wal import Content, Damage, LogName, Wal, find_logs, log_name
from holdfast.cuts import keep_aside
from holdfast.disk import Disk
from holdfast.errors import CorruptError, LockedError
from holdfast.formats import market_wal as fmt
from holdfast.formats.bar_time import DAY_NS, interval_count, parse_timeframe
from holdfast.formats.flaw import Flaw
from holdfast.formats.year_file import HEADER_SIZE, SLOT, Schema

_LOG = logging.getLogger("holdfast")
WasRunning = Callable[[int, int], bool]
_FILE_SIZE_MAX = 1 << 42
_NEW = (fmt.NEW_FIXED_FILE, fmt.NEW_VARIABLE_FILE)


@dataclass(slots=True)
class Log:
    """One log as it was found."""

    log: LogName
    status: fmt.Status | Flaw
    size: int
    content: Content

    @property
    def is_finished(self) -> bool:
        """All of it is in the year files: the one state in which nothing is to be replayed."""
        return self.status == (fmt.CLOSED, fmt.REPLAYED, getattr(self.status, "owner", 0))


@dataclass(slots=True)
class Found:
    """All logs of a root."""

    logs: list[Log] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    refused: set[int] = field(default_factory=set)  # prepared groups that must not be written

    def changes(self) -> list[Change]:
        """What is not yet in the year files, in order of commit."""
        found: dict[tuple[int, bytes], Change] = {}  # a salvage cut short leaves two of each
        for log in self.logs:
            for change in log.content.changes:
                if not change.is_done and change.is_sound:
                    found.setdefault((change.tgid, change.group.digest), change)
        return list(found.values())

    def undecided(self) -> dict[int, fmt.Group]:
        """Prepared, and neither committed nor aborted here or in a later log."""
        found: dict[int, fmt.Group] = {}
        for log in self.logs:
            for tgid in log.content.seen():
                found.pop(tgid, None)
            found.update(log.content.undecided)
        return {tgid: group for tgid, group in found.items() if tgid not in self.refused}

    @property
    def last_ns(self) -> int:
        marks = [max(log.log.created_ns, log.content.tgid_max) for log in self.logs]
        return max(marks, default=0)


def look(disk: Disk, catalog: Catalog, *, is_shared: bool = False) -> Found:
    """Read all logs, and change nothing.  `is_shared` if another process may own them."""
    found = Found()
    for log in find_logs(disk):
        file = disk.open(log.name)
        try:
            # What is shown from now on must stay; and what a failed sync has lost is not there,
            # though the cache may go on showing it.
            file.sync(forget_from=0)
            # A log may be large.  Its owner maps it, and cuts it only after its last group; but
            # whoever reads beside an owner reads a copy, which nobody changes or cuts.
            data = file.read_at(0, file.size()) if is_shared else file.map()
        finally:
            file.close()
        found.logs.append(read_log(log, data, disk, catalog))
    for one in found.logs:
        found.damage += one.content.damage
    complete([change for log in found.logs for change in log.content.changes])
    undecided = [Change(group, "a prepared group") for group in found.undecided().values()]
    found.damage += check(found.changes(), disk, catalog, undecided)
    found.refused = {change.tgid for change in undecided if not change.is_sound}
    return found


def read_log(log: LogName, data: fmt.Bytes, disk: Disk, catalog: Catalog) -> Log:
    content = Content(log.name, is_foreign=log.is_foreign)
    status = fmt.decode_status(data)
    one = Log(log, status, len(data), content)
    if len(data) < fmt.STATUS_SIZE or one.is_finished:
        return one
    content.read(memoryview(data))
    if log.is_foreign:
        foreign.translate(content, disk, catalog)
    return one


def refuse_if_owned(found: Found, pid: int, was_running: WasRunning) -> None:
    """An open log whose process runs is in use.  MarketStore's own logs do not name a process."""
    for one in found.logs:
        status = one.status
        if one.log.is_foreign or isinstance(status, Flaw) or status.file_status != fmt.OPEN:
            continue
        if status.owner != pid and was_running(status.owner, one.log.created_ns):
            raise LockedError(
                f"{one.log.name} is in use by process {status.owner}; "
                "stop it, or open the store read-only"
            )


def mend_all(
    disk: Disk, catalog: Catalog, found: Found, salvage_ns: int | None
) -> tuple[Found, list[str]]:
    """Make the logs such that one can go on, if that is allowed; what there is then, and was done.

    With damage nothing is changed but by a salvage, whose log has the number `salvage_ns`.
    """
    mended: list[str] = []
    if found.damage and salvage_ns is not None:
        mended = salvage(disk, found, salvage_ns)
        found = look(disk, catalog)
    if found.damage:
        for damage in found.damage:
            _LOG.error("damage in %s: %s", disk, damage)
        return found, mended
    mended += mend(disk, found)
    if any(one.log.is_foreign for one in found.logs):
        found = look(disk, catalog)
    return found, mended


def mend(disk: Disk, found: Found) -> list[str]:
    """Cut off what a crash has torn, and take over what MarketStore left; say what was done."""
    mended = []
    for one in list(found.logs):
        name = one.log.name
        if one.content.flaw is not None:
            mended.append(_keep_tail(disk, one))
        mended += [f"{name}: {stray}" for stray in one.content.stray]
        if one.is_finished or one.size < fmt.STATUS_SIZE:
            disk.remove(name)
            found.logs.remove(one)
        elif one.log.is_foreign:
            _take_over(disk, one)
            mended.append(f"{name}: taken over from MarketStore")
    for line in mended:
        _LOG.warning("recovered %s: %s", disk, line)
    return mended


def _keep_tail(disk: Disk, one: Log) -> str:
    name, stop, flaw = one.log.name, one.content.stop, one.content.flaw
    assert flaw is not None
    file = disk.open(name, writable=not one.log.is_foreign)
    try:
        rest = file.read_at(stop, one.size - stop)
        what = f"{len(rest)} bytes of unwritten space removed"
        if any(rest):
            kept = keep_aside(disk, name, stop, rest)
            what = f"torn write of {len(rest)} bytes ({flaw.why}) kept in {kept}"
        if not one.log.is_foreign:
            file.resize(stop)
            file.sync()
            one.size = stop
    finally:
        file.close()
    return f"{name}: {what}"


def _take_over(disk: Disk, one: Log) -> None:
    """Its groups become a log of ours under the same number, whole or not; then it goes."""
    name, messages = log_name(one.log.created_ns), recommitted(one.content.changes)
    if messages and name not in disk.list():  # it is there if a crash came between these two
        Wal.create(disk, name, 0, messages).close()
    disk.remove(one.log.name)


def recommitted(changes: Sequence[Change]) -> bytes:
    parts = []
    for change in changes:
        if not change.is_done:
            parts += committed(change.tgid, bytes(change.group.body[16:]), len(change.sets))
    return b"".join(parts)


def salvage(disk: Disk, found: Found, created_ns: int) -> list[str]:
    """Keep damaged logs aside, and go on with the groups in them that are sound."""
    intents = [intended_again(group) for group in found.undecided().values()]
    messages = recommitted(found.changes()) + b"".join(intents)
    Wal.create(disk, log_name(created_ns), 0, messages).close()
    for one in found.logs:
        disk.rename(one.log.name, f"{one.log.name}.{created_ns}.cut")
    return [f"{damage}; kept aside" for damage in found.damage]


def intended(tgid: int, sets: fmt.Bytes, count: int) -> list[bytes]:
    """The messages that prepare a group, to be written as one."""
    return [
        fmt.encode_info(tgid, fmt.WAL, fmt.PREPARING),
        fmt.encode_group(tgid, sets, count),
        fmt.encode_info(tgid, fmt.WAL, fmt.INTENDED),
    ]


def intended_again(group: fmt.Group) -> bytes:
    """The same of a group that was prepared before, perhaps under another tgid."""
    count = int.from_bytes(group.body[8:16], "little")
    return b"".join(intended(group.tgid, group.body[16:], count))


def committed(tgid: int, sets: bytes, count: int) -> list[bytes]:
    """The messages that commit a group, to be written as one."""
    return [
        fmt.encode_info(tgid, fmt.WAL, fmt.PREPARING),
        fmt.encode_group(tgid, sets, count),
        fmt.encode_info(tgid, fmt.WAL, fmt.COMPLETE),
    ]


# Is a group what it should be?


def check(
    changes: Sequence[Change], disk: Disk, catalog: Catalog, prepared: Sequence[Change] = ()
) -> list[Damage]:
    """What must not be written, and why.  It is marked, and is not shown either."""
    schemas = _Schemas(catalog)
    for change in (*changes, *prepared):
        with suppress(CorruptError, ValueError):  # it is told below
            for one in change.sets:
                schemas.bring(one, is_made=change not in prepared)
    found = []
    for change in (*changes, *prepared):
        try:
            for number, one in enumerate(change.sets):
                if number or one.path or one.kind not in (fmt.PLACED, fmt.DECISION):
                    _check_set(one, disk, catalog, schemas, is_made=change not in prepared)
        except (CorruptError, ValueError, OSError) as error:
            found.append(_blame(change, error))
        else:
            continue
        change.is_sound = False
    return found


def _blame(change: Change, error: Exception) -> Damage:
    if isinstance(error, OSError) and not leads_astray(error):
        raise error
    if isinstance(error, CorruptError):
        return Damage(change.log, error.offset, error.why)
    return Damage(change.log, change.group.offset, str(error))


class _Schemas:
    """The columns of buckets as far as logs and files tell.

    A file that a group brings is perhaps only half made, and not asked.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog, self._brought = catalog, dict[str, Schema]()
        self._prepared: dict[str, Schema] = {}
        self._new: set[str] = set()

    def bring(self, one: fmt.WriteSet, *, is_made: bool) -> None:
        named = split_path(one.path)
        if one.kind in _NEW and named is not None:
            if is_made:
                self._new.add(one.path)
            found = self._brought if is_made else self._prepared
            found.setdefault(named.key, new_schema(one))

    def get(self, key: str, *, is_made: bool) -> Schema | None:
        """Only prepared groups may rely on files that prepared groups bring."""
        known = self._brought.get(key) or self._catalog.schema(key, unless=self._new)
        return known or (None if is_made else self._prepared.get(key))

    def refuse_other(self, key: str, schema: Schema) -> None:
        in_files = self._catalog.schema(key, unless=self._new)
        for known in (in_files, self._brought.get(key), self._prepared.get(key)):
            if known is not None and known is not schema:
                raise ValueError(f"{key}: other columns than the bucket has")


def _check_set(
    one: fmt.WriteSet, disk: Disk, catalog: Catalog, schemas: _Schemas, *, is_made: bool
) -> None:
    named = split_path(one.path)
    if named is None:
        raise ValueError(f"{one.path!r} is no year file of this store")
    if named.key not in catalog.checked:
        _refuse_links(disk, named.key)
        catalog.checked.add(named.key)
    if one.kind == fmt.PLACED:
        _check_placed(one, named.year, schemas.get(named.key, is_made=is_made))
        return
    timeframe_ns = parse_timeframe(named.key.split("/")[1])
    if one.year != named.year or one.intervals * timeframe_ns != DAY_NS:
        raise ValueError(f"{one.path}: year {one.year}, {one.intervals} intervals a day")
    if one.kind in _NEW:
        schemas.refuse_other(named.key, new_schema(one))
    else:
        _check_rows(one, schemas.get(named.key, is_made=is_made), timeframe_ns)


def _check_rows(one: fmt.WriteSet, schema: Schema | None, timeframe_ns: int) -> None:
    if schema is None:
        raise ValueError(f"{one.path}: it is gone, and nothing tells its columns")
    kind = fmt.VARIABLE if schema.is_variable else fmt.FIXED
    width = schema.stored.itemsize
    if one.kind == fmt.REMOVED:
        kind, width = fmt.REMOVED, 8 if schema.is_variable else 0
    if (one.kind, one.width) != (kind, width):
        raise ValueError(f"{one.path}: rows of kind {one.kind} and {one.width} bytes")
    first = 0 if timeframe_ns == DAY_NS else 1
    last = interval_count(one.year, timeframe_ns) - 1 + first
    if one.count and not first <= int(one.index.min()) <= int(one.index.max()) <= last:
        raise ValueError(f"{one.path}: an interval that the year does not have")


def _check_placed(one: fmt.WriteSet, year: int, schema: Schema | None) -> None:
    low = HEADER_SIZE - SLOT.itemsize
    if schema is None or not schema.is_variable:
        raise ValueError(f"{one.path}: placed where intervals do not hold many rows")
    if one.year not in (0, year) or (one.year and one.width != SLOT.itemsize):
        raise ValueError(f"{one.path}: placed for year {one.year}, {one.width} bytes")
    if one.count and not low <= int(one.index.min()) <= int(one.index.max()) < _FILE_SIZE_MAX:
        raise ValueError(f"{one.path}: placed at byte {int(one.index.min())}")


def _refuse_links(disk: Disk, key: str) -> None:
    with suppress(FileNotFoundError):
        disk.list(key)
