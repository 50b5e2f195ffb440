"""Repair a damaged FileLog: first report what would be lost, then do it.

See holdfast.logs.repairing.  Neither we nor the original can open a log that begins after its
snapshot.  So where the entries after the damage are kept, or the snapshot is damaged and no older
one fits, an empty one is created: its data must come from a peer.  Nothing is deleted: removed
bytes stay beside the log, in .cut files or under a dated name.  The mark is replaced last.  So a
crash between two steps leaves a log that is still damaged and can be planned again.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from holdfast.cuts import keep_aside, set_aside
from holdfast.disk import Disk, File
from holdfast.errors import HoldfastError
from holdfast.formats import rlog, snapshot_file
from holdfast.formats.flaw import Flaw
from holdfast.formats.mark import Mark
from holdfast.formats.mark import encode_file as encode_mark
from holdfast.logs.file_log.active import judge
from holdfast.logs.file_log.directory import (
    SNAPSHOT,
    IndexFile,
    base_name,
    index_name,
    read_snapshot_head,
)
from holdfast.logs.file_log.examined import Examined, compare_terms, examine
from holdfast.logs.file_log.history import Stamps, kept
from holdfast.logs.file_log.intent import INTENT
from holdfast.logs.file_log.last_file import write_again
from holdfast.logs.file_log.marker import NOTHING
from holdfast.logs.file_log.recovery import Survey, survey
from holdfast.logs.file_log.state import redo_name, state_damage
from holdfast.logs.file_log.writer import FileLog
from holdfast.logs.log import Damage
from holdfast.logs.mark import MARK, read_mark
from holdfast.logs.repairing import Keep, RepairPlan, Span, check_keep, less_kept, settled
from holdfast.runtime import Runtime

Action = Literal["set aside", "forget", "finish", "cut", "rewrite", "restore", "create", "record"]


@dataclass(frozen=True, slots=True)
class Step:
    """A change of one file."""

    file: str
    action: Action
    index: int = 0
    source: str = ""
    term: int = 0
    stop: int = 0  # the index after the last one that is rewritten

    def __str__(self) -> str:
        return {
            "set aside": f"move {self.file} aside",
            "forget": f"move {self.file} aside: the server's term and vote are lost",
            "finish": f"write the slots of the last batch in {self.file} again",
            "cut": f"clear the slots of {self.file} from entry {self.index} on; keep their bytes",
            "rewrite": f"write entries {self.index} to {self.stop - 1} into a file of their own",
            "restore": f"replace {self.file} by {self.source}, of entry {self.index}",
            "create": f"create an empty {self.file} of entry {self.index}: its data is lost",
            "record": f"record in {self.file} what the log then holds",
        }[self.action]


def plan_repair(disk: Disk, *, keep: Keep = "before") -> RepairPlan[Step]:
    """Read everything, change nothing, and return what repair would keep and lose."""
    check_keep(keep)
    return settled(lambda: _plan(disk, keep))


def _plan(disk: Disk, keep: Keep) -> RepairPlan[Step]:
    found = survey(disk, read_mark(disk))
    pieces = _pieces(disk, found)
    damage = found.all_damage()
    damage += [d for piece in pieces for d in piece.damage if not _is_known(d, damage)]
    state = state_damage(disk)
    damage += [state] if state is not None else []
    if all(one.torn for one in damage):  # recovery removes it
        return RepairPlan(keep, tuple(damage), (), found.kept, (), ())
    steps = [Step(INTENT, "set aside") for one in damage if one.file == INTENT]
    steps += [Step(state.file, "forget")] if state is not None else []
    foreign = [one.file for one in damage if one.file.endswith(".rlog") and not one.first_index]
    steps += [Step(name, "set aside") for name in foreign if name not in found.names]
    if state is not None and len(damage) == 1:
        return RepairPlan(keep, tuple(damage), tuple(steps), found.kept, (), (state.file,))
    if found.active is not None and found.active.redo is not None:
        steps.append(Step(found.files[-1].name, "finish"))
    had = _had(found, damage)
    run = _run(pieces, found.first_index, keep)
    snapshot = _snapshot_steps(disk, found, run, pieces)
    steps += snapshot
    steps += _file_steps(found, pieces, run, keeps_covered=_is_confirmed(snapshot, pieces))
    steps.append(Step(MARK, "record"))
    begins = [step.index + 1 for step in snapshot if step.index]
    kept = max([run[0], *begins]), run[1]
    restored = [step.index + 1 for step in snapshot if step.action == "restore"]
    had = max([had[0], *restored]), had[1]
    is_blank = any(step.action == "create" for step in snapshot)
    unknown = [SNAPSHOT] if is_blank and not _is_sound(found) else []
    unknown += [f.name for f in found.files[-1:] if isinstance(f.head, Flaw)]
    unknown += [state.file] if state is not None else []
    return RepairPlan(
        keep, tuple(damage), tuple(steps), kept, less_kept([had], kept), tuple(unknown)
    )


def _is_known(one: Damage, known: Sequence[Damage]) -> bool:
    return any(
        one.file == each.file and each.first_index <= one.first_index <= each.last_index
        for each in known
    )


def _had(found: Survey, damage: Sequence[Damage]) -> Span:
    """Return the first and the last index that the log is known to have had."""
    first = found.snapshot_index + 1
    if found.promise is not None:
        first = found.promise.first
    elif not isinstance(found.snapshot, snapshot_file.Head) and found.files:
        first = found.files[0].index
    lasts = [one.last_index for one in damage]
    return first, max([_last_index(found), found.snapshot_index, *lasts])


def _last_index(found: Survey) -> int:
    """Return the last index in the files, with a batch whose slots are to be written again."""
    if found.active is None:
        return found.last_index
    return found.files[-1].index + found.active.final_count - 1


def _is_sound(found: Survey) -> bool:
    """Return whether there is a snapshot, and nothing is wrong with it."""
    is_there = isinstance(found.snapshot, snapshot_file.Head)
    return is_there and not any(one.file == SNAPSHOT for one in found.damage)


def apply_repair(disk: Disk, plan: RepairPlan[Step], *, runtime: Runtime | None = None) -> None:
    """Carry a plan out, unless the log has changed since; then recover it as any owner would."""
    stamps = Stamps(runtime or Runtime())
    lock = disk.lock()
    try:
        plan.refuse_if_changed(plan_repair(disk, keep=plan.keep))
        for step in plan.steps:
            _apply(disk, step, stamps)
    finally:
        lock.release()
    with FileLog(disk, runtime=runtime) as log:
        if log.damage:
            raise HoldfastError(f"still damaged: {log.damage[0]}")


def _pieces(disk: Disk, found: Survey) -> list[Examined]:
    """Examine the files with a valid head, in the order of their indexes."""
    stops = [_stop_of(disk, *pair) for pair in pairwise(found.files)] + [_last_index(found) + 1]
    redo = found.active.redo if found.active else None
    pieces = [
        examine(
            disk,
            file.name,
            file.size,
            file.head,
            min(stop, file.head.header.stop_index),
            redo if file is found.files[-1] else None,
        )
        for file, stop in zip(found.files, stops, strict=False)
        if not isinstance(file.head, Flaw)
    ]
    for piece in pieces:
        if found.doubted is not None and found.doubted.file == piece.name:
            first, last = found.doubted.first_index, found.doubted.last_index
            piece.sound[first - piece.first_index : last + 1 - piece.first_index] = False
    return compare_terms(pieces)


def _stop_of(disk: Disk, file: IndexFile, after: IndexFile) -> int:
    """Return where a file ends: where the next one begins, unless that one is not what it seems."""
    if isinstance(file.head, Flaw) or not isinstance(after.head, Flaw):
        return after.index
    return max(after.index, file.index + judge(disk, file, file.head).count)


def _run(pieces: Sequence[Examined], first: int, keep: Keep) -> Span:
    """Return the sound entries from the log's first one on, or the last contiguous ones."""
    runs: list[Span] = []
    for piece in pieces:
        edges = np.flatnonzero(np.diff(np.concatenate([[0], piece.sound, [0]]).astype(np.int8)))
        for begin, end in edges.reshape(-1, 2).tolist():
            a, b = max(first, piece.first_index + begin), piece.first_index + end - 1
            if a <= b and runs and runs[-1][1] + 1 == a:
                runs[-1] = runs[-1][0], b
            elif a <= b:
                runs.append((a, b))
    if keep == "after" and runs:
        return runs[-1]
    return runs[0] if runs and runs[0][0] == first else (first, first - 1)


