"""A bucket by its address.

    data/kv, /srv/kv, file:///srv/kv     a directory
    memory://NAME                        this process's memory, shared by all who say NAME
    s3://BUCKET/PREFIX                   S3 and all that speaks like it
    gs://BUCKET/PREFIX                   Google Cloud Storage
    az://CONTAINER/PREFIX                Azure Blob Storage

Options follow as a query (`?endpoint=http://127.0.0.1:8333&region=eu-west-1`) or come from the
environment (AWS_*, GOOGLE_*, AZURE_*), which is the place for keys: addresses end up in logs.
"""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.bucket.bucket import Bucket
from holdfast.bucket.directory import DirectoryBucket
from holdfast.bucket.memory import MemoryBucket
from holdfast.bucket.probe import enforces_create
from holdfast.bucket.retry import Patience, RetryingBucket
from holdfast.errors import UnsupportedError

# In a bucket whose writers agree by records: whoever creates without them would overwrite.
TWO_PHASE_MARK = "two-phase/mark"
_MEMORIES: dict[str, MemoryBucket] = {}
_CLIENT_OPTIONS = {"timeout", "connect_timeout", "allow_http", "proxy_url"}


def open_bucket(
    url: str, *, options: Mapping[str, str] | None = None, patience: Patience | None = None
) -> Bucket:
    """Connect, and make sure that of two who create one name one is refused.

    A store that lets both through loses data, so it is refused with UnsupportedError; with a
    transactional store at hand it can still be used: see holdfast.kv.cas.
    """
    bucket = connect(url, options=options, patience=patience)
    if has_mark(bucket):
        raise UnsupportedError(
            f"who writes to {_without_secrets(url)} does it in two phases; give the same records "
            "as they do, such as cas='sqlite:///path/to/records.db'"
        )
    if isinstance(bucket, RetryingBucket) and not enforces_create(bucket):
        raise UnsupportedError(
            f"{_without_secrets(url)} ignores create-if-absent, so two writers could overwrite "
            "each other; use a store that enforces it, or give a transactional store for "
            "two-phase writes, such as cas='sqlite:///path/to/records.db'"
        )
    return bucket


def connect(
    url: str, *, options: Mapping[str, str] | None = None, patience: Patience | None = None
) -> Bucket:
    """The bucket as it is, unproved: for readers, and for those who have asked already."""
    scheme = url.partition("://")[0] if "://" in url else "file"
    if scheme == "file":
        return DirectoryBucket(url)
    if scheme == "memory":
        name = _without_secrets(url).removeprefix("memory://").strip("/")
        return _MEMORIES.setdefault(name, MemoryBucket())
    if scheme not in ("s3", "gs", "az"):
        raise ValueError(f"no bucket has an address like {_without_secrets(url)}")
    return RetryingBucket(_object_store(url, scheme, options or {}), patience)


def has_mark(bucket: Bucket) -> bool:
    """Is this a bucket of two-phase writers?"""
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
    if not parts.netloc:
        raise ValueError(f"{_without_secrets(url)} names no bucket")
    config = dict(parse_qsl(parts.query)) | dict(options)
    client = {key: config.pop(key) for key in _CLIENT_OPTIONS & config.keys()}
    if any(value.startswith("http://") for value in config.values()):
        client["allow_http"] = "true"
    make: Callable[..., Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[scheme]
    try:
        store = make(
            parts.netloc,
            prefix=unquote(parts.path).strip("/") or None,
            config=config or None,
            client_options=client or None,
            retry_config={"max_retries": 0},  # RetryingBucket knows what may be repeated
        )
    except BaseError as error:
        why = str(error).partition("\n")[0]  # what follows is Rust's
        raise ValueError(f"{_without_secrets(url)}: {why}") from error
    return ObstoreBucket(store, _without_secrets(url))


def _without_secrets(url: str) -> str:
    return url.partition("?")[0]
