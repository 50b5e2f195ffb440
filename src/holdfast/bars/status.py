"""The status of a bar store, from names, headers and logs; `verify` reads the rest.

Nothing here takes a lock or changes anything, and it may run beside a live owner.  A write in
progress can look like damage or a torn tail.  So a suspected damage is read twice, a moment apart.
It is reported if both reads agree and no log is about to write it again.
"""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass

from holdfast.bars import recovery
from holdfast.bars.catalog import STAGING, Catalog, find_header, year_path
from holdfast.bars.view import NEW_FILE, Change
from holdfast.bars.wal import Content, Damage
from holdfast.disk import Disk, OsDisk
from holdfast.formats import market_wal as fmt
from holdfast.formats.flaw import Flaw
from holdfast.formats.year_file import HEADER_SIZE, SLOT, TYPES, Schema
from holdfast.metrics import Metric
from holdfast.runtime import Runtime
from holdfast.staged import StagingArea
from holdfast.verdicts import CutFile, Owner, Verdict, find_owner

SECOND_LOOK_MS = 100
WHOLE = -1  # instead of an interval: the header, or the file as such
_RETRIES = 100
_STATES = {
    (1, 1): "open, not replayed",
    (1, 2): "replayed, not closed",
    (1, 3): "replay was under way",
    (2, 1): "closed, not replayed",
    (2, 2): "closed and replayed",
    (2, 3): "replay was under way",
}


@dataclass(frozen=True, slots=True)
class BucketStatus:
    """One bucket: SYMBOL/TIMEFRAME/ATTRIBUTES."""

    key: str
    kind: str  # "bars", one row per interval, or "ticks", many
    columns: dict[str, str]  # names and types
    years: tuple[int, ...]
    allocated: int  # bytes on the disk; holes take none


@dataclass(frozen=True, slots=True)
class WalStatus:
    """One write-ahead log, and what the next owner will do with it."""

    name: str
    dialect: str  # "design", or "marketstore" if its own program wrote it
    size: int
    state: str
    owner: Owner | None  # of a log that is open; those of MarketStore do not name it
    committed: int  # groups
    waiting: int  # of them, those that are not yet in the year files
    undecided: tuple[int, ...]  # tgids of groups that are prepared
    torn: Damage | None
    damage: tuple[Damage, ...]
    action: str


@dataclass(frozen=True, slots=True)
class BarsStatus:
    """A summary of one root."""

    path: str
    verdict: Verdict
    symbols: int
    buckets: tuple[BucketStatus, ...]
    year_files: int
    allocated: int
    logs: tuple[WalStatus, ...]
    waiting: int
    undecided: tuple[int, ...]
    torn: tuple[Damage, ...]
    damage: tuple[Damage, ...]
    cuts: tuple[CutFile, ...]
    owner: Owner | None

    def metrics(self) -> list[Metric]:
        """Return what can be measured from outside; prometheus_text formats it."""
        values = {
            "symbols": (self.symbols, "symbols that have year files"),
            "buckets": (len(self.buckets), "symbols times timeframes times attribute groups"),
            "year_files": (self.year_files, "files of one bucket and year"),
            "allocated_bytes": (self.allocated, "bytes that year files take on the disk"),
            "logs": (len(self.logs), "write-ahead logs"),
            "log_bytes": (sum(log.size for log in self.logs), "bytes in write-ahead logs"),
            "waiting_groups": (self.waiting, "groups that are not yet in the year files"),
            "undecided_groups": (
                len(self.undecided),
                "groups that are prepared, and neither committed nor aborted",
            ),
            "damaged": (len(self.damage), "damage found, torn tails not counted"),
            "torn_tail": (int(bool(self.torn)), "1 if a log ends with a torn write"),
        }
        return [Metric(name, "gauge", value, about) for name, (value, about) in values.items()]


