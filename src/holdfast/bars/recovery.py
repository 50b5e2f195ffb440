"""Opening a root: read its logs, check every group in them, and recover.

Only `recover` changes anything.  Every group is checked before any is written: lengths,
paths, years, intervals and columns.  One that fails is damage, and then nothing is written at all.
"""

import logging
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

from holdfast.bars import foreign
from holdfast.bars.catalog import Catalog, leads_astray, split_path
from holdfast.bars.view import NEW_FILE, Change, complete, new_schema
from holdfast.bars.wal import Content, Damage, LogName, Wal, find_logs, log_name
from holdfast.cuts import keep_aside
from holdfast.disk import Disk
from holdfast.errors import CorruptError, LockedError
from holdfast.formats import market_wal as fmt
from holdfast.formats.bar_time import DAY_NS, interval_count, parse_timeframe
from holdfast.formats.flaw import Flaw
from holdfast.formats.year_file import HEADER_SIZE, SLOT, Schema
from holdfast.runtime import Runtime

_LOG = logging.getLogger("holdfast")
_FILE_SIZE_MAX = 1 << 42


@dataclass(slots=True)
class Log:
    """One log, and its contents."""

    log: LogName
    status: fmt.Status | Flaw
    size: int
    content: Content

    @property
    def is_finished(self) -> bool:
        """Return whether all of it is in the year files, so that nothing is replayed."""
        return self.status == (fmt.CLOSED, fmt.REPLAYED, getattr(self.status, "owner", 0))


@dataclass(slots=True)
class Found:
    """All logs of a root."""

    logs: list[Log] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    refused: set[int] = field(default_factory=set)  # prepared groups that must not be written

    def changes(self) -> list[Change]:
        """Return the changes that are not yet in the year files, in order of commit."""
        found: dict[tuple[int, bytes], Change] = {}  # a salvage cut short leaves two of each
        for log in self.logs:
            for change in log.content.changes:
                if not change.is_done and change.is_sound:
                    found.setdefault((change.tgid, change.group.digest), change)
        return list(found.values())

    def undecided(self) -> dict[int, fmt.Group]:
        """Return the prepared groups that neither this log nor a later one decides on."""
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
        with closing(disk.open(log.name)) as file:
            # What is shown from now on must stay; and what a failed sync has lost is not there,
            # though the cache may go on showing it.
            file.sync(forget_from=0)
            # A log may be large.  Its owner maps it, and cuts it only after its last group.  A
            # reader beside an owner reads a copy, which does not change.
            data = file.read_at(0, file.size()) if is_shared else file.map()
        found.logs.append(read_log(log, data, disk, catalog))
    for one in found.logs:
        found.damage += one.content.damage
    complete([change for log in found.logs for change in log.content.changes])
    undecided = [Change(group, "a prepared group") for group in found.undecided().values()]
    found.damage += check(found.changes(), disk, catalog, undecided)
    found.refused = {change.tgid for change in undecided if not change.is_sound}
    return found


def read_log(
    log: LogName, data: fmt.Bytes, disk: Disk, catalog: Catalog, *, finished: bool = False
) -> Log:
    """Read a log.  The groups of one that is finished are left out, unless they are asked for."""
    content = Content(log.name, is_foreign=log.is_foreign)
    status = fmt.decode_status(data)
    one = Log(log, status, len(data), content)
    if len(data) < fmt.STATUS_SIZE or (one.is_finished and not finished):
        return one
    content.read(memoryview(data))
    if log.is_foreign:
        foreign.translate(content, disk, catalog)
    return one


def refuse_if_owned(found: Found, runtime: Runtime) -> None:
    """Raise LockedError if the process of an open log runs.  MarketStore's logs name none."""
    for one in found.logs:
        status = one.status
        if one.log.is_foreign or isinstance(status, Flaw) or status.file_status != fmt.OPEN:
            continue
        is_other = status.owner != runtime.process_id()
        if is_other and runtime.was_running(status.owner, one.log.created_ns):
            raise LockedError(
                f"{one.log.name} is in use by process {status.owner}; "
                "stop it, or open the store read-only"
            )


def recover(
    disk: Disk, catalog: Catalog, found: Found, salvage_ns: int | None
) -> tuple[Found, list[str]]:
    """Recover the logs; return what they hold then, and a line for each thing that was done.

    If there is damage, only a salvage changes anything; its log has the number `salvage_ns`.
    """
    recovered: list[str] = []
    if found.damage and salvage_ns is not None:
        recovered = salvage(disk, found, salvage_ns)
        found = look(disk, catalog)
    if found.damage:
        for damage in found.damage:
            _LOG.error("damage in %s: %s", disk, damage)
        return found, recovered
    recovered += _recover(disk, found)
    if any(one.log.is_foreign for one in found.logs):
        found = look(disk, catalog)
    return found, recovered


