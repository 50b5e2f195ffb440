"""One file of a bar store, decoded: the messages of a log, or the header and extent of a year."""

from dataclasses import dataclass
from pathlib import Path

from holdfast.bars.catalog import split_path
from holdfast.bars.checking import check_year_file
from holdfast.bars.wal import Damage
from holdfast.disk import OsDisk
from holdfast.errors import CorruptError
from holdfast.formats import market_wal as fmt
from holdfast.formats import year_file
from holdfast.formats.flaw import Flaw
from holdfast.formats.marketstore_wal import decode_intervals
from holdfast.reports.bar_logs import state_of
from holdfast.reports.bars import allocated_by, type_names

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
    torn: Damage | None  # what makes no sense, with nothing behind it
    damage: tuple[Damage, ...]


@dataclass(frozen=True, slots=True)
class YearFileReport:
    """A year file, its header told and its records counted."""

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


def read_wal(path: str) -> WalContent:
    """Decode one log, of either dialect; it may lie anywhere."""
    file = Path(path)
    data = file.read_bytes()
    status = fmt.decode_status(data)
    is_foreign = ".walfile" in file.name
    scan = fmt.scan(memoryview(data)) if len(data) >= fmt.STATUS_SIZE else None
    messages = tuple(_told(one, is_foreign) for one in scan.messages) if scan else ()
    flaw = scan.flaw if scan else Flaw(0, f"{len(data)} bytes are no log")
    torn = Damage(file.name, flaw.offset, flaw.why) if flaw else None
    return WalContent(
        name=file.name,
        dialect="marketstore" if is_foreign else "design",
        size=len(data),
        state=state_of(status),
        owner=None if isinstance(status, Flaw) else status.owner,
        messages=messages,
        torn=torn,
        damage=tuple(
            Damage(file.name, one.offset, one.text) for one in messages if one.kind == "damage"
        ),
    )


def _told(message: fmt.Message, is_foreign: bool) -> MessageReport:
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


def read_year_file(path: str) -> YearFileReport:
    """Decode one year file; in a root it must be what its path says, elsewhere only in itself."""
    root, name = _place(path)
    disk = OsDisk(root)
    file = disk.open(name)
    try:
        header = year_file.decode_header(file.read_at(0, year_file.HEADER_SIZE))
    finally:
        file.close()
    if isinstance(header, Flaw):
        raise CorruptError(path, header.offset, header.why)
    check = check_year_file(disk, name, None if split_path(name) else header)
    schema = header.schema
    return YearFileReport(
        path=path,
        year=header.year,
        timeframe_ns=header.timeframe_ns,
        kind="ticks" if schema.is_variable else "bars",
        columns=type_names(schema),
        description=header.description.decode("ascii", "backslashreplace"),
        record_size=schema.record_size,
        intervals=header.count,
        rows=check.rows,
        size=check.size,
        allocated=allocated_by(Path(path)),
        damage=tuple(check.flaws.values()),
    )


def _place(path: str) -> tuple[str, str]:
    """A directory, and the file's name in it: the root's, if the path looks like one in a root."""
    parts = Path(path).absolute().parts
    name = "/".join(parts[-4:])
    if split_path(name) is not None:
        return str(Path(*parts[:-4])), name
    return str(Path(*parts[:-1])), parts[-1]
