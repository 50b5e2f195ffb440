"""How commands open stores: through the front door, with errors that name the next command."""

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import typer

from holdfast.cli.errors import AbsentError
from holdfast.cli.output import remark
from holdfast.errors import CorruptError, NotFoundError, UnsupportedError

if TYPE_CHECKING:
    from holdfast.bars import BarReader, BarStore
    from holdfast.kv import Kv, KvReader
    from holdfast.kv.admin import KvAdmin
    from holdfast.kv.status import SnapshotReport
    from holdfast.logs.format import LogFormat
    from holdfast.logs.log import Log, LogReader


def tell_recovered(store: Any, path: str, *, as_json: bool) -> None:
    """Print on stderr what recovery did."""
    for line in store.recovered:
        remark(f"recovered {path}: {line}", as_json=as_json)


def tell_damage(damage: Iterable[object], *, as_json: bool) -> None:
    """Print damage on stderr; if there is any, exit with 2."""
    lines = [f"damaged: {one}" for one in damage]
    for line in lines:
        remark(line, as_json=as_json)
    if lines:
        raise typer.Exit(2)


def refuse_damage(damage: Iterable[Any]) -> None:
    for one in damage:
        raise CorruptError(one.file, one.offset, one.why)


def refuse_reversed(start: Any, stop: Any, shown: tuple[object, object]) -> None:
    """Refuse a range whose start is after its stop, as the user wrote them."""
    if start is not None and stop is not None and start > stop:
        raise ValueError(f"--start {shown[0]} is after --stop {shown[1]}")


# Logs


def find_log(path: str) -> "LogFormat":
    """Return the format of a log; FileNotFoundError names what to do."""
    from holdfast.doors import local_path
    from holdfast.doors.logs import log_format

    if not Path(local_path(path)).exists():
        advice = f"no such directory; `holdfast log create {path}` creates a log"
        raise FileNotFoundError(errno.ENOENT, advice, path)
    return log_format(path)


@contextmanager
def log_reader(path: str) -> "Iterator[LogReader]":
    """Read a log beside its owner, if it has one."""
    from holdfast.doors import read_log

    find_log(path)
    with read_log(path) as reader:
        yield reader


@contextmanager
def log_owner(path: str, *, as_json: bool, **options: Any) -> "Iterator[Log]":
    """Own a log; what recovery did is printed on stderr."""
    from holdfast.doors import open_log

    with open_log(path, **log_options(find_log(path), **options)) as log:
        tell_recovered(log, path, as_json=as_json)
        yield log


def log_options(format: "LogFormat", **options: Any) -> dict[str, Any]:
    """Return the options that were passed.  UnsupportedError if logs of this format lack one."""
    from holdfast.doors.logs import options_of

    passed = given(**options)
    for name in passed.keys() - options_of(format):
        flag = "--" + name.removesuffix("_ms").removesuffix("_max").replace("_", "-")
        raise UnsupportedError(f"{format.name} logs have no option {flag}; omit it")
    return passed


def method_of(log: Any, name: str, why: str) -> Any:
    """Return a method that logs of some formats have; UnsupportedError says `why` this has none."""
    if not hasattr(log, name):
        raise UnsupportedError(why)
    return getattr(log, name)


def given(**options: Any) -> dict[str, Any]:
    """Return only the options that were passed, so that the defaults of a format hold."""
    return {name: value for name, value in options.items() if value is not None}


# Key-value stores


def kv_admin(
    url: str,
    cas: str | None = None,
    *,
    read_only: bool = False,
    create: bool = False,
    gc_min_age_ms: int | None = None,
) -> "KvAdmin":
    """Maintain a store beside its writer; an error names what to do."""
    from holdfast.doors import manage_kv

    try:
        return manage_kv(
            _checked(url),
            cas=cas,
            read_only=read_only,
            create=create,
            **given(gc_min_age_ms=gc_min_age_ms),
        )
    except NotFoundError:
        bare = without_query(url)
        advice = f"no kv store here; `holdfast kv create {bare}` creates one"
        raise FileNotFoundError(errno.ENOENT, advice, bare) from None


@contextmanager
def kv_writer(
    url: str, cas: str | None, *, take_over: bool, create: bool = False
) -> "Iterator[Kv]":
    """Open for writing.  It flushes when waited for, and compacts when it is closed."""
    from holdfast.doors import open_kv

    bucket = kv_admin(url, cas, create=create).bucket
    with open_kv(bucket, flush_ms=None, watch_ms=None, take_over=take_over) as kv:
        yield kv


@contextmanager
def kv_reader(
    url: str, cas: str | None, *, at: int | None, snapshot: UUID | None, pin: bool = False
) -> "Iterator[KvReader]":
    """Read the newest state, or another; with `pin`, a snapshot holds it."""
    from holdfast.doors import read_kv

    if at is not None and snapshot is not None:
        raise ValueError("--at and --snapshot exclude each other")
    admin = kv_admin(url, cas, read_only=not pin)
    if snapshot is not None:
        at = find_snapshot(admin, snapshot).manifest_id
    with read_kv(admin.bucket, at=at, lazy=not pin) as reader:
        yield reader


def find_snapshot(admin: "KvAdmin", id: UUID) -> "SnapshotReport":
    """Return a snapshot by its id."""
    for each in admin.snapshots():
        if each.id == str(id):
            return each
    raise AbsentError(f"no snapshot {id}; `holdfast kv snapshot URL list` lists the snapshots")


def without_query(url: str) -> str:
    """Return an address as it may be printed."""
    from holdfast.bucket.open import shown

    return shown(url)


def _checked(url: str) -> str:
    if url.startswith("memory://"):
        raise ValueError("memory:// ends with this command; name a directory or an object store")
    if not url or "\0" in url:
        raise ValueError(f"{url!r} is not the address of a store")
    return url


# Bar stores


class Buckets(NamedTuple):
    """Symbols, perhaps "*", and which of their buckets."""

    symbols: str
    timeframe: str
    attributes: str


def parse_buckets(text: str) -> Buckets:
    """Split a name like AAPL,MSFT/1Min/OHLCV."""
    from holdfast.formats.bar_time import parse_timeframe

    parts = text.split("/")
    if len(parts) != 3 or not all(parts):
        example = "expected SYMBOL/TIMEFRAME/GROUP, like AAPL/1Min/OHLCV"
        raise ValueError(f"cannot parse {text!r} as a bucket; {example}")
    parse_timeframe(parts[1])
    return Buckets(*parts)


def find_root(path: str) -> None:
    """Check that a directory is a bar store; FileNotFoundError names what to do."""
    from holdfast.doors import find_bars, local_path

    if not Path(local_path(path)).exists():
        advice = f"no such directory; `holdfast bars create {path}` creates a store"
        raise FileNotFoundError(errno.ENOENT, advice, path)
    find_bars(path)


@contextmanager
def bar_reader(path: str) -> "Iterator[BarReader]":
    """Read a store beside its owner, if it has one."""
    from holdfast.doors import read_bars

    find_root(path)
    with read_bars(path) as reader:
        yield reader


@contextmanager
def bar_owner(
    path: str, *, as_json: bool, create: bool = False, salvage: bool = False
) -> "Iterator[BarStore]":
    """Own a store; what recovery did is printed on stderr, and damage is refused."""
    from holdfast.doors import open_bars

    if not create:
        find_root(path)
    with open_bars(path, create=create, salvage=salvage) as store:
        tell_recovered(store, path, as_json=as_json)
        refuse_damage(store.damage)
        yield store
