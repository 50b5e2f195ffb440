"""What has changed in the list of segments: only that is judged and opened again.

A log may have thousands of segments.  Most changes seal one and add one, or remove the oldest.
Segments that did not change are the same objects in both lists, so Python takes no step for them.
"""

from collections.abc import Callable, Iterator
from operator import is_

from holdfast.disk import Disk
from holdfast.formats.raft_meta import SegmentMeta, State
from holdfast.logs.mark import Recalled
from holdfast.logs.raft_wal.directory import contradictions, name_of, sealed_flaw
from holdfast.logs.raft_wal.marks import NO_MARK
from holdfast.logs.raft_wal.recovery import Survey, survey_active
from holdfast.logs.raft_wal.view import Active, Sealed

Metas = tuple[SegmentMeta, ...]
Segments = tuple[Sealed | Active, ...]
Open = Callable[[SegmentMeta, Sealed | Active | None], Sealed | Active]


def reopened(old: Metas, new: Metas, segments: Segments, open: Open) -> Segments:
    """Return the segments of the list `new`; `segments` are those of `old`.

    `open` gets what is new or different, and the segment that was in its place.
    """
    dropped = _dropped(old, new)
    stay = segments[dropped : dropped + len(new)]
    opened = list(stay)
    for at in _differing(old[dropped:], new):
        opened[at] = open(new[at], stay[at])
    return (*opened, *(open(meta, None) for meta in new[len(stay) :]))


def gone(old: Metas, new: Metas) -> list[SegmentMeta]:
    """Return the segments of `old` that are not in `new`."""
    dropped = _dropped(old, new)
    rest = old[dropped:]
    replaced = [rest[at] for at in _differing(rest, new) if rest[at].id != new[at].id]
    return [*old[:dropped], *replaced, *rest[len(new) :]]


def survey_changes(
    disk: Disk, before: State, state: State, shown: Active, recalled: Recalled
) -> Survey | None:
    """Judge what has changed since `before`, which was sound.  None if not all of it is sound.

    `shown` is the active segment of `before`.  If it is still active, nothing of it is read here.
    """
    if recalled.damage or not state.segments:
        return None
    result = Survey(state, {}, recalled.mark or NO_MARK, is_partial=True)
    dropped = _dropped(before.segments, state.segments)
    old, new = before.segments[dropped:], state.segments
    changed = [*_differing(old, new), *range(len(old), len(new))]
    # The first may have lost its head; all other changes are at the end.
    since = next((at for at in changed if at), len(new))
    for part in (new[:1], new[max(since - 1, 0) :]):
        if any(contradictions(State(state.next_segment_id, part))):
            return None
    for meta in (new[at] for at in changed):
        name = name_of(meta)
        file = disk.open(name)
        try:
            result.sizes[name] = file.size()
            if meta.sealed:
                if sealed_flaw(disk, meta, result.sizes):
                    return None
            elif meta.id != shown.meta.id or not shown.stop:
                survey_active(result, meta, file)
        finally:
            file.close()
    return None if result.damage or new[-1].sealed else result


def _dropped(old: Metas, new: Metas) -> int:
    """Return how many segments were removed at the head."""
    first = new[0].id if new else None
    return next((at for at, meta in enumerate(old) if meta.id == first), len(old))


def _differing(old: Metas, new: Metas) -> Iterator[int]:
    """Yield the places where the two lists differ, up to the end of the shorter one."""
    is_same, at = list(map(is_, old, new)), -1
    for _ in range(is_same.count(False)):
        at = is_same.index(False, at + 1)
        yield at
