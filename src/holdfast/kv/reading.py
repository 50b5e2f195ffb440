"""What writers and readers have in common: get, scan, and views that stay as they are."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.errors import CorruptError, UnavailableError
from holdfast.kv.leases import Lease
from holdfast.kv.memtable import checked_key
from holdfast.kv.view import View, items
from holdfast.runtime import Closing

if TYPE_CHECKING:
    import pyarrow as pa

_TRIES_MAX = 10


class Reading(ABC):
    """The reading half of an open store.  Any number of threads may use it."""

    _view: View  # replaced as a whole, so whoever takes it once has one state

    @abstractmethod
    def refresh(self) -> None:
        """Look at the newest manifest."""

    @abstractmethod
    def view(self) -> "PinnedView":
        """The store as it is now, to be read at leisure."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key as it is now; None if there is none."""
        if type(key) is not bytes:
            checked_key(key)
        view = self._view
        for layer in view.layers:
            row = layer.rows.get(key)
            if row is not None:
                return row[0]
        try:
            return view.get_stored(key)
        except FileNotFoundError:
            return self._get_again(key)

    def scan(
        self,
        start: bytes | None = None,
        stop: bytes | None = None,
        *,
        prefix: bytes = b"",
        reverse: bool = False,
    ) -> "Iterator[pa.RecordBatch]":
        """The rows with start <= key < stop as Arrow batches of key, value and seq, in order.

        They are those of the moment of the first batch, however long the scan takes.
        """
        with self.view() as view:
            yield from view.scan(start, stop, prefix=prefix, reverse=reverse)

    def items(
        self,
        start: bytes | None = None,
        stop: bytes | None = None,
        *,
        prefix: bytes = b"",
        reverse: bool = False,
    ) -> Iterator[tuple[bytes, bytes]]:
        """The same as pairs of key and value, one by one."""
        return items(self.scan(start, stop, prefix=prefix, reverse=reverse))

    def _get_again(self, key: bytes) -> bytes | None:
        """An SST is gone: what it held has been compacted into others, if our view was old."""
        for _ in range(_TRIES_MAX):
            old = self._view
            self.refresh()
            try:
                return self._view.get(key)
            except FileNotFoundError as error:
                if self._view.levels is old.levels:
                    raise CorruptError(str(error), 0, "the manifest names it") from error
        raise UnavailableError("SSTs vanish faster than they can be read")


class PinnedView(Closing):
    """A View that keeps what it reads from being deleted, until it is closed."""

    def __init__(self, view: View, lease: Lease, manifest_id: int) -> None:
        self._view, self._lease, self.manifest_id = view, lease, manifest_id
        self._is_open = True
        lease.pin(manifest_id)

    def get(self, key: bytes) -> bytes | None:
        """The value of a key in this state, or None."""
        try:
            return self._view.get(key)
        except FileNotFoundError as error:
            raise self._gone(error) from error

    def scan(
        self,
        start: bytes | None = None,
        stop: bytes | None = None,
        *,
        prefix: bytes = b"",
        reverse: bool = False,
    ) -> "Iterator[pa.RecordBatch]":
        """The rows of this state, as Arrow batches."""
        try:
            yield from self._view.scan(start, stop, prefix=prefix, reverse=reverse)
        except FileNotFoundError as error:
            raise self._gone(error) from error

    def items(
        self,
        start: bytes | None = None,
        stop: bytes | None = None,
        *,
        prefix: bytes = b"",
        reverse: bool = False,
    ) -> Iterator[tuple[bytes, bytes]]:
        """The same as pairs of key and value, one by one."""
        return items(self.scan(start, stop, prefix=prefix, reverse=reverse))

    def close(self) -> None:
        """Let go of what this view needs."""
        if self._is_open:
            self._is_open = False
            self._lease.unpin(self.manifest_id)

    __del__ = close  # a scan that is abandoned half way ends here

    def _gone(self, error: FileNotFoundError) -> Exception:
        if self._lease.proves_loss(self.manifest_id):
            return CorruptError(str(error), 0, "a snapshot keeps it, but it is gone")
        return UnavailableError(f"the view is too old, its snapshot is gone ({error}); read anew")
