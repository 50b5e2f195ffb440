"""A bucket by its address.

    data/kv, /srv/kv, file:///srv/kv     a directory
    memory://NAME                        the memory of this process, shared under NAME
    s3://BUCKET/PREFIX                   S3 and compatible stores
    gs://BUCKET/PREFIX                   Google Cloud Storage
    az://CONTAINER/PREFIX                Azure Blob Storage

Options follow as a query (`?endpoint=http://127.0.0.1:8333&region=eu-west-1`) or come from the
environment (AWS_*, GOOGLE_*, AZURE_*).  Set credentials there: addresses are written to logs.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.bucket.bucket import Bucket
from holdfast.bucket.directory import DirectoryBucket
from holdfast.bucket.memory import MemoryBucket
from holdfast.bucket.probe import enforces_create
from holdfast.bucket.retry import Patience, RetryingBucket
from holdfast.errors import UnsupportedError

# In a bucket with two-phase writes: a writer without the records would overwrite objects.
TWO_PHASE_MARK = "two-phase/mark"
_MEMORIES: dict[str, MemoryBucket] = {}
_PREFIXES = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}  # of environment variables
# Options and variables, without the prefix.  Others may have such names and mean something else.
_ENDPOINTS = {"ENDPOINT", "ENDPOINT_URL", "ENDPOINT_URL_S3", "STORAGE_ENDPOINT"}
_CREDENTIALS = {"ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"}
_CLIENT_OPTIONS = {"timeout", "connect_timeout", "allow_http", "proxy_url"}


def open_bucket(
    url: str, *, options: Mapping[str, str] | None = None, patience: Patience | None = None
) -> Bucket:
    """Connect, and test that the store enforces create-if-absent.

    A store that does not enforce it loses data, so it is refused with UnsupportedError.  With a
    transactional store it can still be used: see holdfast.kv.cas.
    """
    bucket = connect(url, options=options, patience=patience)
    refuse_two_phase(bucket, url)
    if isinstance(bucket, RetryingBucket) and not enforces_create(bucket):
        raise UnsupportedError(
            f"{shown(url)} ignores create-if-absent, so two writers could overwrite "
            "each other; use a store that enforces it, or give a transactional store for "
            "two-phase writes, such as cas='sqlite:///path/to/records.db'"
        )
    return bucket


def connect(
    url: str, *, options: Mapping[str, str] | None = None, patience: Patience | None = None
) -> Bucket:
    """Connect without a test of create-if-absent, for readers."""
    scheme = url.partition("://")[0] if "://" in url else "file"
    if scheme == "file":
        return DirectoryBucket(url)
    if scheme == "memory":
        name = url.partition("?")[0].removeprefix("memory://").strip("/")
        return _MEMORIES.setdefault(name, MemoryBucket())
    if scheme not in ("s3", "gs", "az"):
        raise ValueError(f"unknown scheme in {shown(url)}; use a path, s3://, gs:// or az://")
    return RetryingBucket(_object_store(url, scheme, options or {}), patience)


def refuse_two_phase(bucket: Bucket, url: str) -> None:
    """Raise UnsupportedError if the writers of this bucket use two-phase writes."""
    if has_mark(bucket):
        raise UnsupportedError(
            f"{shown(url)} uses two-phase writes; pass the same `cas=` store as its "
            "other writers, such as cas='sqlite:///path/to/records.db'"
        )


def has_mark(bucket: Bucket) -> bool:
    """Return whether the writers of this bucket use two-phase writes."""
    try:
        bucket.get_range(TWO_PHASE_MARK, 0, 0)
    except FileNotFoundError:
        return False
    return True


def _object_store(url: str, scheme: str, options: Mapping[str, str]) -> Bucket:
    # Loaded when needed: a local store should not wait for an HTTP client.
    from obstore.exceptions import BaseError
    from obstore.store import AzureStore, GCSStore, S3Store

    from holdfast.bucket.obstore import ObstoreBucket

    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError(
            f"{shown(url)} was given with credentials in the address; set them in the environment "
            f"({_PREFIXES[scheme]}*), because addresses are written to logs"
        )
    if not parts.netloc:
        raise ValueError(f"no bucket name in {shown(url)}; write {scheme}://BUCKET/PREFIX")
    config = dict(parse_qsl(parts.query)) | dict(options)
    client = {key: config.pop(key) for key in _CLIENT_OPTIONS & config.keys()}
    if _uses_http(config, _PREFIXES[scheme]):
        client["allow_http"] = "true"
    make: Callable[..., Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[scheme]
    try:
        store = make(
            parts.netloc,
            prefix=unquote(parts.path).strip("/") or None,
            config=config or None,
            client_options=client or None,
            retry_config={"max_retries": 0},  # RetryingBucket decides what may be repeated
        )
    except BaseError as error:
        why = str(error).partition("\n")[0].rstrip(".")  # the rest is Rust's debugging text
        raise ValueError(f"{why}: {shown(url)}") from error
    return ObstoreBucket(store, shown(url))


def _uses_http(config: Mapping[str, str], prefix: str) -> bool:
    """Return whether an endpoint is not encrypted; ValueError if it is not one of HTTP.

    The client finds other values out by a panic, or after a minute of retries.
    """
    found = {name: value for name, value in os.environ.items() if name.startswith(prefix)}
    known = {**found, **config}
    endpoints: list[str] = []
    for name, value in known.items():
        bare = name.upper().removeprefix(prefix)
        if bare in _CREDENTIALS and not value.isprintable():
            raise ValueError(f"the value of {name} has a line break or another control character")
        if bare in _ENDPOINTS and value:
            endpoints.append(value)
            if not value.startswith(("http://", "https://")):
                where = f"invalid {name} {shown(value)!r}"
                raise ValueError(f"{where}; expected http://HOST:PORT or https://HOST:PORT")
    return any(value.startswith("http://") for value in endpoints)


def shown(url: str) -> str:
    """Return an address as it may be printed: without its query and without credentials.

    Both may hold secrets.  A path has neither.
    """
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url
    place, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}"
