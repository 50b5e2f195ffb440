"""What can still be read of each index file, for repair: every entry looked at, nothing changed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.disk import Disk
from holdfast.formats import rlog
from holdfast.formats.flaw import Flaw
from holdfast.formats.rlog_entry import Offsets, decode_headers
from holdfast.logs.file_log.batches import count_sound
from holdfast.logs.file_log.directory import Found
from holdfast.logs.file_log.recovery import Survey
from holdfast.logs.file_log.tail import bad_entries
from holdfast.logs.log import Damage


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """One file whose head is sound: which of its entries are, and their terms."""

    name: str
    first_index: int
    stop_index: int
    sound: "np.ndarray[tuple[int], np.dtype[np.bool_]]"
    terms: Offsets
    damage: tuple[Damage, ...]

    def has(self, index: int) -> bool:
        slot = index - self.first_index
        return 0 <= slot < len(self.sound) and bool(self.sound[slot])

    def term_of(self, index: int) -> int:
        return int(self.terms[index - self.first_index])


def pieces_of(disk: Disk, found: Survey) -> list[Piece]:
    """In the order of their indexes."""
    stops = [file.index for file in found.files[1:]]
    pieces = []
    for number, file in enumerate(found.files):
        if isinstance(file.head, Flaw):
            continue
        stop = stops[number] if number < len(stops) else found.last_index + 1
        pieces.append(_piece(disk, file, file.head, min(stop, file.head.header.stop_index)))
    return pieces


def _piece(disk: Disk, file: Found, head: rlog.Head, stop_index: int) -> Piece:
    handle = disk.open(file.name)
    try:
        data = memoryview(handle.read_at(0, file.size))
    finally:
        handle.close()
    count = stop_index - file.index
    slots = rlog.decode_slots(data[rlog.TABLE_START : head.header.table_stop])
    there, why = count_sound(slots[:count], len(data) - head.data_start)
    bounds = np.concatenate([[0], slots[:there]]).astype(np.int64) + head.data_start
    sound = np.zeros(count, np.bool_)
    sound[:there] = ~bad_entries(data, bounds)
    terms = np.zeros(count, np.int64)
    fit = np.flatnonzero(sound)
    terms[fit] = decode_headers(data, bounds[:-1][fit]).terms
    damage = [
        Damage(file.name, int(bounds[slot]), file.index + slot, file.index + slot, "not an entry")
        for slot in np.flatnonzero(~sound[:there]).tolist()
    ]
    if there < count:
        offset = rlog.TABLE_START + rlog.SLOT_SIZE * there
        damage.append(Damage(file.name, offset, file.index + there, stop_index - 1, why))
    return Piece(file.name, file.index, stop_index, sound, terms, tuple(damage))


def _runs(pieces: Sequence[Piece], first: int) -> list[tuple[int, int]]:
    """Rows of sound entries from `first` on."""
    rows: list[tuple[int, int]] = []
    for piece in pieces:
        edges = np.flatnonzero(np.diff(np.concatenate([[0], piece.sound, [0]]).astype(np.int8)))
        for begin, end in edges.reshape(-1, 2).tolist():
            a, b = max(first, piece.first_index + begin), piece.first_index + end - 1
            if a > b:
                continue
            if rows and rows[-1][1] + 1 == a:
                rows[-1] = rows[-1][0], b
            else:
                rows.append((a, b))
    return rows


def run_before(pieces: Sequence[Piece], first: int) -> tuple[int, int]:
    """The sound entries from the log's first one on; none, if that is damaged."""
    rows = _runs(pieces, first)
    return rows[0] if rows and rows[0][0] == first else (first, first - 1)


def run_after(pieces: Sequence[Piece], first: int) -> tuple[int, int]:
    """The last row of sound entries."""
    rows = _runs(pieces, first)
    return rows[-1] if rows else (first, first - 1)
