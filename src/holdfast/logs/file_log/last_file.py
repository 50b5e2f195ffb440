"""Recover the last index file of a FileLog, one step at a time; see .recovery."""

from contextlib import closing
from typing import TYPE_CHECKING

from holdfast.cuts import keep_aside, keep_pieces
from holdfast.disk import Disk, File
from holdfast.formats import rlog
from holdfast.formats.flaw import Flaw
from holdfast.formats.rlog_commit import Commit
from holdfast.logs.file_log.active import ActiveState
from holdfast.logs.file_log.directory import IndexFile, base_name

if TYPE_CHECKING:
    from holdfast.logs.file_log.recovery import Survey


def recover_last(disk: Disk, result: "Survey", recovered: list[str]) -> bool:
    """Put one thing about the last file right; False if there is nothing to do."""
    if result.unfinished is not None:
        _drop_unfinished(disk, result.unfinished, recovered)
        return True
    if not result.files or result.active is None:
        return False
    last, state = result.files[-1], result.active
    if not state.count and state.redo is None and _is_full(result.files[:-1], last.index):
        disk.remove(last.name)
        return True
    if not (state.redo or state.torn or state.half) and state.size == last.size:
        return False
    with closing(disk.open(last.name, writable=True)) as file:
        if state.redo is not None:
            recovered.append(write_again(file, last, state.slots, state.redo))
        if state.torn is not None:
            recovered.append(_cut(disk, file, last, state, state.torn))
        elif state.half is not None:
            recovered.append(_cut_half(disk, file, last, state.half))
            state.size = state.half.offset
        if state.size < last.size:
            file.resize(state.size)
        file.sync()
    return True


def write_again(file: File, last: IndexFile, slots: rlog.Slots, commit: Commit) -> str:
    """Write the slots of a batch that was not finished, durably; return what was done."""
    stop = commit.first_slot + len(commit.ends)
    if dirty := rlog.dirty_run(slots, stop):  # they would become visible with those before them
        file.write_at(rlog.TABLE_START + rlog.SLOT_SIZE * stop, bytes(rlog.SLOT_SIZE * dirty))
        file.sync()
    offset = rlog.TABLE_START + rlog.SLOT_SIZE * commit.first_slot
    file.write_at(offset, rlog.encode_slots(commit.ends))
    file.sync()
    span = f"{last.index + commit.first_slot}..{last.index + stop - 1}"
    return f"{last.name}: wrote the slots of entries {span} again"


def _cut_half(disk: Disk, file: File, last: IndexFile, half: Flaw) -> str:
    """Keep the bytes after the last entry, which are about to be cut off."""
    rest = file.read_at(half.offset, last.size - half.offset)
    kept = keep_aside(disk, base_name(last.name), half.offset, rest)
    return f"{last.name}: cut off {half.why}, {len(rest)} bytes, kept in {kept}"


def _is_full(before: list[IndexFile], next_index: int) -> bool:
    """Return whether the last of these has no slot for `next_index`; else `rotate` left it."""
    if not before or isinstance(before[-1].head, Flaw):
        return False
    return before[-1].head.header.stop_index == next_index


def _drop_unfinished(disk: Disk, found: IndexFile, recovered: list[str]) -> None:
    with closing(disk.open(found.name)) as file:
        data = file.read_at(0, found.size)
    done = f"{found.name}: never finished, removed"
    if any(data):
        done += f"; kept in {keep_aside(disk, base_name(found.name), 0, data)}"
    disk.remove(found.name)
    recovered.append(done)


def _cut(disk: Disk, file: File, last: IndexFile, state: ActiveState, torn: Flaw) -> str:
    """Clear slots that point to nothing; keep them and the bytes after the last entry."""
    assert isinstance(last.head, rlog.Head)
    used, start = rlog.count_used(state.slots), last.head.data_start + state.stop
    rest = file.read_at(start, max(0, state.size - start))
    slots = rlog.encode_slots(state.slots[state.count : used])
    pieces = {torn.offset: slots} | ({start: rest} if any(rest) else {})
    kept = keep_pieces(disk, base_name(last.name), pieces)
    file.write_at(torn.offset, bytes(len(slots)))
    what = f"{used - state.count} entries that never arrived ({torn.why})"
    return f"{last.name}: removed {what}, kept in {' and '.join(kept)}"
