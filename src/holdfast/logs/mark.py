"""The mark of a log: a side file that says how far the log was once complete, at both ends.

What lies below the mark and is missing or not valid is damage: it is reported and never cut off.
Only what lies beyond it can be a torn write.  The bytes: holdfast.formats.mark.

The file has two slots.  One is written after every commit, without a sync.  The other is written
only with a sync, after the file was synced, so that a power cut never tears both.  Both speak only
of what is durable already.  Before entries are removed or rewritten, both slots are lowered and
synced.  So whichever slot a crash leaves, the log has what it promises.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from holdfast.disk import Disk, File, Lock
from holdfast.errors import HoldfastError
from holdfast.file import Buffer
from holdfast.forks import disown_in_children
from holdfast.formats.flaw import Flaw
from holdfast.formats.mark import (
    FILE_SIZE,
    SLOT_SIZE,
    Mark,
    MarkedFile,
    decode,
    decode_file,
    encode,
    encode_file,
    extend_list,
    move,
)
from holdfast.handle import Handle
from holdfast.logs.log import Damage
from holdfast.runtime import Runtime, Ticker

MARK = "holdfast.mark"
REMEMBERED = "holdfast.marked"  # an empty file: the log has a mark, and is not whole without it
SAVE_MS = 1000  # at most so long after a commit its mark is synced

_LOG = logging.getLogger("holdfast")
_SAVED, _MOVING = 0, SLOT_SIZE  # where the slots are: one is always synced, one moves with commits
_ADVICE = "`holdfast log repair` records a new one from what is there"


@dataclass(frozen=True, slots=True)
class Recalled:
    """The mark of a log: what its file holds, what the log is held to, and what is wrong."""

    stored: Mark | Flaw | None
    mark: Mark | None
    damage: tuple[Damage, ...] = ()


def recalled(stored: Mark | Flaw | None, *, is_expected: bool) -> Recalled:
    """Judge a mark that was read.  It is expected where the log is known to have had one."""
    if isinstance(stored, Mark):
        return Recalled(stored, stored)
    if isinstance(stored, Flaw):
        return Recalled(stored, None, (mark_is_damaged(stored),))
    return Recalled(None, None, (mark_is_missing(),) if is_expected else ())


def is_remembered(disk: Disk) -> bool:
    """Return whether the log is known to have had a mark."""
    return REMEMBERED in disk.list()


def remember_mark(disk: Disk) -> None:
    """Record durably that the log has a mark, unless it is recorded already."""
    if not is_remembered(disk):
        disk.create(REMEMBERED, b"")


def read_mark(disk: Disk) -> Mark | Flaw | None:
    """Return the mark; None if there is no such file, a flaw if neither slot is valid.

    A reader calls this before it looks at other files: they can only have more than it says, unless
    the owner has lowered it meanwhile.  See `was_lowered`.
    """
    try:
        file = disk.open(MARK)
    except FileNotFoundError:
        return None
    try:
        return decode_file(file.read_at(0, FILE_SIZE))
    finally:
        file.close()


def recall_mark(disk: Disk) -> Mark | Flaw | None:
    """Return the mark for the next owner, from the disk and not from the cache."""
    try:
        file = disk.open(MARK, writable=True)
    except FileNotFoundError:
        return None
    try:
        file.sync(forget_from=0)
        return decode_file(file.read_at(0, FILE_SIZE))
    finally:
        file.close()


def was_lowered(disk: Disk, since: Mark | Flaw | None) -> bool:
    """Return whether the owner has lowered, created or removed the mark since it was read.

    Then what seems to be missing may have been removed by the owner: look again.
    """
    now = read_mark(disk)
    if isinstance(now, Mark) and isinstance(since, Mark):
        return now.lowered != since.lowered or now.counter < since.counter
    return now != since


def drop_mark(disk: Disk, format: str, first_index: int) -> None:
    """Replace the mark durably by one that promises nothing, when a repair has accepted a loss.

    Until then the log is damaged, and a repair that is interrupted can be planned again.  A log
    that is left without files begins at `first_index`: no index is used twice.
    """
    found = read_mark(disk)
    old = found if isinstance(found, Mark) else Mark(format)
    empty = Mark(format, first_index, last_index=first_index - 1, lowered=old.lowered + 1)
    disk.create(MARK, encode_file(replace(empty, counter=old.counter + 1)), replace=True)


def marked_files(mark: Mark, files: Iterable[MarkedFile]) -> Mark:
    """Return the mark with this list of files: its first, its last, their number and checksum."""
    listed = list(files)
    list_crc = 0
    for file in listed:
        list_crc = extend_list(list_crc, file)
    first, last = (listed[0], listed[-1]) if listed else (MarkedFile(), MarkedFile())
    return replace(mark, files=len(listed), list_crc=list_crc, first=first, last=last)


def mark_is_missing() -> Damage:
    """Return the damage of a log that had a mark once and has none now."""
    return Damage(MARK, 0, 0, 0, f"mark missing; entries may be missing unnoticed; {_ADVICE}")


def mark_is_damaged(flaw: Flaw) -> Damage:
    """Return the damage of a mark with no valid slot."""
    return Damage(MARK, flaw.offset, 0, 0, f"mark damaged: {flaw.why}; {_ADVICE}")


class MarkFile:
    """The mark of a log, kept by its owner.

    One thread at a time calls `advance`, `save`, `lower` and `finish`.  A background thread saves
    once a second while there are commits; it never delays them.

    If the mark cannot be written after a commit, the entries are durable all the same and are
    acknowledged.  The older mark still holds.  But the log takes no more writes until it is
    reopened, because they would not be covered.
    """

    def __init__(
        self,
        disk: Disk,
        mark: Mark,
        found: Mark | Flaw | None,
        *,
        lock: Lock,
        handle: Handle,
        runtime: Runtime,
    ) -> None:
        """Write `mark`, which covers at least what `found` does, into both slots, durably.

        Nothing is written if they hold it already, as after a clean close.
        """
        self._disk, self._lock, self._handle, self._runtime = disk, lock, handle, runtime
        self._mutex = runtime.lock()  # guards what follows; held briefly
        self._saving = runtime.lock()  # held while the saved slot is written
        self._is_held = False  # the moving slot must not be written: the saved one is being written
        self._is_late = False  # ... and should have been
        self._is_dirty = False  # it is not synced
        self._ticker: Ticker | None = None
        self._counter = found.counter if isinstance(found, Mark) else 0
        self._lowered = found.lowered if isinstance(found, Mark) else 0
        self._saved = self._moved = -1  # the counters in the two slots
        self._put(mark)
        disown_in_children(self)
        if not isinstance(found, Mark):
            disk.create(MARK, encode_file(self.mark), replace=True)
        self._file: File = disk.open(MARK, writable=True)
        self._write_at: Callable[[int, Buffer], None] = self._file.write_at
        if isinstance(found, Mark) and not self._is_in_both(replace(mark, counter=found.counter)):
            self._write_both()
        else:
            self._saved = self._moved = self._counter

    @property
    def mark(self) -> Mark:
        """What the log promises now."""
        found = decode(bytes(self._slot))
        assert isinstance(found, Mark)
        return found

    def advance(self, size: int, last_index: int, tail_crc: int, word: bytes) -> None:
        """Move the mark of the last file after a commit.  Nothing is synced, and nothing raised.

        The entries must be durable already.
        """
        try:
            with self._mutex:
                self._counter = counter = self._counter + 1
                move(self._slot, counter, size, last_index, tail_crc, word)
                if self._is_held:
                    self._is_late = True
                else:
                    self._is_dirty, self._moved = True, counter
                    self._write_at(_MOVING, self._slot)
        except (OSError, HoldfastError) as error:
            self._fail(error)
        if self._ticker is None:
            self._ticker = self._runtime.ticker(SAVE_MS, self.tick)

    def save(self, mark: Mark | None = None) -> None:
        """Make the mark durable; with `mark`, put it in the place of what it was.

        It must cover at least as much: see `lower`.
        """
        with self._saving:
            with self._mutex:
                if mark is not None:
                    self._put(mark)
                if self._counter == self._saved and not self._is_dirty:
                    return
                slot, counter, is_dirty = bytes(self._slot), self._counter, self._is_dirty
                self._is_held, self._is_dirty = True, False
            try:
                if is_dirty:  # else a power cut could tear both slots
                    self._file.sync()
                self._file.write_at(_SAVED, slot, sync=True)
                self._saved = counter
            finally:
                self._release_moving_slot()

    def lower(self, mark: Mark) -> None:
        """Promise less, durably: before entries are removed or rewritten."""
        with self._saving, self._mutex:
            self._lowered += 1
            self._put(mark)
            self._write_both()

    def tick(self) -> None:
        """Save what has moved since.  Called once a second, by a thread of its own."""
        if self._handle.refusal is None and self._lock.is_ours:
            try:
                self.save()
            except (OSError, HoldfastError) as error:
                self._fail(error)

    def finish(self) -> None:
        """Save the mark in both slots, for a log that is being closed.

        If that fails, the older mark holds, and all entries are durable: nothing is raised.
        """
        self.stop()
        try:
            with self._mutex:
                if self._moved != self._counter:
                    self._is_dirty, self._moved = True, self._counter
                    self._write_at(_MOVING, self._slot)
            self.save()
        except (OSError, HoldfastError) as error:
            _LOG.warning("%r: the mark stays behind the log: %s", self._disk, error)

    def stop(self) -> None:
        """Stop the background thread."""
        ticker, self._ticker = self._ticker, None
        if ticker is not None:
            ticker.close()

    def close(self) -> None:
        """Close the file.  Nothing is written."""
        self.stop()
        self._file.close()

    def disown(self) -> None:
        """See holdfast.forks.  The child has no such thread, and its file is closed."""
        self._mutex, self._saving, self._ticker = self._runtime.lock(), self._runtime.lock(), None

    def _is_in_both(self, mark: Mark) -> bool:
        slot = bytes(encode(replace(mark, lowered=self._lowered)))
        return all(self._file.read_at(at, len(slot)) == slot for at in (_SAVED, _MOVING))

    def _put(self, mark: Mark) -> None:
        self._counter += 1
        self._slot = encode(replace(mark, counter=self._counter, lowered=self._lowered))

    def _write_both(self) -> None:
        """Write both slots, so that at any time one of them is durable and valid.

        After a crash only the newest valid slot can be relied on: it is overwritten last.
        """
        if self._is_dirty:
            self._file.sync()
        slots = [self._file.read_at(at, len(self._slot)) for at in (_SAVED, _MOVING)]
        order = (_SAVED, _MOVING) if _is_newer(slots[1], slots[0]) else (_MOVING, _SAVED)
        for at in order:
            self._file.write_at(at, self._slot, sync=True)
        self._is_dirty, self._saved, self._moved = False, self._counter, self._counter

    def _release_moving_slot(self) -> None:
        with self._mutex:
            self._is_held = False
            if self._is_late:
                self._is_late, self._is_dirty, self._moved = False, True, self._counter
                self._write_at(_MOVING, self._slot)

    def _fail(self, error: Exception) -> None:
        if self._handle.refusal is None:
            _LOG.error("%r: cannot write the mark: %s", self._disk, error)
        self._handle.poison("writing the mark", error)


def _is_newer(one: bytes, other: bytes) -> bool:
    a, b = decode(one), decode(other)
    return isinstance(a, Mark) and (isinstance(b, Flaw) or a.counter > b.counter)
