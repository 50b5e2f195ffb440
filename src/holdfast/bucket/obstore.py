"""A bucket in S3, Google Cloud Storage, Azure Blob Storage or a compatible store.

Requests carry the condition to create only if absent.  Some servers ignore it silently, so
holdfast.bucket.probe tests whether the store enforces it.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING

import obstore
from obstore import exceptions

from holdfast.bucket.bucket import (
    Buffer,
    ObjectInfo,
    checked,
    checked_prefix,
    checked_range,
)
from holdfast.errors import UnavailableError, UnsupportedError

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

    Store = S3Store | GCSStore | AzureStore | MemoryStore

_REFUSED = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
_CONDITION = (exceptions.AlreadyExistsError, exceptions.PreconditionError)
_UNABLE = (exceptions.NotSupportedError, NotImplementedError)
_ADDRESS = re.compile(r"^\w+ \S+ in \S+ - |https?://\S+ ?")  # of a request, which may show secrets
_REQUEST = "Error performing "
_LIST_CHUNK = 1000  # what the services return in one answer


class ObstoreBucket:
    """See Bucket.  Each request is sent once; RetryingBucket repeats it."""

    def __init__(self, store: "Store", url: str = "") -> None:
        self._store, self._url = store, url or repr(store)

    def __repr__(self) -> str:
        return f"ObstoreBucket({self._url})"

    def __str__(self) -> str:
        return self._url

    def get(self, name: str) -> bytes:
        with self._translated(checked(name)):
            return obstore.get(self._store, name).bytes().to_bytes()

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        size = checked_range(start, stop)
        with self._translated(checked(name)):
            try:
                if size:
                    found = obstore.get_range(self._store, name, start=start, length=size)
                    return found.to_bytes()
            except exceptions.GenericError as error:
                if start < self._length(name):
                    if "non-partial" not in str(error):
                        raise
                    # rclone's server, for one, does not say that it sends a part.
                    return obstore.get(self._store, name).bytes().to_bytes()[start:stop]
            else:
                self._length(name)  # a missing object has no empty range
            return b""

    def put_if_absent(
        self, name: str, data: Buffer, *, metadata: Mapping[str, str] | None = None
    ) -> None:
        attributes = dict(metadata) if metadata else None
        with self._translated(checked(name)):
            obstore.put(
                self._store,
                name,
                bytes(data),  # it would keep the caller's memory, and may send it once more later
                attributes=attributes,
                mode="create",
                use_multipart=False,  # parts would be joined without the condition
            )

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        directory = checked_prefix(prefix)
        # SeaweedFS walks directories, and loses some that sort before `after` only by their name.
        skips = directory and after.startswith(directory) and "/" not in after[len(directory) :]
        with self._translated(directory):
            found = obstore.list(
                self._store,
                directory or None,
                offset=after if skips else None,
                chunk_size=_LIST_CHUNK,
            ).collect()
        infos = [
            ObjectInfo(entry["path"], entry["size"], int(entry["last_modified"].timestamp() * 1000))
            for entry in found
            if entry["path"] > after  # Azurite takes no notice of the offset
        ]
        return sorted(infos, key=attrgetter("name"))  # not every store sorts

    def delete(self, *names: str) -> None:
        for name in names:
            checked(name)
        with self._translated(", ".join(names[:3])):
            try:
                obstore.delete(self._store, names)
            except FileNotFoundError:  # some stop at the first that is missing
                for name in names:
                    self._delete_one(name)

    def copy(self, source: str, destination: str) -> None:
        with self._translated(checked(source)):
            obstore.copy(self._store, source, checked(destination))

    def _delete_one(self, name: str) -> None:
        try:
            obstore.delete(self._store, name)
        except FileNotFoundError:
            return

    def _length(self, name: str) -> int:
        return obstore.head(self._store, name)["size"]

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """Translate the errors of the store into those of Bucket."""
        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(f"no object {what} in {self._url}") from None
        except _CONDITION:
            raise FileExistsError(f"object {what} exists in {self._url}") from None
        except _REFUSED as error:
            raise PermissionError(f"{_cause(error)}: {self._at(what)}") from error
        except _UNABLE as error:
            raise UnsupportedError(
                f"{_cause(error)}: a request that the store does not support, {self._at(what)}"
            ) from error
        except exceptions.BaseError as error:
            cause = _cause(error)
            if "builder error" in cause:  # no request was sent, and none can be
                raise ValueError(
                    f"invalid address, endpoint or credentials of {self._url}; see docs/buckets.md"
                ) from error
            raise UnavailableError(f"{cause}: {self._at(what)}") from error

    def _at(self, what: str) -> str:
        return f"{what} in {self._url}" if what else self._url


def _cause(error: Exception) -> str:
    """Return what happened, and the error of the system, from a page of debugging text."""
    text = str(error).strip() or "no reason given"
    system = re.search(r'message: "([^"]+)"', text)
    line = text.splitlines()[0].rpartition(_REQUEST)[2]
    line = _ADDRESS.sub("", line).removeprefix("HTTP error: ")
    return line[:300] + (f" ({system[1]})" if system else "")
