"""Create-if-absent on a store that has none, with the help of a transactional store.

A write has five steps: create a temporary object `NAME.UUID.CRC`, insert a record that takes NAME,
copy to NAME, mark the record, and remove the temporary object.  With the record the write is
decided and durable: any process that finds it unfinished finishes it, and none drops it.

1. A temporary that an uncommitted record names is never deleted.
2. Only the source of the record is ever copied to its name, so a name never changes its bytes.
3. A writer that loses a name first finishes the winner's copy, so a winner that died blocks no
   other writer.

The page, with what differs from the design this follows: docs/buckets.md
"""

import re
from binascii import crc32
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from uuid import UUID

from holdfast.bucket import Bucket, ObjectInfo, Patience, Sweepable
from holdfast.bucket.bucket import Buffer, checked, checked_prefix
from holdfast.bucket.open import TWO_PHASE_MARK
from holdfast.errors import CorruptError, UnavailableError
from holdfast.kv.cas.records import Record, Records, SweptError
from holdfast.runtime import new_id

_TEMPORARY = re.compile(r".+\.[0-9a-f]{32}\.[0-9a-f]{8}")

_MOMENTS_MS = (5, 20, 75, 200)


class TwoPhaseBucket:
    """See Bucket.  `bucket` need not enforce create-if-absent; it should retry requests without an
    answer.
    """

    def __init__(
        self,
        bucket: Bucket,
        records: Records,
        *,
        patience: Patience | None = None,
        new_id: Callable[[], UUID] = new_id,
    ) -> None:
        self._bucket, self._records = bucket, records
        self._patience, self._new_id = patience or Patience(), new_id
        self._epoch: int | None = None  # read when first needed

    def __repr__(self) -> str:
        return f"TwoPhaseBucket({self._bucket!r}, {self._records!r})"

    def __str__(self) -> str:
        return str(self._bucket)

    def get(self, name: str) -> bytes:
        return self._bucket.get(name)

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        return self._bucket.get_range(name, start, stop)

    def put_if_absent(
        self, name: str, data: Buffer, *, metadata: Mapping[str, str] | None = None
    ) -> None:
        if _TEMPORARY.fullmatch(checked(name)):
            raise ValueError(f"{name} looks like a temporary of a two-phase write")
        source, record = self._put_and_insert(name, data, metadata)
        if record is not None and record.source == source:
            self._finish(record)
            return
        self._discard(source)
        if record is not None:
            self._help(record)
        if not self._is_ours(record, data):
            raise FileExistsError(f"object {name} was created before")

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        found = self._bucket.list(prefix, after)
        hidden = _TEMPORARY.fullmatch
        return [info for info in found if not hidden(info.name) and info.name != TWO_PHASE_MARK]

    def delete(self, *names: str) -> None:
        """Delete objects.  Their writes are finished first, so that no recovery restores them."""
        doomed = {checked(name) for name in names}
        for record in self.unfinished():
            if record.destination in doomed:
                self._finish(record)
        self._bucket.delete(*names)

    def copy(self, source: str, destination: str) -> None:
        self._bucket.copy(source, destination)

    def unfinished(self) -> Sequence[Record]:
        """Return the writes whose record exists, and whose copy may be missing."""
        return self._patience.ask(self._records.uncommitted)

    def recover(self) -> int:
        """Finish all unfinished writes, of any process; return how many there were."""
        records = self.unfinished()
        for record in records:
            self._finish(record)
        return len(records)

    def retire(self, prefix: str, boundary: str) -> None:
        """See holdfast.bucket.Retirable."""
        directory = checked_prefix(prefix)
        if not checked(boundary).startswith(directory) or "/" in boundary[len(directory) :]:
            raise ValueError(f"{boundary} is not in directory {prefix}")
        self._patience.ask(lambda: self._records.retire(directory, boundary))

    def sweep(self, before_ms: int) -> int:
        """See holdfast.bucket.Sweepable.  Safe at any time: no clock decides, but the epoch."""
        listed = [
            info.name
            for info in self._bucket.list("")
            if info.modified_ms < before_ms and _TEMPORARY.fullmatch(info.name)
        ]
        # In this order.  The listed objects belong to an epoch that the next line ends.  So their
        # records, if they ever get any, are among those that are read after it.
        self._epoch = self._patience.ask(self._records.begin_sweep)
        needed = {record.source for record in self.unfinished()}
        orphans = [name for name in listed if name not in needed]
        self._bucket.delete(*orphans)
        below = self._bucket.sweep(before_ms) if isinstance(self._bucket, Sweepable) else 0
        return len(orphans) + below

    def close(self) -> None:
        self._records.close()

    def _put_and_insert(
        self, name: str, data: Buffer, metadata: Mapping[str, str] | None
    ) -> tuple[str, Record | None]:
        """Return the temporary object, and the record of the name; None if the name is retired."""
        while True:
            epoch = self._epoch  # before the put: a sweep that sees the object ends this epoch
            if epoch is None:
                epoch = self._epoch = self._patience.ask(self._records.epoch)
            source = f"{name}.{self._new_id().hex}.{crc32(data):08x}"
            self._bucket.put_if_absent(source, data, metadata=metadata)
            try:
                record = self._insert(name, source, epoch)
            except SweptError:
                self._discard(source)
                self._epoch = None
                continue
            except FileExistsError:
                return source, None
            return source, record

    def _is_ours(self, record: Record | None, data: Buffer) -> bool:
        """Return whether an earlier attempt of ours succeeded, its answer lost: the bytes are
        unique.
        """
        if record is None or not data or not record.source.endswith(f".{crc32(data):08x}"):
            return False
        try:
            return self._bucket.get(record.destination) == data
        except FileNotFoundError:  # it was created, and deleted since
            return False

    def _insert(self, name: str, source: str, epoch: int) -> Record:
        return self._patience.ask(lambda: self._records.insert(name, source, epoch))

    def _help(self, record: Record) -> None:
        """Finish the write of a winner that is dead or stalled; a live one gets a moment to do it.

        Two copies at the same time are safe in a store that replaces objects atomically.  Not all
        do, and a copy costs more than a read.
        """
        for pause_ms in () if record.committed else _MOMENTS_MS:
            self._patience.sleep(pause_ms / 1000)
            now = self._patience.ask(lambda: self._records.find(record.destination))
            if now is None or now.committed:
                return
        self._finish(record)

    def _finish(self, record: Record) -> None:
        """Copy, mark, clean up.  Several processes may do this, repeatedly, at the same time."""
        if record.committed:
            return
        try:
            self._bucket.copy(record.source, record.destination)
        except FileNotFoundError:
            self._believe_finished(record)
        # Durable and visible from here on: recovery and sweep finish what fails now.
        with suppress(UnavailableError):
            self._patience.ask(lambda: self._records.commit(record))
            self._discard(record.source)

    def _believe_finished(self, record: Record) -> None:
        """Check that the write is finished: its temporary object is deleted only after the copy."""
        try:
            self._bucket.get_range(record.destination, 0, 0)
        except FileNotFoundError:
            now = self._patience.ask(lambda: self._records.find(record.destination))
            if now == record:  # else it was finished, and deleted since
                raise CorruptError(
                    record.destination, 0, f"a record names it, but {record.source} is missing"
                ) from None

    def _discard(self, source: str) -> None:
        with suppress(UnavailableError):  # sweep will find it
            self._bucket.delete(source)
