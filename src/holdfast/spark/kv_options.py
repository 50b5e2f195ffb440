"""The options of the data source `holdfast-kv`, read once and refused where they make no sense."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args
from uuid import UUID

from holdfast.bucket import Bucket, connect
from holdfast.disk import OsDisk
from holdfast.kv.cas import open_bucket
from holdfast.kv.view import bounds
from holdfast.spark.option_values import number, refuse_unfit, spelled, transaction

Use = Literal["read", "readStream", "write", "writeStream"]
Duplicates = Literal["last", "error"]
Sort = Literal["task", "none"]
Parsed = TypeVar("Parsed")

COLUMNS = ("key", "value", "sequence")
STREAM_COLUMNS = (*COLUMNS, "deleted")
_ENCODINGS: dict[str, Callable[[str], bytes]] = {"utf-8": str.encode, "hex": bytes.fromhex}
_BUCKET = "bucket."  # what follows is for the object store's client

# Which option is for what.
_USES: dict[str, tuple[Use, ...]] = {
    "path": get_args(Use),
    "cas": get_args(Use),
    "prefix": ("read",),
    "startKey": ("read",),
    "endKey": ("read",),
    "keyEncoding": ("read",),
    "columns": ("read", "readStream"),
    "maxPartitionBytes": ("read",),
    "manifestId": ("read",),
    "snapshotId": ("read",),
    "snapshotTtlSeconds": ("read", "readStream"),
    "pin": ("read",),
    "startingWalId": ("readStream",),
    "maxFilesPerTrigger": ("readStream",),
    "failOnDataLoss": ("readStream",),
    "sort": ("write",),
    "duplicates": ("write", "writeStream"),
    "compression": ("write", "writeStream"),
    "runBytes": ("write", "writeStream"),
    "txnAppId": ("write",),
    "txnVersion": ("write",),
    "checkpointLocation": ("write", "writeStream"),  # of the stream whose batch is written
    "queryName": ("writeStream",),
}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a store is, to be opened by every process for itself."""

    url: str
    cas: str | None = None
    options: tuple[tuple[str, str], ...] = ()

    def open(self) -> Bucket:
        """On the driver: make sure that creates can be relied on."""
        return open_bucket(self.url, self.cas, options=dict(self.options))

    def open_proved(self) -> Bucket:
        """In a task: the driver has made sure."""
        return open_bucket(self.url, self.cas or "native", options=dict(self.options))

    def open_to_read(self) -> Bucket:
        """For objects that are known to be there."""
        return connect(self.url, options=dict(self.options))


def address_of(
    url: str, cas: str | None = None, options: Mapping[str, str] | None = None
) -> Address:
    """Absolute: tasks run in directories of their own.  ValueError for what no task can open."""
    if url.startswith("memory://"):
        raise ValueError("name a directory or an object store: memory is each process's own")
    if "://" not in url:
        url = OsDisk(url).path
    return Address(url, cas, tuple(sorted((options or {}).items())))


@dataclass(frozen=True, slots=True)
class KvOptions:
    """What was asked for, checked as far as it can be without a look at the store."""

    given: tuple[str, ...]
    where: Address | None
    start: bytes = b""
    stop: bytes | None = None
    columns: tuple[str, ...] | None = None
    partition_bytes: int | None = None
    manifest_id: int | None = None
    snapshot_id: UUID | None = None
    ttl_s: int | None = None
    pin: bool = True
    first_wal_id: int | Literal["earliest", "latest"] | None = None
    files_max: int | None = None
    fail_on_data_loss: bool = True
    sort: Sort = "task"
    duplicates: Duplicates = "last"
    compression: Literal["zstd"] | None = None
    run_bytes: int = 256 << 20
    transaction: tuple[str, int] | None = None
    checkpoint: str | None = None

    @property
    def address(self) -> Address:
        if self.where is None:
            raise ValueError("name the store: .load('/the/directory') or .load('s3://bucket/kv')")
        return self.where

    def only_for(self, use: Use) -> "KvOptions":
        """Refuse what has no meaning there: Spark tells only now whether it reads or writes."""
        refuse_unfit(self.given, use, _USES)
        if self.where is None:
            ends = {"read": "load", "readStream": "load", "write": "save", "writeStream": "start"}
            raise ValueError(f"name the store: .{ends[use]}('/the/directory') or a bucket's URL")
        if use == "readStream" and self.first_wal_id is None:
            raise ValueError("set startingWalId to earliest, latest or a number")
        if use == "read" and "deleted" in (self.columns or ()):
            raise ValueError("remove deleted from columns: a batch read shows what is not deleted")
        return self


