"""Read an index file from end to end and judge every entry: for `verify` and repair."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from holdfast.disk import Disk
from holdfast.formats import rlog
from holdfast.formats.flaw import Flaw
from holdfast.formats.rlog_commit import Commit
from holdfast.formats.rlog_entry import Offsets, bad_entries, decode_headers
from holdfast.logs.log import Damage

NOT_AN_ENTRY = "not an entry"


@dataclass(frozen=True, slots=True, eq=False)
class Examined:
    """Every entry of an index file whose head is valid: which ones are sound, and their terms."""

    name: str
    first_index: int
    starts: Offsets  # of the entries that the slots locate
    sound: npt.NDArray[np.bool_]
    terms: Offsets
    damage: tuple[Damage, ...]

    @property
    def stop_index(self) -> int:
        return self.first_index + len(self.sound)

    def term_of(self, index: int) -> int | None:
        """Return the term of an entry; None if it is not here or not sound."""
        slot = index - self.first_index
        is_sound = 0 <= slot < len(self.sound) and self.sound[slot]
        return int(self.terms[slot]) if is_sound else None


def examine(
    disk: Disk, name: str, size: int, head: rlog.Head, stop_index: int, redo: Commit | None = None
) -> Examined:
    """Read an index file and judge each entry before `stop_index`; with the slots of `redo`."""
    with closing(disk.open(name)) as file:
        data = memoryview(file.read_at(0, size))
    first = head.header.first_index
    count = stop_index - first
    slots = rlog.decode_slots(data[rlog.TABLE_START : head.header.table_stop])
    if redo is not None:
        slots = slots.copy()
        slots[redo.first_slot : redo.first_slot + len(redo.ends)] = redo.ends
    there, flaw = count_sound(slots[:count], len(data) - head.data_start)
    bounds = np.concatenate([[0], slots[:there]]).astype(np.int64) + head.data_start
    sound, terms = np.zeros(count, np.bool_), np.zeros(count, np.int64)
    sound[:there] = ~bad_entries(data, bounds)
    fit = np.flatnonzero(sound)
    terms[fit] = decode_headers(data, bounds[:-1][fit]).terms
    damage = [
        Damage(name, int(bounds[slot]), first + slot, first + slot, NOT_AN_ENTRY)
        for slot in np.flatnonzero(~sound[:there]).tolist()
    ]
    if there < count:
        damage.append(Damage(name, flaw.offset, first + there, stop_index - 1, flaw.why))
    for slot in fit[np.flatnonzero(np.diff(terms[fit]) < 0) + 1].tolist():
        index, sound[slot] = first + slot, False
        why = "its term is before that of an entry before it"
        damage.append(Damage(name, int(bounds[slot]), index, index, why))
    return Examined(name, first, bounds[:-1], sound, terms, tuple(damage))


def compare_terms(pieces: Sequence[Examined]) -> list[Examined]:
    """Return the files of a log with what is wrong about the terms of their first entries."""
    found, last = list[Examined](), 0
    for piece in pieces:
        if piece.sound[:1].any() and (term := int(piece.terms[0])) < last:
            piece.sound[0] = False
            index, why = (
                piece.first_index,
                f"its term {term} is before {last}, that of the file before",
            )
            one = Damage(piece.name, int(piece.starts[0]), index, index, why)
            piece = replace(piece, damage=(one, *piece.damage))
        found.append(piece)
        if len(piece.terms):
            last = int(piece.terms[-1])
    return found


def count_sound(ends: rlog.Slots, size: int) -> tuple[int, Flaw]:
    """Count the entries that are in order and inside `size` bytes; say why the next one is not."""
    used = rlog.count_used(ends)
    ordered = rlog.count_ordered(ends[:used])
    there = min(ordered, int(np.searchsorted(ends[:ordered], size, "right")))
    why = "it has no offset"
    if there < ordered:
        why = "an offset points past the data"
    elif ordered < used:
        why = "its offsets do not increase"
    return there, Flaw(rlog.TABLE_START + rlog.SLOT_SIZE * there, why)
