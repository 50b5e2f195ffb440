"""What an operator may want to know of a FileLog, and what only all of its files together tell."""

from collections.abc import Sequence
from typing import Any

from holdfast.disk import Disk
from holdfast.errors import CorruptError
from holdfast.formats import rlog, snapshot_file
from holdfast.logs.file_log.directory import SNAPSHOT, STATE
from holdfast.logs.file_log.history import kept
from holdfast.logs.file_log.part import Part
from holdfast.logs.file_log.state import read_state
from holdfast.logs.log import Damage


def facts_of(disk: Disk, snapshot: snapshot_file.Head, parts: Sequence[Part]) -> dict[str, str]:
    facts = {}
    if parts:
        facts["capacity"] = (
            f"{rlog.nominal_capacity(parts[0].head.header.capacity)} entries per file"
        )
    facts["snapshot"] = "none"
    if snapshot.index:
        made = f"made {snapshot.meta.created or 'at some time'} by {snapshot.meta.hostname or '?'}"
        what = f"entry {snapshot.index}, term {snapshot.term}, {snapshot.data_size} bytes"
        facts["snapshot"] = f"{what}, {made}"
    facts["old snapshots"] = str(len(kept(disk, SNAPSHOT)))
    try:
        state = read_state(disk, STATE)
    except CorruptError as error:
        return {**facts, "state": str(error)}
    return facts | {f"state {name}": _shown(value) for name, value in state.items()}


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return ", ".join(" at ".join(map(str, each)) for each in value) or "none"
    return str(value)


def whole_damage(disk: Disk, parts: Sequence[Part]) -> list[Damage]:
    damage = []
    last = 0
    for part in parts:
        if not part.count:
            continue
        ends = part.first_index, part.stop_index - 1
        first, final = (int(part.headers(index, index + 1).terms[0]) for index in ends)
        if first < last:
            why = f"its term {first} is before {last}, that of the file before"
            damage.append(Damage(part.name, part.head.data_start, ends[0], ends[0], why))
        last = final
    try:
        read_state(disk, STATE)
    except CorruptError as error:
        damage.append(Damage(error.where, error.offset, 0, 0, error.why))
    return damage