def _recover(disk: Disk, found: Found) -> list[str]:
    """Cut off torn writes, and take over logs of MarketStore; return what was done."""
    recovered = []
    for one in list(found.logs):
        name = one.log.name
        if one.content.flaw is not None:
            recovered.append(_keep_tail(disk, one))
        recovered += [f"{name}: {stray}" for stray in one.content.stray]
        if one.is_finished or one.size < fmt.STATUS_SIZE:
            disk.remove(name)
            found.logs.remove(one)
        elif one.log.is_foreign:
            _take_over(disk, one)
            recovered.append(f"{name}: taken over from MarketStore")
    for line in recovered:
        _LOG.warning("recovered %s: %s", disk, line)
    return recovered


def _keep_tail(disk: Disk, one: Log) -> str:
    name, stop, flaw = one.log.name, one.content.stop, one.content.flaw
    assert flaw is not None
    with closing(disk.open(name, writable=not one.log.is_foreign)) as file:
        rest = file.read_at(stop, one.size - stop)
        what = f"{len(rest)} bytes of unwritten space removed"
        if any(rest):
            kept = keep_aside(disk, name, stop, rest)
            what = f"torn write of {len(rest)} bytes ({flaw.why}) kept in {kept}"
        if not one.log.is_foreign:
            file.resize(stop)
            file.sync()
            one.size = stop
    return f"{name}: {what}"


def _take_over(disk: Disk, one: Log) -> None:
    """Write its groups to a new log of the design with the same number, and remove it."""
    number = one.log.created_ns
    name, messages = log_name(number), recommitted(one.content.changes, number)
    if messages and name not in disk.list():  # it is there if a crash came between these two
        Wal.create(disk, name, 0, messages).close()
    disk.remove(one.log.name)


def recommitted(changes: Sequence[Change], number: int) -> bytes:
    """Encode the writes that commit these groups in a new log.

    A group that was prepared is marked as waiting: a decision commits it.  The decisions get
    `number`, which no group has.
    """
    parts = list[bytes]()
    for change in changes:
        if change.is_done:
            continue
        if change.group.first_kind != fmt.DECISION:
            parts.append(fmt.rewrite(change.group))
            continue
        decision = fmt.encode_decision(change.tgid, fmt.COMPLETE)
        parts.append(fmt.rewrite(change.group, fmt.INTENDED))
        parts.append(fmt.encode_write(number, decision, 1).messages)
        parts.append(fmt.encode_info(change.tgid, fmt.WAL, fmt.COMPLETE))
    return b"".join(parts)


def salvage(disk: Disk, found: Found, created_ns: int) -> list[str]:
    """Rename damaged logs to .cut files, and write their valid groups to a new log."""
    intents = [fmt.rewrite(group, fmt.INTENDED) for group in found.undecided().values()]
    messages = recommitted(found.changes(), created_ns) + b"".join(intents)
    Wal.create(disk, log_name(created_ns), 0, messages).close()
    for one in found.logs:
        disk.rename(one.log.name, f"{one.log.name}.{created_ns}.cut")
    return [f"{damage}; the log is kept in a .cut file" for damage in found.damage]


# Checks of a group


def check(
    changes: Sequence[Change], disk: Disk, catalog: Catalog, prepared: Sequence[Change] = ()
) -> list[Damage]:
    """Return the damage in these groups; a damaged group is marked, and is not shown."""
    schemas = _Schemas(catalog)
    for change in (*changes, *prepared):
        with suppress(CorruptError, ValueError):  # reported below
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
    """The columns of buckets, from logs and files.

    A file that a group creates may be incomplete, so its header is not read.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog, self._brought = catalog, dict[str, Schema]()
        self._prepared: dict[str, Schema] = {}
        self._new: set[str] = set()

    def bring(self, one: fmt.WriteSet, *, is_made: bool) -> None:
        named = split_path(one.path)
        if one.kind in NEW_FILE and named is not None:
            if is_made:
                self._new.add(one.path)
            found = self._brought if is_made else self._prepared
            found.setdefault(named.key, new_schema(one))

    def get(self, key: str, *, is_made: bool) -> Schema | None:
        """Return the columns; only prepared groups may use files that prepared groups create."""
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
        raise ValueError(f"{one.path!r} is not the path of a year file")
    if named.key not in catalog.checked:
        _refuse_links(disk, named.key)
        catalog.checked.add(named.key)
    if one.kind == fmt.PLACED:
        _check_placed(one, named.year, schemas.get(named.key, is_made=is_made))
        return
    timeframe_ns = parse_timeframe(named.key.split("/")[1])
    if one.year != named.year or one.intervals * timeframe_ns != DAY_NS:
        raise ValueError(f"{one.path}: year {one.year}, {one.intervals} intervals a day")
    if one.kind in NEW_FILE:
        schemas.refuse_other(named.key, new_schema(one))
    else:
        _check_rows(one, schemas.get(named.key, is_made=is_made), timeframe_ns)


def _check_rows(one: fmt.WriteSet, schema: Schema | None, timeframe_ns: int) -> None:
    if schema is None:
        raise ValueError(f"{one.path}: the year file is missing; its schema is unknown")
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