def status_of(disk: Disk, runtime: Runtime) -> BarsStatus:
    """Return a summary of a root, without reading its records."""
    found = settled(disk, runtime)
    buckets, flaws = _buckets(disk, rewritten(found.changes()))
    if flaws:  # a file that an owner has started to create since looks the same
        runtime.sleep_ms(SECOND_LOOK_MS)
        found = settled(disk, runtime)
        buckets, flaws = _buckets(disk, rewritten(found.changes()))
    logs = wals_of(disk, found, runtime)
    damage = (*found.damage, *flaws, *damaged_records(disk))
    torn = tuple(log.torn for log in logs if log.torn)
    return BarsStatus(
        path=str(disk),
        verdict=judge(damage, torn),
        symbols=len({bucket.key.split("/")[0] for bucket in buckets}),
        buckets=tuple(buckets),
        year_files=sum(len(bucket.years) for bucket in buckets),
        allocated=sum(bucket.allocated for bucket in buckets),
        logs=logs,
        waiting=sum(log.waiting for log in logs),
        undecided=tuple(found.undecided()),
        torn=torn,
        damage=damage,
        cuts=tuple(CutFile(n, size) for n, size in disk.list().items() if n.endswith(".cut")),
        owner=find_owner(disk) if isinstance(disk, OsDisk) else None,
    )


def judge(damage: Iterable[Damage], torn: Iterable[Damage]) -> Verdict:
    """Return the verdict on what was found."""
    if any(True for _ in damage):
        return "corrupt"
    return "torn tail" if any(True for _ in torn) else "clean"


def damaged_records(disk: Disk) -> tuple[Damage, ...]:
    """Return the damage of records of transactions.  No row depends on them."""
    found = StagingArea(disk, STAGING, ".wal").damaged_records()
    return tuple(Damage(one.where, one.offset, one.why) for one in found)


def type_names(schema: Schema) -> dict[str, str]:
    """Return the names of columns, and their types as the command line writes them."""
    return {name: TYPES[code].lstrip("<|") for name, code in schema.columns}


def rewritten(changes: Iterable[Change]) -> dict[str, set[int]]:
    """Return the intervals of files that these groups will write; WHOLE for a new file."""
    covered: dict[str, set[int]] = {}
    for change in changes:
        for one in change.sets:
            intervals = covered.setdefault(one.path, set())
            if one.kind in NEW_FILE:
                intervals.add(WHOLE)
            elif one.kind == fmt.PLACED and one.year:
                slots = (one.index - HEADER_SIZE) // SLOT.itemsize + 1
                intervals.update(slots.tolist())
            elif one.kind != fmt.PLACED:
                intervals.update(one.index.tolist())
    return covered


def _buckets(disk: Disk, cover: dict[str, set[int]]) -> tuple[list[BucketStatus], list[Damage]]:
    catalog, found, damage = Catalog(disk), list[BucketStatus](), list[Damage]()
    for symbol in catalog.symbols():
        for key in catalog.buckets(symbol):
            years = sorted(catalog.years(key))
            schema: Schema | None = None
            allocated = 0
            for year in years:
                path = year_path(key, year)
                with closing(disk.open(path)) as file:
                    allocated += file.allocated()
                    header = find_header(file, path) if year == years[0] else None
                if isinstance(header, Flaw):
                    if WHOLE not in cover.get(path, ()):
                        damage.append(Damage(path, header.offset, header.why))
                elif header is not None:
                    schema = header.schema
            if years:
                columns = {} if schema is None else type_names(schema)
                kind = "ticks" if schema is not None and schema.is_variable else "bars"
                kind = "unknown" if schema is None else kind
                found.append(BucketStatus(key, kind, columns, tuple(years), allocated))
    return found, damage


# The logs


def look(disk: Disk) -> recovery.Found:
    """Read the logs.  A live owner removes some, perhaps between their names and their bytes."""
    for attempt in range(_RETRIES):
        try:
            return recovery.look(disk, Catalog(disk), is_shared=True)
        except FileNotFoundError:
            if attempt == _RETRIES - 1:
                raise
    raise AssertionError("the last attempt raises or returns")


