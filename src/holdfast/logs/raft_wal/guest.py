"""A raft-wal log read without owning it: no lock, no change, beside a live owner too."""

from typing import TYPE_CHECKING

from holdfast import runtime
from holdfast.disk import Disk
from holdfast.errors import CorruptError
from holdfast.formats import raft_wal as fmt
from holdfast.formats.flaw import Flaw
from holdfast.formats.raft_entry import RaftEntry, decode_entry
from holdfast.formats.raft_meta import SegmentMeta
from holdfast.logs.log import Damage, Metric, SegmentInfo
from holdfast.logs.raft_wal.checkpoints import check_checkpoints
from holdfast.logs.raft_wal.columns import raft_columns
from holdfast.logs.raft_wal.directory import header_of, name_of
from holdfast.logs.raft_wal.meta_store import MetaStore
from holdfast.logs.raft_wal.metrics import Counters, last_segment_age
from holdfast.logs.raft_wal.recovery import Survey, survey
from holdfast.logs.raft_wal.segment import Sealed, Tail, read_batches
from holdfast.logs.segmented import LookAgainError, SegmentedGuest

if TYPE_CHECKING:
    import pyarrow as pa


class RaftWalGuest(SegmentedGuest[Sealed | Tail, Survey]):
    """A raft-wal log as a reader sees it: a server's, while it runs, or one of our own.

    A log with damaged segments opens all the same: `damage` says what is wrong, and sound entries
    can be read.  CorruptError if its meta store is damaged or gone.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk, self._counters = disk, Counters()
        self._meta = self._open_meta()
        super().__init__(disk)

    @property
    def codec(self) -> int:
        """Whose payloads these are: 1 for Raft entries, from 65536 on for others."""
        segments = self._segments
        return segments[-1].meta.codec if segments else fmt.RAFT_CODEC

    @property
    def stable(self) -> dict[bytes, bytes]:
        """All keys of the stable store."""
        return self._meta.stable

    def get(self, key: bytes) -> bytes | None:
        """A value of the stable store; None if there is none."""
        self._counters.stable_gets += 1
        return self._meta.get(key)

    def get_uint64(self, key: bytes) -> int:
        """A number of the stable store; 0 if there is none."""
        self._counters.stable_gets += 1
        return self._meta.get_uint64(key)

    def read(self, index: int) -> bytes:
        """One payload, its checksum verified.  OutOfRangeError if there is no such entry.

        ChangedError if the owner has removed the entry since the last refresh.
        """
        # As every log reads, written out: one call less is a fifth of the time.
        counters, segment = self._counters, self._recent
        counters.log_entries_read += 1
        if segment is None or not segment.first_index <= index < segment.stop_index:
            segment = self._segment_of(index)
        try:
            payload = segment.read(index)
        except (FileNotFoundError, CorruptError) as error:
            self._refuse_changed(segment, error)
            raise
        counters.log_entry_bytes_read += len(payload)
        return payload

    def get_log(self, index: int) -> RaftEntry:
        """One Raft entry, its checksum and its index verified."""
        entry = decode_entry(self.read(index))
        if isinstance(entry, Flaw):
            raise CorruptError(f"entry {index}", entry.offset, entry.why)
        if entry.index != index:
            raise CorruptError(f"entry {index}", 0, f"it says it is entry {entry.index}")
        return entry

    def refresh(self) -> int:
        """See what the owner has appended, rotated or truncated; return last_index."""
        before = self._meta.txid
        tail = self._segments[-1] if self._segments else None
        is_new = self._meta.refresh() != before
        if is_new or self.damage or not isinstance(tail, Tail) or not tail.is_made:
            self._survey()
        else:
            self._follow(tail)
        return self.last_index

    def segments(self) -> list[SegmentInfo]:
        return [
            SegmentInfo(
                segment.name,
                "damaged" if segment.name in self._broken else _state_of(segment),
                segment.first_index,
                segment.stop_index - 1,
                segment.size,
                runtime.from_rfc3339(segment.meta.create_time),
                f"{segment.meta.id:016x}",
            )
            for segment in self._segments
        ]

    def check(self, name: str) -> Damage | None:
        """Read one segment from end to end and verify every checksum."""
        for segment in self._segments:
            if segment.name == name and isinstance(segment, Sealed):
                return self._broken.get(name) or segment.check()
        state = self._look_twice()
        if all(name_of(meta) != name for meta in state.state.segments):
            raise FileNotFoundError(f"the log has no segment {name}")
        return next((damage for damage in state.all_damage() if damage.file == name), None)

    def decode_columns(self, batch: "pa.RecordBatch") -> "pa.RecordBatch | None":
        """The fields of the Raft entries of a scanned batch; None if they are something else."""
        return raft_columns(batch) if self.codec == fmt.RAFT_CODEC else None

    def facts(self) -> dict[str, str]:
        """What only a raft-wal log has: its codec and its stable keys."""
        codec = {fmt.RAFT_CODEC: "Raft entries", fmt.OPAQUE_CODEC: "opaque payloads"}
        facts = {"codec": f"{self.codec} ({codec.get(self.codec, 'custom')})"}
        for key, value in sorted(self.stable.items()):
            number = f" ({int.from_bytes(value, 'little')})" if len(value) == 8 else ""
            text = value.decode("ascii") if value.isascii() and not number else ""
            is_text = text.isprintable() and bool(text)
            name = f"stable {key.decode('utf-8', 'backslashreplace')}"
            facts[name] = text if is_text else f"{value.hex() or 'empty'}{number}"
        return facts

    def metrics(self) -> list[Metric]:
        """What was counted since this was opened, under the original's names, and its gauge."""
        metas = [segment.meta for segment in self._segments]
        return [*self._counters.metrics(), *last_segment_age(metas)]

    def check_whole(self) -> list[Damage]:
        """What only the whole log can tell: the sums of the verifier's checkpoints."""
        if self.codec != fmt.RAFT_CODEC:
            return []
        return [
            Damage(self._segment_of(first).name, 0, first, last, why)
            for first, last, why in check_checkpoints(self)
        ]

    def close(self) -> None:
        super().close()
        self._meta.close()

    # Looking

    def _open_meta(self) -> MetaStore:
        return MetaStore(self._disk, read_only=True)

    def _look(self) -> Survey:
        txid = self._meta.refresh()
        result = survey(self._disk, self._meta.load())
        # The owner records a change in the meta store first.  So if files are missing or unknown,
        # and the meta store has changed since it was read, this look compared two states.
        if (result.damage or not result.is_made) and self._meta.refresh() != txid:
            raise LookAgainError
        return result

    def _show(self, result: Survey) -> None:
        segments: list[Sealed | Tail] = []
        for meta in result.state.segments:
            if meta.sealed:
                segments.append(Sealed(self._disk, meta, result.sizes.get(name_of(meta), 0)))
            else:
                segments.append(self._tail_of(meta, result))
        self._publish(tuple(segments))
        self.damage = tuple(result.damage)
        sealed = {s.name for s in segments if isinstance(s, Sealed)}
        self._broken = {d.file: d for d in result.damage if d.file in sealed}

    def _tail_of(self, meta: SegmentMeta, result: Survey) -> Tail:
        name = name_of(meta)
        file = self._disk.open(name) if name in result.sizes else None
        return Tail(file, meta, result.found)

    def _follow(self, tail: Tail) -> None:
        while not tail.index_start:
            found = read_batches(tail.file, tail.stop)
            if not len(found.commits):
                return
            if tail.stop == 0:
                header = fmt.decode_header(tail.file.read_at(0, fmt.HEADER_SIZE))
                if header != header_of(tail.meta):
                    return self._survey()
            tail.file.sync()  # what a guest shows must not vanish in a power cut
            tail.extend(found)
        return None


def _state_of(segment: Sealed | Tail) -> str:
    return "sealed" if isinstance(segment, Sealed) else "active"
