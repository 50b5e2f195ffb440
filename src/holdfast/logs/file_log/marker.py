"""The mark of a FileLog, kept by its owner.  See holdfast.logs.mark, .promise of this package."""

from collections.abc import Sequence
from dataclasses import replace

from isal.isal_zlib import crc32

from holdfast.disk import Disk, Lock
from holdfast.formats.flaw import Flaw
from holdfast.formats.mark import WORD_SIZE, Mark, MarkedFile, extend_list
from holdfast.formats.rlog_entry import ENTRY_HEADER_SIZE, Offsets
from holdfast.formats.rlog_mark import TAIL_SIZE_MAX, decode_word, encode_word, file_id
from holdfast.logs.file_log.active import Active
from holdfast.logs.file_log.directory import NAME, UNTOUCHED
from holdfast.logs.file_log.promise import Promise
from holdfast.logs.file_log.reader import FileLogReader
from holdfast.logs.file_log.view import Segment
from holdfast.logs.mark import MarkFile, marked_files
from holdfast.runtime import Runtime

NOTHING = Mark(NAME)  # promises no entry

_ABOUT = b"zmq-raft removes this file: see docs/formats/mark.md of holdfast\n"


class Marker:
    """Moves the mark with every commit, and lowers it before entries are removed.

    The mark lists the files from the one with the first entry to the one with the last, which is
    not always the active one.
    """

    def __init__(
        self,
        reader: FileLogReader,
        found: Mark | Flaw | None,
        promise: Promise | None,
        *,
        lock: Lock,
        runtime: Runtime,
    ) -> None:
        """Record the log as it is.  `found` is the mark on the disk; `promise`, if it holds."""
        self._reader, disk = reader, reader.disk
        previous = promise.mark if promise else None
        active = reader.view.segments[-1]
        mark = self._mark(reader.view.segments, reader.last_index, previous, active.has_spare)
        self._name = mark.last.name
        self._file = MarkFile(disk, mark, found, lock=lock, handle=reader.handle, runtime=runtime)
        self.close, self.tick = self._file.close, self._file.tick
        try:
            leave_untouched(disk)  # now that the mark counts
        except BaseException:
            self.close()
            raise

    @property
    def mark(self) -> Mark:
        return self._file.mark

    def commit(self, active: Active, last_index: int, data: bytes, ends: Offsets) -> None:
        """Move the mark to the last entry.  These are the bytes of a commit, which is durable."""
        begin = ends.item(-2) if len(ends) > 1 else 0
        header = data[begin : begin + ENTRY_HEADER_SIZE]
        word = encode_word(header, active.tail_start, active.has_spare)
        size = active.head.data_start + active.stop
        if active.name == self._name:
            self._file.advance(size, last_index, active.tail_crc, word)
            return
        mark = self._with_files(active)
        self._file.save(
            replace(mark, size=size, last_index=last_index, tail_crc=active.tail_crc, word=word)
        )
        self._name = active.name

    def record(self) -> None:
        """Record, durably, a log that has changed and still has what was promised."""
        view = self._reader.view
        spare = view.segments[-1].has_spare
        mark = self._mark(view.segments, view.last_index, self.mark, spare)
        self._file.save(mark)
        self._name = mark.last.name

    def lower(self, segments: Sequence[Segment], last_index: int, *, has_spare: bool) -> None:
        """Promise only the entries up to `last_index` of these segments, which will remain."""
        mark = self._mark(segments, last_index, self.mark, has_spare)
        self._file.lower(mark)
        self._name = mark.last.name

    def void(self) -> None:
        """Promise nothing: before the whole log is replaced."""
        self._file.lower(NOTHING)
        self._name = ""

    def finish(self) -> None:
        """Save the mark of a log that is being closed."""
        self._file.finish()

    def _mark(
        self, segments: Sequence[Segment], last_index: int, known: Mark | None, has_spare: bool
    ) -> Mark:
        """Return the mark of these segments; `known` is one of the same entries, or more."""
        at = max((n for n, s in enumerate(segments) if s.count and s.base <= last_index), default=0)
        holder = segments[at]
        is_empty = not holder.count or holder.base > last_index
        mark = Mark(
            NAME,
            first_index=self._reader.first_index,
            base_index=holder.base,
            size=holder.head.data_start,
            last_index=self._reader.first_index - 1 if is_empty else last_index,
            word=bytes(WORD_SIZE),
        )
        first = max((n for n, s in enumerate(segments) if s.base <= mark.first_index), default=0)
        mark = marked_files(mark, map(_marked, segments[min(first, at) : at + 1]))
        if is_empty:
            return replace(mark, word=encode_word(bytes(ENTRY_HEADER_SIZE), 0, has_spare))
        if known and (known.last, known.last_index) == (mark.last, mark.last_index):
            word = decode_word(known.word)
            header, start, tail_crc, size = word.header, word.start, known.tail_crc, known.size
        else:
            entry = holder.entry(last_index)
            tail = entry[-TAIL_SIZE_MAX:]
            header, tail_crc = entry[:ENTRY_HEADER_SIZE], int(crc32(tail))
            stop = holder.stop_of(last_index)
            start, size = stop - len(tail), holder.head.data_start + stop
        word_now = encode_word(header, start, has_spare)
        return replace(mark, size=size, tail_crc=tail_crc, word=word_now)

    def _with_files(self, active: Active) -> Mark:
        """Return the mark with the files that were created since, the active one included."""
        mark, new = self.mark, list[MarkedFile]()
        for segment in reversed(self._reader.view.segments):
            if segment.name == mark.last.name:
                break
            new.append(_marked(segment))
        list_crc = mark.list_crc
        for file in reversed(new):
            list_crc = extend_list(list_crc, file)
        return replace(
            mark,
            files=mark.files + len(new),
            list_crc=list_crc,
            last=_marked(active),
            base_index=active.base,
        )


def leave_untouched(disk: Disk) -> None:
    """Create the file that other programs remove when they open the log for writing."""
    if UNTOUCHED not in disk.list():
        disk.create(UNTOUCHED, _ABOUT)


def _marked(segment: Segment) -> MarkedFile:
    return MarkedFile(segment.name, file_id(segment.head))
