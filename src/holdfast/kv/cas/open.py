"""Open a bucket with reliable create-if-absent, by addresses.

    cas=None                           the store must enforce create-if-absent; it is tested
    cas="native"                       the store enforces it; skip the test
    cas="sqlite:///var/lib/kv.db"      two-phase writes, their records in a file, as if file:///
    cas="sqlite:kv.db"                 ... in the current directory
    cas="postgresql://user@host/db"    ... in PostgreSQL
    cas="mysql://user@host/db"         ... in MySQL or MariaDB
    cas="dynamodb://table?region_name=eu-west-1"       ... in DynamoDB

All writers of a bucket must use the same records.  Records are stored under the address of the
bucket.  For a bucket with several addresses, `?scope=NAME` after the records' address sets a name
instead.
"""

from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from holdfast.bucket import Bucket, DirectoryBucket, Patience, connect
from holdfast.bucket import open_bucket as open_native
from holdfast.bucket.open import TWO_PHASE_MARK, has_mark, shown
from holdfast.errors import UnsupportedError
from holdfast.kv.cas.dynamodb import open_dynamodb
from holdfast.kv.cas.mysql import open_mysql
from holdfast.kv.cas.postgres import open_postgres
from holdfast.kv.cas.records import Records
from holdfast.kv.cas.sqlite import open_sqlite
from holdfast.kv.cas.two_phase import TwoPhaseBucket


def open_bucket(
    url: str,
    cas: str | None = None,
    *,
    options: Mapping[str, str] | None = None,
    patience: Patience | None = None,
) -> Bucket:
    """Connect; with records, finish the writes that a crash left unfinished."""
    if cas is None:
        return open_native(url, options=options, patience=patience)
    if cas == "native":
        return connect(url, options=options, patience=patience)
    two_phase = open_two_phase(url, cas, options=options, patience=patience)
    two_phase.recover()
    return two_phase


def open_two_phase(
    url: str,
    cas: str,
    *,
    options: Mapping[str, str] | None = None,
    patience: Patience | None = None,
) -> TwoPhaseBucket:
    """Connect to a bucket with records; claim an empty one.  Unfinished writes are not finished."""
    bucket = connect(url, options=options, patience=patience)
    records = open_records(cas, _scope_of(url, bucket))
    two_phase = TwoPhaseBucket(bucket, records, patience=patience)
    if records.find(TWO_PHASE_MARK) is None:
        _claim(two_phase, records, shown(url))
    return two_phase


def _claim(bucket: TwoPhaseBucket, records: Records, where: str) -> None:
    """Mark a bucket as one of two-phase writers, with a record of its own.

    So these records belong to it, and no others do.  With other records every name would look free,
    and a create would overwrite an object.
    """
    refusal = ""
    if has_mark(bucket):
        refusal = f"these are not the records of {where}; find the right ones"
    elif bucket.list(""):
        refusal = (
            f"{where} holds objects that were created without records; use an empty bucket or "
            "prefix for two-phase writes"
        )
    # Read the records again: another process may be claiming the bucket at the same time, and then
    # the record of the mark came first.
    if refusal and records.find(TWO_PHASE_MARK) is None:
        raise UnsupportedError(refusal)
    with suppress(FileExistsError):
        bucket.put_if_absent(TWO_PHASE_MARK, b"created in two phases, as all else here")


def _scope_of(url: str, bucket: Bucket) -> str:
    """Return the scope: the same for all addresses of one bucket.  Paths are made absolute."""
    if isinstance(bucket, DirectoryBucket):
        return f"file://{bucket.path}"
    return url.partition("?")[0].rstrip("/")


def open_records(url: str, scope: str) -> Records:
    """Open the records at an address, for `scope` unless the address names another."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    scope = quote(options.pop("scope", scope), safe=":/")
    bare = parts._replace(query=urlencode(options)).geturl()
    match parts.scheme:
        case "sqlite":
            return open_sqlite(unquote(parts.netloc + parts.path), scope)
        case "postgresql" | "postgres":
            return open_postgres(bare, scope)
        case "mysql" | "mariadb":
            return open_mysql(bare, scope)
        case "dynamodb":
            if "endpoint" in options:
                options["endpoint_url"] = options.pop("endpoint")
            return open_dynamodb(parts.netloc, scope, **options)
    raise ValueError(f"unknown scheme {parts.scheme}:// of a record store; see docs/buckets.md")
