"""What can still be read of each segment, for repair: every byte looked at, nothing changed."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from holdfast.disk import Disk, File
from holdfast.errors import CorruptError
from holdfast.formats import raft_wal as fmt
from holdfast.formats.raft_meta import SegmentMeta, State
from holdfast.logs.log import Damage
from holdfast.logs.raft_wal.copies import cut, scan_file, used_bytes
from holdfast.logs.raft_wal.directory import header_of, name_of, parse_name
from holdfast.logs.raft_wal.recovery import can_count_on
from holdfast.logs.raft_wal.segment import Sealed

_MADE = "1970-01-01T00:00:00Z"  # when, nobody knows any more
_SEALED = "1970-01-01T00:00:01Z"


@dataclass(frozen=True, slots=True)
class Piece:
    """One segment: its sound entries, as ranges of indexes, and where each batch of them ends."""

    meta: SegmentMeta
    runs: tuple[tuple[int, int], ...]
    stops: tuple[tuple[int, int], ...]  # last index and end of each sound batch
    damage: tuple[Damage, ...]
    is_open_ended: bool = False  # there may be more behind what was found

    @property
    def name(self) -> str:
        return name_of(self.meta)

    @property
    def first(self) -> int:
        return self.runs[0][0] if self.runs else self.meta.min_index

    @property
    def last(self) -> int:
        return self.runs[-1][1] if self.runs else self.meta.base_index - 1

    def stop_of(self, last: int) -> int:
        """Where the bytes of entries up to `last` end."""
        return max((stop for index, stop in self.stops if index <= last), default=0)


def pieces_of(disk: Disk, state: State) -> list[Piece]:
    """In the order of their indexes."""
    return [_piece(disk, meta) for meta in state.segments]


def rebuilt(disk: Disk, sizes: dict[str, int]) -> State:
    """What the meta store must have said, as far as the files tell.

    A segment that was made later has the last word on the indexes from its base on: the tail was
    truncated to make room for it.
    """
    known: list[SegmentMeta] = []
    for meta in sorted(_described(disk, sizes), key=lambda meta: meta.id):
        known = [
            replace(one, max_index=min(one.max_index, meta.base_index - 1))
            for one in known
            if one.base_index < meta.base_index
        ]
        known.append(meta)
    known = [meta for meta in known if meta is known[-1] or meta.max_index >= meta.base_index]
    next_id = max((parsed[1] + 1 for name in sizes if (parsed := parse_name(name))), default=0)
    segments = [
        replace(meta, seal_time=_SEALED) if meta.index_start or meta is not known[-1] else meta
        for meta in known
    ]
    if segments and not segments[-1].sealed:
        segments[-1] = replace(segments[-1], max_index=0)
    return State(next_id, tuple(segments))


def _described(disk: Disk, sizes: dict[str, int]) -> Iterator[SegmentMeta]:
    """Each file that is a segment by its name and its header, with all entries it has."""
    for name, size in sizes.items():
        parsed = parse_name(name)
        if parsed is None:
            continue
        file = disk.open(name)
        try:
            head = file.read_at(0, fmt.HEADER_SIZE)
            found, _ = scan_file(file, size, verify=False)
        finally:
            file.close()
        header = fmt.decode_header(head)
        meta = SegmentMeta(parsed[1], parsed[0], parsed[0], parsed[0] - 1, create_time=_MADE)
        meta = replace(meta, size_limit=min(size, fmt.SEGMENT_SIZE_MAX))
        if isinstance(header, fmt.Header) and (header.base_index, header.id) == parsed:
            yield replace(
                meta,
                codec=header.codec,
                max_index=parsed[0] + len(found.starts) - 1,
                index_start=found.index_start,
            )
        elif not any(head):
            yield meta


def _piece(disk: Disk, meta: SegmentMeta) -> Piece:
    try:
        file = disk.open(name_of(meta))
    except FileNotFoundError:
        if not meta.sealed:
            return Piece(meta, (), (), ())
        damage = Damage(name_of(meta), 0, meta.min_index, meta.max_index, "missing")
        return Piece(meta, (), (), (damage,))
    try:
        found, bad, is_open_ended = _layout(disk, meta, file)
    except CorruptError as error:
        damage = Damage(name_of(meta), error.offset, meta.min_index, meta.max_index, error.why)
        return Piece(meta, (), (), (damage,), is_open_ended=not meta.sealed)
    finally:
        file.close()
    return _judged(meta, found, set(bad), is_open_ended=is_open_ended)


def _layout(disk: Disk, meta: SegmentMeta, file: File) -> tuple[fmt.Scan, list[int], bool]:
    """Where batches are, which are unsound, and whether there may be more after them."""
    if meta.sealed and meta.index_start:
        data = file.map()  # a sealed segment does not change
        found = Sealed(disk, meta, len(data)).judge(data)[0]
        return found, fmt.bad_batches(data, found), False
    size = file.size()
    header = fmt.decode_header(file.read_at(0, fmt.HEADER_SIZE))
    found, bad = scan_file(file, size)
    if len(found.starts) and header != header_of(meta):
        raise CorruptError(name_of(meta), 0, f"its header says {header}")
    if bad and not can_count_on(file, meta, found, bad):
        is_torn = bad[0] == len(found.commits) - 1
        found = cut(found, bad[0])
        return found, [], not is_torn or _goes_on(file, found.stop, size)
    return found, bad, found.flaw is not None and _goes_on(file, found.stop, size)


def _goes_on(file: File, stop: int, size: int) -> bool:
    return fmt.ends_with_batch(used_bytes(file, stop, size), stop)


def _judged(meta: SegmentMeta, found: fmt.Scan, bad: set[int], *, is_open_ended: bool) -> Piece:
    runs: list[tuple[int, int]] = []
    stops, damage = [], []
    begin = meta.base_index
    for k, count in enumerate(found.counts.tolist()):
        stop_index = meta.base_index + count
        first = max(begin, meta.min_index)
        last = min(stop_index - 1, meta.max_index if meta.sealed else stop_index)
        begin = stop_index
        if k not in bad:
            stops.append((stop_index - 1, int(found.commits[k]) + fmt.COMMIT_SIZE))
        if first > last:
            continue
        if k in bad:
            at = int(found.begins[k])
            damage.append(Damage(name_of(meta), at, first, last, fmt.BAD_CHECKSUM))
        elif runs and runs[-1][1] + 1 == first:
            runs[-1] = runs[-1][0], last
        else:
            runs.append((first, last))
    if meta.sealed and begin <= meta.max_index:
        first = max(begin, meta.min_index)
        damage.append(Damage(name_of(meta), found.stop, first, meta.max_index, "not found"))
    return Piece(meta, tuple(runs), tuple(stops), tuple(damage), is_open_ended)