def settled(disk: Disk, runtime: Runtime) -> recovery.Found:
    """Read the logs, and read them again if anything looked damaged."""
    found = look(disk)
    if not _wrong(found):
        return found
    runtime.sleep_ms(SECOND_LOOK_MS)
    again = look(disk)
    if not _wrong(again) <= _wrong(found):  # an owner is at work: the third look counts
        runtime.sleep_ms(SECOND_LOOK_MS)
        again = look(disk)
    return again


def _wrong(found: recovery.Found) -> set[tuple[str, int]]:
    torn = {(one.log.name, one.content.stop) for one in found.logs if one.content.flaw}
    return torn | {(damage.file, damage.offset) for damage in found.damage}


def wals_of(disk: Disk, found: recovery.Found, runtime: Runtime) -> tuple[WalStatus, ...]:
    """Return the status of logs that were read."""
    undecided = found.undecided()
    return tuple(_wal(disk, one, found.damage, undecided, runtime) for one in found.logs)


def _wal(
    disk: Disk,
    one: recovery.Log,
    damage: Iterable[Damage],
    undecided: Iterable[int],
    runtime: Runtime,
) -> WalStatus:
    waiting = sum(not change.is_done for change in _groups(one.content))
    committed = len(_groups(_raw(disk, one) if one.log.is_foreign else one.content))
    own = tuple(damage for damage in damage if damage.file == one.log.name)
    owner = _owner_of(one, runtime)
    return WalStatus(
        name=one.log.name,
        dialect="marketstore" if one.log.is_foreign else "design",
        size=one.size,
        state=state_of(one.status),
        owner=owner,
        committed=committed,
        waiting=waiting,
        undecided=tuple(tgid for tgid in one.content.undecided if tgid in undecided),
        torn=_torn(one),
        damage=own,
        action=_action(one, waiting, own, owner),
    )


def _groups(content: Content) -> list[Change]:
    """Return the groups of a log without the plans of write-backs."""
    return [change for change in content.changes if change.group.first_kind != fmt.PLACED]


def _raw(disk: Disk, one: recovery.Log) -> Content:
    """Read the groups of MarketStore, including those that are done."""
    content = Content(one.log.name, is_foreign=True)
    with closing(disk.open(one.log.name)) as file:
        content.read(memoryview(file.read_at(0, one.size)))
    return content


def state_of(status: fmt.Status | Flaw) -> str:
    """Describe the state of a log."""
    if isinstance(status, Flaw):
        return "no status"
    known = status.file_status, status.replay_state
    return _STATES.get(known, f"status {status.file_status}, {status.replay_state}")


def _owner_of(one: recovery.Log, runtime: Runtime) -> Owner | None:
    status = one.status
    if one.log.is_foreign or isinstance(status, Flaw) or status.file_status != fmt.OPEN:
        return None
    return Owner(status.owner, runtime.was_running(status.owner, one.log.created_ns))


def _torn(one: recovery.Log) -> Damage | None:
    flaw = one.content.flaw
    if flaw is None:
        return None
    size = one.size - one.content.stop
    return Damage(one.log.name, one.content.stop, f"torn write of {size} bytes ({flaw.why})")


def _action(
    one: recovery.Log, waiting: int, damage: tuple[Damage, ...], owner: Owner | None
) -> str:
    if owner is not None and owner.alive:
        return f"none: process {owner.pid} uses it"
    if damage:
        return "none: damaged; --salvage keeps it in a .cut file and uses its valid groups"
    if one.is_finished or one.size < fmt.STATUS_SIZE:
        return "remove it"
    groups = f"{waiting:,} group{'' if waiting == 1 else 's'}"
    steps = [f"write {groups} to the year files"] if waiting else []
    steps += ["keep the torn tail in a .cut file"] if one.content.flaw is not None else []
    steps += ["carry over undecided groups"] if one.content.undecided else []
    return ", ".join([*steps, "remove it"])
