"""The write-ahead logs of a bar store as an operator sees them: states, groups, what is to be done.

Guests, as all reports are.  An owner at work can look like damage or a torn tail, so what looks
wrong is looked at twice, a moment apart.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast import runtime
from holdfast.bars import replay
from holdfast.bars.catalog import Catalog
from holdfast.bars.pending import Change
from holdfast.bars.wal import Content, Damage
from holdfast.disk import OsDisk
from holdfast.formats import market_wal as fmt
from holdfast.formats.flaw import Flaw
from holdfast.reports.logs import Owner, Pause

SECOND_LOOK_SECONDS = 0.1
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
class WalReport:
    """One write-ahead log, and what the next owner will do with it."""

    name: str
    dialect: str  # "design", or "marketstore" if its own program wrote it
    size: int
    state: str
    owner: Owner | None  # of a log that is open; MarketStore's do not tell
    committed: int  # groups
    waiting: int  # of them, those that are not yet in the year files
    undecided: tuple[int, ...]  # tgids of groups that are prepared
    torn: Damage | None
    damage: tuple[Damage, ...]
    action: str


def find_wals(path: str, *, pause: Pause = time.sleep) -> tuple[WalReport, ...]:
    """Every log of a root, oldest first, with what the next owner will do with it."""
    return wals_of(OsDisk(path), settled(OsDisk(path), pause))


def look(disk: OsDisk) -> replay.Found:
    """A live owner removes logs that are done, perhaps between their names and their bytes."""
    for attempt in range(_RETRIES):
        try:
            return replay.look(disk, Catalog(disk), is_shared=True)
        except FileNotFoundError:
            if attempt == _RETRIES - 1:
                raise
    raise AssertionError("the last attempt raises or returns")


def settled(disk: OsDisk, pause: Pause) -> replay.Found:
    """The logs, after a second look at what looked wrong."""
    found = look(disk)
    if not _wrong(found):
        return found
    pause(SECOND_LOOK_SECONDS)
    again = look(disk)
    if not _wrong(again) <= _wrong(found):  # somebody is at work: one more, and that counts
        pause(SECOND_LOOK_SECONDS)
        again = look(disk)
    return again


def _wrong(found: replay.Found) -> set[tuple[str, int]]:
    torn = {(one.log.name, one.content.stop) for one in found.logs if one.content.flaw}
    return torn | {(damage.file, damage.offset) for damage in found.damage}


def wals_of(disk: OsDisk, found: replay.Found) -> tuple[WalReport, ...]:
    undecided = found.undecided()
    return tuple(_wal(disk, one, found.damage, undecided) for one in found.logs)


def _wal(
    disk: OsDisk, one: replay.Log, damage: Iterable[Damage], undecided: Iterable[int]
) -> WalReport:
    waiting = sum(not change.is_done for change in _groups(one.content))
    committed = len(_groups(_raw(disk, one) if one.log.is_foreign else one.content))
    own = tuple(damage for damage in damage if damage.file == one.log.name)
    owner = _owner_of(one)
    return WalReport(
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
    """Without the plans of write-backs."""
    return [change for change in content.changes if change.group.first_kind != fmt.PLACED]


def _raw(disk: OsDisk, one: replay.Log) -> Content:
    """MarketStore's groups, those that are done included."""
    content = Content(one.log.name, is_foreign=True)
    file = disk.open(one.log.name)
    try:
        content.read(memoryview(file.read_at(0, one.size)))
    finally:
        file.close()
    return content


def state_of(status: fmt.Status | Flaw) -> str:
    """The state of a log, in words."""
    if isinstance(status, Flaw):
        return "no status"
    known = status.file_status, status.replay_state
    return _STATES.get(known, f"status {status.file_status}, {status.replay_state}")


def _owner_of(one: replay.Log) -> Owner | None:
    status = one.status
    if one.log.is_foreign or isinstance(status, Flaw) or status.file_status != fmt.OPEN:
        return None
    return Owner(status.owner, runtime.was_running(status.owner, one.log.created_ns))


def _torn(one: replay.Log) -> Damage | None:
    flaw = one.content.flaw
    if flaw is None:
        return None
    size = one.size - one.content.stop
    return Damage(one.log.name, one.content.stop, f"torn write of {size} bytes ({flaw.why})")


def _action(one: replay.Log, waiting: int, damage: tuple[Damage, ...], owner: Owner | None) -> str:
    if owner is not None and owner.alive:
        return f"none: process {owner.pid} uses it"
    if damage:
        return "none: damaged; --salvage keeps it aside and goes on with what is sound"
    if one.is_finished or one.size < fmt.STATUS_SIZE:
        return "remove it"
    groups = f"{waiting:,} group{'' if waiting == 1 else 's'}"
    steps = [f"write {groups} to the year files"] if waiting else []
    steps += ["keep the torn tail aside"] if one.content.flaw is not None else []
    steps += ["carry over what is undecided"] if one.content.undecided else []
    return ", ".join([*steps, "remove it"])
