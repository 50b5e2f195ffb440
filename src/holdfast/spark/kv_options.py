"""Options of the data source `holdfast-kv`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self
from uuid import UUID

from holdfast.bucket import Bucket, connect
from holdfast.disk import OsDisk
from holdfast.kv.cas import open_bucket
from holdfast.kv.view import bounds
from holdfast.spark.options import (
    FLAG,
    READS,
    TEXT,
    USES,
    WRITES,
    Kind,
    Options,
    Use,
    choice,
    names,
    number,
    option,
    position,
)

COLUMNS = ("key", "value", "sequence")
STREAM_COLUMNS = (*COLUMNS, "deleted")

_ENCODINGS: dict[str, Callable[[str], bytes]] = {"utf-8": str.encode, "hex": bytes.fromhex}
_BUCKET = "bucket."  # the rest of the name is an option of the object store's client
_SNAPSHOT = Kind("the id of a snapshot", UUID)
_RUN_BYTES = 256 << 20
_RUN_BYTES_MAX = 1 << 30


@dataclass(frozen=True, slots=True)
class Address:
    """Where a store is; every process opens it for itself."""

    url: str
    cas: str | None = None
    options: tuple[tuple[str, str], ...] = ()

    def open(self) -> Bucket:
        """Open it on the driver: check that creates are atomic."""
        return open_bucket(self.url, self.cas, options=dict(self.options))

    def open_proved(self) -> Bucket:
        """Open it in a task, after the driver has checked it."""
        return open_bucket(self.url, self.cas or "native", options=dict(self.options))

    def open_to_read(self) -> Bucket:
        """Open it for objects that exist."""
        return connect(self.url, options=dict(self.options))


def address_of(
    url: str, cas: str | None = None, options: Mapping[str, str] | None = None
) -> Address:
    """Make paths absolute: tasks run in other working directories.

    ValueError for an address that tasks cannot open.
    """
    if url.startswith("memory://"):
        raise ValueError("name a directory or an object store: processes do not share memory://")
    if "://" not in url:
        url = OsDisk(url).path
    return Address(url, cas, tuple(sorted((options or {}).items())))


@dataclass(frozen=True, slots=True, kw_only=True)
class KvOptions(Options):
    """What to read of a store, or how to load rows into it."""

    source: ClassVar[str] = "holdfast-kv"
    place: ClassVar[str] = "the store's directory or the URL of its bucket"

    path: str | None = option(TEXT, *USES)
    cas: str | None = option(TEXT, *USES)
    bucket: tuple[tuple[str, str], ...] = ()  # of bucket.*
    prefix: str = option(TEXT, "read", default="")
    starting_key: str | None = option(TEXT, "read")
    ending_key: str | None = option(TEXT, "read")
    key_encoding: str = option(choice(tuple(_ENCODINGS)), "read", default="utf-8")
    columns: tuple[str, ...] | None = option(names(STREAM_COLUMNS), *READS)
    max_partition_bytes: int | None = option(number(), "read")
    manifest_id: int | None = option(number(), "read")
    snapshot_id: UUID | None = option(_SNAPSHOT, "read")  # noqa: RUF009 - a field
    snapshot_ttl_ms: int | None = option(number(), *READS)
    pin: bool = option(FLAG, "read", default=True)
    starting_wal_id: int | Literal["earliest", "latest"] | None = option(
        position("earliest", "latest"), "readStream"
    )
    max_files_per_trigger: int | None = option(number(), "readStream")
    fail_on_data_loss: bool = option(FLAG, "readStream", default=True)
    sort: Literal["task", "none"] = option(choice(("task", "none")), "write", default="task")
    duplicates: Literal["last", "error"] = option(
        choice(("last", "error")), *WRITES, default="last"
    )
    compression: Literal["zstd"] | None = option(choice({"none": None, "zstd": "zstd"}), *WRITES)
    max_run_bytes: int = option(number(), *WRITES, default=_RUN_BYTES)

    @classmethod
    def parse(cls, options: Mapping[str, str], **fields: Any) -> Self:
        """Parse what Spark passes on; `bucket.*` goes to the object store's client as it is."""
        client = {key: value for key, value in options.items() if key.lower().startswith(_BUCKET)}
        own = {key: value for key, value in options.items() if key not in client}
        bucket = tuple((key[len(_BUCKET) :], value) for key, value in client.items())
        return super(KvOptions, cls).parse(own, bucket=bucket, **fields)

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        if self.manifest_id is not None and self.snapshot_id is not None:
            raise ValueError("set manifestId or snapshotId, not both")
        self.bounds  # noqa: B018 - ValueError for what is not in the encoding
        if self.path is not None:
            self.address  # noqa: B018 - ValueError for what tasks cannot open

    @property
    def address(self) -> Address:
        return address_of(self.path or "", self.cas, dict(self.bucket))

    @property
    def bounds(self) -> tuple[bytes, bytes | None]:
        """The keys to read: from the first on, and below the second, if there is one."""
        start, stop = self._key("startingKey", self.starting_key), None
        if self.ending_key is not None:
            stop = self._key("endingKey", self.ending_key)
        return bounds(start, stop, self._key("prefix", self.prefix))

    @property
    def run_bytes(self) -> int:
        return min(self.max_run_bytes, _RUN_BYTES_MAX)

    def only_for(self, use: Use) -> Self:
        found = Options.only_for(self, use)
        if use == "readStream" and self.starting_wal_id is None:
            raise ValueError("set startingWalId to earliest, latest or a number from 1 on")
        if use == "read" and "deleted" in (self.columns or ()):
            raise ValueError("remove deleted from columns: a batch read has no deleted keys")
        return found

    def _key(self, name: str, text: str | None) -> bytes:
        try:
            return _ENCODINGS[self.key_encoding](text or "")
        except ValueError as error:
            raise ValueError(f"set {name} to hexadecimal digits, not {text!r}") from error