def _snapshot_steps(disk: Disk, found: Survey, run: Span, pieces: Sequence[Examined]) -> list[Step]:
    """Return the steps to a snapshot of the entry before `run`, or of a later one in it."""
    snapshot, first = found.snapshot, run[0]
    if _is_sound(found) and found.snapshot_index == first - 1:
        return []
    aside = [Step(SNAPSHOT, "set aside")] if snapshot is not None else []
    names = disk.list()
    for name in reversed(kept(disk, SNAPSHOT)):
        head = read_snapshot_head(disk, names, name)
        if not isinstance(head, snapshot_file.Head) or not first - 1 <= head.index <= run[1]:
            continue
        if head.index and _term_of(pieces, head.index) == head.term:
            return [*aside, Step(SNAPSHOT, "restore", head.index, name, head.term)]
    if first == 1:
        return aside  # an owner creates the snapshot of nothing
    return [*aside, Step(SNAPSHOT, "create", first - 1, term=_term_of(pieces, first) or 1)]


def _term_of(pieces: Sequence[Examined], index: int) -> int | None:
    terms = (piece.term_of(index) for piece in pieces)
    return next((term for term in terms if term is not None), None)


def _is_confirmed(steps: Sequence[Step], pieces: Sequence[Examined]) -> bool:
    """Return whether the entry of a new snapshot, if a file still holds it, has its term."""
    terms = [(step.term, _term_of(pieces, step.index)) for step in steps if step.index]
    return all(found in (None, term) for term, found in terms)


