"""Create-if-absent on a store that has none, with the help of a transactional store.

A write is a temporary object `NAME.UUID.CRC`, a record that takes NAME for it, a copy to NAME,
a mark in the record, and the removal of the temporary.  With the record the write is decided
and durable: whoever finds it unfinished finishes it, and nobody ever drops it.

1. A temporary that an uncommitted record names is never deleted.
2. Only the source of the record is ever copied to its name, so a name never changes its bytes.
3. Who loses a name finishes the winner's copy first, so a winner that died blocks nobody.

The page, with what differs from the design this follows: docs/buckets.md
"""

import re
from binascii import crc32
from collections.abc import Callable, Mapping
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
    """See Bucket.  `bucket` need not enforce anything; it should repeat what gets no answer."""

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
        self._epoch: int | None = None  # asked for when first needed

    def __repr__(self) -> str:
        return f"TwoPhaseBucket({self._bucket!r}, {self._records!r})"

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
        """What is deleted is finished first, so that no recovery brings it back."""
        doomed = {checked(name) for name in names}
        for record in self._patience.ask(self._records.uncommitted):
            if record.destination in doomed:
                self._finish(record)
        self._bucket.delete(*names)

    def copy(self, source: str, destination: str) -> None:
        self._bucket.copy(source, destination)

    def recover(self) -> int:
        """Finish all that is unfinished, whoever began it; return how many that were."""
        records = self._patience.ask(self._records.uncommitted)
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
        # In this order.  What was listed belongs to an epoch that is over after the next line;
        # so its record, if it is ever to have one, is among those we read after it.
        self._epoch = self._patience.ask(self._records.begin_sweep)
        needed = {record.source for record in self._patience.ask(self._records.uncommitted)}
        orphans = [name for name in listed if name not in needed]
        self._bucket.delete(*orphans)
        below = self._bucket.sweep(before_ms) if isinstance(self._bucket, Sweepable) else 0
        return len(orphans) + below

    def close(self) -> None:
        self._records.close()

    def _put_and_insert(
        self, name: str, data: Buffer, metadata: Mapping[str, str] | None
    ) -> tuple[str, Record | None]:
        """The temporary, and the record that holds the name; None if the name is retired."""
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
        """An earlier attempt of ours may have won, its answer lost.  The bytes have an identity."""
        if record is None or not data or not record.source.endswith(f".{crc32(data):08x}"):
            return False
        try:
            return self._bucket.get(record.destination) == data
        except FileNotFoundError:  # whoever created it, it is deleted
            return False

    def _insert(self, name: str, source: str, epoch: int) -> Record:
        return self._patience.ask(lambda: self._records.insert(name, source, epoch))

    def _help(self, record: Record) -> None:
        """Finish for a winner that is dead or stalled; one that lives gets a moment to do it.

        Two copies at once do no harm to a store that replaces an object in one instant.  Not
        all do, and a copy costs more than a look.
        """
        for pause_ms in () if record.committed else _MOMENTS_MS:
            self._patience.sleep(pause_ms / 1000)
            now = self._patience.ask(lambda: self._records.find(record.destination))
            if now is None or now.committed:
                return
        self._finish(record)

    def _finish(self, record: Record) -> None:
        """Copy, mark, clean up.  Anybody may do this, any number of times, at the same time."""
        if record.committed:
            return
        try:
            self._bucket.copy(record.source, record.destination)
        except FileNotFoundError:
            self._believe_finished(record)
        # Durable and visible from here on: what fails now, recovery and sweep make good.
        with suppress(UnavailableError):
            self._patience.ask(lambda: self._records.commit(record))
            self._discard(record.source)

    def _believe_finished(self, record: Record) -> None:
        """The temporary is gone, which its remover may have done only after a copy."""
        try:
            self._bucket.get_range(record.destination, 0, 0)
        except FileNotFoundError:
            now = self._patience.ask(lambda: self._records.find(record.destination))
            if now == record:  # else it was finished, and deleted since
                raise CorruptError(
                    record.destination, 0, f"a record promises it, but {record.source} is gone"
                ) from None

    def _discard(self, source: str) -> None:
        with suppress(UnavailableError):  # sweep will find it
            self._bucket.delete(source)