def parse_options(options: Mapping[str, str]) -> KvOptions:
    """ValueError with what to do on its first line."""
    values, client = _sorted_out(options)
    key = _ENCODINGS.get(values.get("keyEncoding", "utf-8").lower())
    if key is None:
        raise ValueError(f"set keyEncoding to one of {', '.join(_ENCODINGS)}")
    start, stop = bounds(
        _key(values, "startKey", key),
        _key(values, "endKey", key),
        _key(values, "prefix", key) or b"",
    )
    if "manifestId" in values and "snapshotId" in values:
        raise ValueError("set manifestId or snapshotId, not both")
    once = transaction(values)
    return KvOptions(
        given=tuple(values),
        where=address_of(values["path"], values.get("cas"), client) if "path" in values else None,
        start=start,
        stop=stop,
        columns=_columns(values),
        partition_bytes=number(values, "maxPartitionBytes"),
        manifest_id=number(values, "manifestId"),
        snapshot_id=_uuid(values),
        ttl_s=number(values, "snapshotTtlSeconds"),
        pin=_choice(values, "pin", {"true": True, "false": False}, "true"),
        first_wal_id=_first_wal_id(values),
        files_max=number(values, "maxFilesPerTrigger"),
        fail_on_data_loss=_choice(values, "failOnDataLoss", {"true": True, "false": False}, "true"),
        sort=_choice(values, "sort", {"task": "task", "none": "none"}, "task"),
        duplicates=_choice(values, "duplicates", {"last": "last", "error": "error"}, "last"),
        compression=_choice(values, "compression", {"none": None, "zstd": "zstd"}, "none"),
        run_bytes=min(number(values, "runBytes") or 256 << 20, 1 << 30),
        transaction=(once.app, once.version) if once else None,
        checkpoint=values.get("checkpointLocation"),
    )


def _sorted_out(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Our options by their names, and those for the object store."""
    client = {key: value for key, value in options.items() if key.lower().startswith(_BUCKET)}
    ours = {key: value for key, value in options.items() if key not in client}
    values = spelled(ours, _USES, "holdfast-kv", f"{_BUCKET}*")
    return values, {key[len(_BUCKET) :]: value for key, value in client.items()}


def _key(values: Mapping[str, str], name: str, decode: Callable[[str], bytes]) -> bytes | None:
    if name not in values:
        return None
    try:
        return decode(values[name])
    except ValueError as error:
        raise ValueError(f"set {name} to hexadecimal digits, not {values[name]!r}") from error


def _columns(values: Mapping[str, str]) -> tuple[str, ...] | None:
    if "columns" not in values:
        return None
    names = tuple(name.strip() for name in values["columns"].split(","))
    if not set(names) <= set(STREAM_COLUMNS) or len(set(names)) != len(names):
        raise ValueError(
            f"set columns to some of {','.join(STREAM_COLUMNS)}, not {values['columns']!r}"
        )
    return names


def _uuid(values: Mapping[str, str]) -> UUID | None:
    if "snapshotId" not in values:
        return None
    try:
        return UUID(values["snapshotId"])
    except ValueError as error:
        raise ValueError(
            f"set snapshotId to a snapshot's id, not {values['snapshotId']!r}"
        ) from error


def _choice(
    values: Mapping[str, str], name: str, choices: Mapping[str, Parsed], default: str
) -> Parsed:
    text = values.get(name, default).lower()
    if text not in choices:
        raise ValueError(f"set {name} to one of {', '.join(choices)}, not {text!r}")
    return choices[text]


def _first_wal_id(values: Mapping[str, str]) -> int | Literal["earliest", "latest"] | None:
    text = values.get("startingWalId", "").lower()
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    return number(values, "startingWalId")
