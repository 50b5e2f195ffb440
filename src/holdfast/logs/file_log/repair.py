"""Repair of a damaged FileLog: first say what would be lost, then do it.

See holdfast.logs.repairing.  A log that begins behind its snapshot cannot be opened, by the
original neither; so where what comes after the damage is kept, and where the snapshot itself is
damaged and no older one fits, an empty one is made: what it should hold must come from a peer.
Nothing is deleted: what is taken out stays beside the log, in .cut files or under a dated name.
A crash between two steps leaves a log that is still damaged and can be planned anew.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from holdfast import runtime
from holdfast.cuts import keep_aside, set_aside
from holdfast.disk import Disk
from holdfast.errors import HoldfastError
from holdfast.formats import rlog, snapshot_file
from holdfast.formats.flaw import Flaw
from holdfast.logs.file_log.directory import SNAPSHOT, base_name, index_name, reader
from holdfast.logs.file_log.history import Stamps, kept
from holdfast.logs.file_log.intent import INTENT
from holdfast.logs.file_log.log import FileLog
from holdfast.logs.file_log.pieces import Piece, pieces_of, run_after, run_before
from holdfast.logs.file_log.recovery import Survey, survey
from holdfast.logs.repairing import Keep, RepairPlan, check_keep, settled

Action = Literal["set aside", "cut", "rewrite", "restore", "make"]


@dataclass(frozen=True, slots=True)
class Step:
    """What happens to one file."""

    file: str
    action: Action
    index: int = 0
    source: str = ""
    term: int = 0

    def __str__(self) -> str:
        return {
            "set aside": f"set {self.file} aside",
            "cut": f"clear the slots of {self.file} from entry {self.index} on; keep them aside",
            "rewrite": f"write the entries from {self.index} on into a file of their own",
            "restore": f"put {self.source}, of entry {self.index}, in the place of {self.file}",
            "make": f"make an empty {self.file} of entry {self.index}: its data is lost",
        }[self.action]


def plan_repair(disk: Disk, *, keep: Keep = "before") -> RepairPlan[Step]:
    """Read everything, change nothing, and say what repair would keep and lose."""
    check_keep(keep)
    return settled(lambda: _plan(disk, keep))


def _plan(disk: Disk, keep: Keep) -> RepairPlan[Step]:
    found = survey(disk)
    pieces = pieces_of(disk, found)
    damage = found.all_damage()
    damage += [d for piece in pieces for d in piece.damage if d not in damage]
    last = max([found.last_index, found.snapshot_index, *(d.last_index for d in damage)])
    if all(one.torn for one in damage):  # recovery sees to it
        span = found.first_index, max(found.last_index, found.snapshot_index)
        return RepairPlan(keep, tuple(damage), (), span, (), ())
    first = found.first_index
    run = run_before(pieces, first) if keep == "before" else run_after(pieces, first)
    steps = [Step(INTENT, "set aside") for one in damage if one.file == INTENT]
    steps += _snapshot_steps(disk, found, run[0], pieces)
    steps += _file_steps(found, pieces, run)
    is_blank = any(step.action == "make" for step in steps)
    unknown = [SNAPSHOT] if is_blank and isinstance(found.snapshot, Flaw) else []
    unknown += [f.name for f in found.files[-1:] if isinstance(f.head, Flaw)]
    lost = [(first, run[0] - 1), (run[1] + 1, last)]
    spans = tuple((a, b) for a, b in lost if a <= b)
    return RepairPlan(keep, tuple(damage), tuple(steps), run, spans, tuple(unknown))


def apply_repair(
    disk: Disk, plan: RepairPlan[Step], *, now_ms: Callable[[], int] = runtime.now_ms
) -> None:
    """Carry a plan out, unless the log has changed since; then recover it as any owner would."""
    lock = disk.lock()
    try:
        plan.refuse_if_changed(plan_repair(disk, keep=plan.keep))
        for step in plan.steps:
            _apply(disk, step, Stamps(now_ms))
    finally:
        lock.release()
    with FileLog(disk, now_ms=now_ms) as log:
        if log.damage:
            raise HoldfastError(f"still damaged: {log.damage[0]}")


def _snapshot_steps(disk: Disk, found: Survey, first: int, pieces: Sequence[Piece]) -> list[Step]:
    """A snapshot behind which entry `first` is the next, or a later one."""
    snapshot = found.snapshot
    is_wrong = any(one.file == SNAPSHOT for one in found.damage)
    if isinstance(snapshot, snapshot_file.Head) and not is_wrong and snapshot.index >= first - 1:
        return []
    aside = [Step(SNAPSHOT, "set aside")] if snapshot is not None else []
    for name in reversed(kept(disk, SNAPSHOT)):
        head = _head_of(disk, name)
        if isinstance(head, snapshot_file.Head) and first - 1 <= head.index:
            fits = next((p.term_of(head.index) for p in pieces if p.has(head.index)), None)
            if fits == head.term:
                return [*aside, Step(SNAPSHOT, "restore", head.index, name)]
    if first == 1:
        return aside  # opening makes the snapshot of nothing
    term = next((piece.term_of(first) for piece in pieces if piece.has(first)), 1)
    return [*aside, Step(SNAPSHOT, "make", first - 1, term=term)]


def _head_of(disk: Disk, name: str) -> snapshot_file.Head | Flaw:
    file = disk.open(name)
    try:
        return snapshot_file.decode_head(reader(file), disk.list()[name])
    finally:
        file.close()


def _file_steps(found: Survey, pieces: Sequence[Piece], run: tuple[int, int]) -> list[Step]:
    """From the ends inwards, so that what is kept stays in one row after any crash."""
    first, last = run
    sound = {piece.name: piece for piece in pieces}
    covered = [piece for piece in pieces if piece.stop_index <= first]
    lost = [d for piece in covered for d in piece.damage]
    lost += [one for one in found.damage if 0 < one.first_index < first]
    keeps_covered = first == found.first_index and not lost
    aside, steps = [], []
    for file in reversed(found.files):
        piece = sound.get(file.name)
        if piece is not None and piece.stop_index <= first and file.index <= last and keeps_covered:
            continue
        if piece is None or file.index > last or piece.stop_index <= first:
            aside.append(Step(file.name, "set aside"))
        elif piece.first_index < first and piece.damage:
            steps.append(Step(file.name, "rewrite", first))
        elif piece.stop_index > last + 1 or piece.damage:
            steps.append(Step(file.name, "cut", last + 1))
    return aside + steps


def _apply(disk: Disk, step: Step, stamps: Stamps) -> None:
    if step.action == "set aside":
        set_aside(disk, step.file)
    elif step.action == "restore":
        disk.link(step.source, step.file)
    elif step.action == "make":
        head = snapshot_file.encode_head(step.index, step.term, 0, stamps.meta())
        disk.create(step.file, head)
    else:
        _change(disk, step, stamps)


def _change(disk: Disk, step: Step, stamps: Stamps) -> None:
    file = disk.open(step.file, writable=True)
    try:
        data = file.read_at(0, file.size())
        head = rlog.decode_head(lambda offset, size: data[offset : offset + size])
        assert isinstance(head, rlog.Head), "planned only for such"
        slot = step.index - head.header.first_index
        if step.action == "cut":
            offset, stop = rlog.TABLE_START + rlog.SLOT_SIZE * slot, head.header.table_stop
            keep_aside(disk, base_name(step.file), offset, data[offset:stop].rstrip(b"\0"))
            file.write_at(offset, bytes(stop - offset), sync=True)
            return
    finally:
        file.close()
    slots = rlog.decode_slots(data[rlog.TABLE_START : head.header.table_stop])
    used = rlog.count_used(slots)
    start = int(slots[slot - 1])
    header = rlog.Header(step.index, head.header.capacity - slot)
    whole = bytearray(rlog.encode_file(header, stamps.meta()))
    ends = rlog.encode_slots(slots[slot:used] - start)
    whole[rlog.TABLE_START : rlog.TABLE_START + len(ends)] = ends
    whole += data[head.data_start + start : head.data_start + int(slots[used - 1])]
    disk.create(index_name(step.index), bytes(whole))
    set_aside(disk, step.file)