def _file_steps(
    found: Survey, pieces: Sequence[Examined], run: Span, *, keeps_covered: bool
) -> list[Step]:
    """From the ends inwards, so that after any crash the kept entries are contiguous."""
    first, last = run
    sound = {piece.name: piece for piece in pieces}
    before = [piece for piece in pieces if piece.first_index < first]
    lost = [one for piece in before for one in piece.damage if one.first_index < first]
    lost += [one for one in found.damage if 0 < one.first_index < first]
    keeps_covered = keeps_covered and first == found.first_index and not lost
    aside, steps = [], []
    for file in reversed(found.files):
        piece = sound.get(file.name)
        if piece is None or file.index > last + 1:
            aside.append(Step(file.name, "set aside"))
        elif piece.stop_index <= first and (piece.first_index < first or piece.damage):
            if not keeps_covered:
                aside.append(Step(file.name, "set aside"))
        elif piece.first_index < first and not keeps_covered:
            if first > last:
                aside.append(Step(file.name, "set aside"))
            else:
                stop = min(last + 1, piece.stop_index)
                steps.append(Step(file.name, "rewrite", first, stop=stop))
        elif piece.stop_index > last + 1 or piece.damage:
            steps.append(Step(file.name, "cut", last + 1))
    return aside + steps


def _apply(disk: Disk, step: Step, stamps: Stamps) -> None:
    if step.action == "set aside":
        set_aside(disk, step.file)
    elif step.action == "forget":
        for name in (step.file, redo_name(step.file)):
            if name in disk.list():
                set_aside(disk, name)
    elif step.action == "finish":
        _finish(disk)
    elif step.action == "restore":
        disk.link(step.source, step.file)
    elif step.action == "record":
        _forget_mark(disk)
    elif step.action == "create":
        head = snapshot_file.encode_head(step.index, step.term, 0, stamps.meta())
        disk.create(step.file, head)
    else:
        _change(disk, step, stamps)


def _finish(disk: Disk) -> None:
    """Write the slots of the last batch again, as recovery does, and remove its record."""
    found = survey(disk, read_mark(disk))
    assert found.active is not None and found.active.redo is not None, "planned only then"
    with closing(disk.open(found.names[-1], writable=True)) as file:
        write_again(file, found.files[-1], found.active.slots, found.active.redo)
        file.resize(found.active.size)
        file.sync()


def _forget_mark(disk: Disk) -> None:
    """Replace the mark by one that promises nothing: the next owner records the log."""
    mark = read_mark(disk)
    if isinstance(mark, Flaw):
        with closing(disk.open(MARK)) as file:
            keep_aside(disk, MARK, 0, file.read_at(0, file.size()))
    if isinstance(mark, Mark):
        mark = replace(NOTHING, lowered=mark.lowered + 1, counter=mark.counter + 1)
    disk.create(MARK, encode_mark(mark if isinstance(mark, Mark) else NOTHING), replace=True)


def _change(disk: Disk, step: Step, stamps: Stamps) -> None:
    """Cut the slots of a file, or write its last entries into a new file."""
    with closing(disk.open(step.file, writable=True)) as file:
        data = file.read_at(0, file.size())
        head = rlog.decode_head(lambda offset, size: data[offset : offset + size])
        assert isinstance(head, rlog.Head), "planned only for such"
        slot = step.index - head.header.first_index
        if step.action == "cut":
            _cut(disk, file, step.file, data, head, slot)
            return
    slots = rlog.decode_slots(data[rlog.TABLE_START : head.header.table_stop])
    stop = step.stop - head.header.first_index
    start = int(slots[slot - 1])
    header = rlog.Header(step.index, head.header.capacity - slot)
    whole = bytearray(rlog.encode_file(header, stamps.meta()))
    ends = rlog.encode_slots(slots[slot:stop] - start)
    whole[rlog.TABLE_START : rlog.TABLE_START + len(ends)] = ends
    whole += data[head.data_start + start : head.data_start + int(slots[stop - 1])]
    disk.create(index_name(step.index), bytes(whole))
    set_aside(disk, step.file)


def _cut(disk: Disk, file: File, name: str, data: bytes, head: rlog.Head, slot: int) -> None:
    """Cut off the entries from this slot on, and clear their slots; keep both.

    The entries first: then they are damaged still if the power goes before the slots are cleared.
    """
    offset, stop = rlog.TABLE_START + rlog.SLOT_SIZE * slot, head.header.table_stop
    end = int.from_bytes(data[offset - rlog.SLOT_SIZE : offset], "little") if slot else 0
    end += head.data_start
    for at, bytes_ in ((offset, data[offset:stop].rstrip(b"\0")), (end, data[end:])):
        if any(bytes_):
            keep_aside(disk, base_name(name), at, bytes_)
    file.resize(min(end, len(data)))
    file.sync()
    file.write_at(offset, bytes(stop - offset), sync=True)
