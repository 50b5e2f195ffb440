"""One file of a bar store, decoded: the messages of a log, or the header and extent of a year."""

from contextlib import closing
from dataclasses import dataclass

from holdfast.bars import verify
from holdfast.bars.catalog import split_path
from holdfast.bars.status import state_of, type_names
from holdfast.bars.wal import Damage
from holdfast.disk import Disk
from holdfast.errors import CorruptError
from holdfast.formats import market_wal as fmt
from holdfast.formats import year_file
from holdfast.formats.flaw import Flaw
from holdfast.formats.marketstore_wal import decode_intervals

_KINDS = ("bars", "ticks", "new file of bars", "new file of ticks", "removed", "placed", "decision")
_STATUSES = ("preparing", "intended", "complete", "aborted")
_DESTINATIONS = ("log", "year files")


@dataclass(frozen=True, slots=True)
class SetReport:
    """Rows for one file in a group."""

    path: str
    kind: str
    rows: int


@dataclass(frozen=True, slots=True)
class MessageReport:
    offset: int
    kind: str  # status, info, group or damage
    tgid: int | None
    text: str
    sets: tuple[SetReport, ...] = ()


@dataclass(frozen=True, slots=True)
class WalContent:
    """A log, message by message."""

    name: str
    dialect: str
    size: int
    state: str
    owner: int | None
    messages: tuple[MessageReport, ...]
    torn: Damage | None  # an invalid end, with nothing valid after it
    damage: tuple[Damage, ...]


@dataclass(frozen=True, slots=True)
class YearFileReport:
    """A year file: its header, and how many rows it has."""

    path: str
    year: int
    timeframe_ns: int
    kind: str
    columns: dict[str, str]
    description: str
    record_size: int
    intervals: int
    rows: int
    size: int
    allocated: int
    damage: tuple[Damage, ...]


def read_wal(disk: Disk, name: str) -> WalContent:
    """Decode one log, of either dialect; it may be in any directory."""
    with closing(disk.open(name)) as file:
        data = file.read_at(0, file.size())
    status = fmt.decode_status(data)
    is_foreign = ".walfile" in name
    scan = fmt.scan(memoryview(data)) if len(data) >= fmt.STATUS_SIZE else None
    messages = tuple(_message(one, is_foreign) for one in scan.messages) if scan else ()
    flaw = scan.flaw if scan else Flaw(0, f"a log of {len(data)} bytes is too short")
    torn = Damage(name, flaw.offset, flaw.why) if flaw else None
    return WalContent(
        name=name,
        dialect="marketstore" if is_foreign else "design",
        size=len(data),
        state=state_of(status),
        owner=None if isinstance(status, Flaw) else status.owner,
        messages=messages,
        torn=torn,
        damage=tuple(
            Damage(name, one.offset, one.text) for one in messages if one.kind == "damage"
        ),
    )


def _message(message: fmt.Message, is_foreign: bool) -> MessageReport:
    if isinstance(message, fmt.Info):
        where, what = _name(_DESTINATIONS, message.destination), _name(_STATUSES, message.status)
        return MessageReport(message.offset, "info", message.tgid, f"{where}: {what}")
    if isinstance(message, fmt.Gap):
        return MessageReport(message.offset, "damage", message.tgid, message.why)
    sets = _intervals(message) if is_foreign else _sets(message)
    if isinstance(sets, Flaw):
        return MessageReport(sets.offset, "damage", message.tgid, sets.why)
    rows, files = sum(one.rows for one in sets), len({one.path for one in sets})
    return MessageReport(
        message.offset, "group", message.tgid, f"{rows:,} rows, {files:,} files", tuple(sets)
    )


def _name(names: tuple[str, ...], number: int) -> str:
    return names[number] if 0 <= number < len(names) else str(number)


def _sets(group: fmt.Group) -> list[SetReport] | Flaw:
    sets = fmt.decode_sets(group)
    if isinstance(sets, Flaw):
        return sets
    return [SetReport(one.path, _name(_KINDS, one.kind), one.count) for one in sets]


def _intervals(group: fmt.Group) -> list[SetReport] | Flaw:
    intervals = decode_intervals(group)
    if isinstance(intervals, Flaw):
        return intervals
    return [
        SetReport(
            one.path, _name(_KINDS, one.kind), len(one.data) // (one.row_size or len(one.data))
        )
        for one in intervals
    ]


def read_year_file(disk: Disk, name: str) -> YearFileReport:
    """Decode one year file.  In a root its path must agree with it: SYMBOL/TIMEFRAME/GROUP/YEAR."""
    with closing(disk.open(name)) as file:
        header = year_file.decode_header(file.read_at(0, year_file.HEADER_SIZE))
        allocated = file.allocated()
    if isinstance(header, Flaw):
        raise CorruptError(f"{disk}/{name}", header.offset, header.why)
    check = verify.read_year_file(disk, name, None if split_path(name) else header)
    schema = header.schema
    return YearFileReport(
        path=f"{disk}/{name}",
        year=header.year,
        timeframe_ns=header.timeframe_ns,
        kind="ticks" if schema.is_variable else "bars",
        columns=type_names(schema),
        description=header.description.decode("ascii", "backslashreplace"),
        record_size=schema.record_size,
        intervals=header.count,
        rows=check.rows,
        size=check.size,
        allocated=allocated,
        damage=tuple(check.flaws.values()),
    )
