"""What a root holds: symbols, timeframes, attribute groups and years, as directories and files.

root/SYMBOL/TIMEFRAME/ATTRIBUTES/YEAR.bin, and in each directory a file `category_name` that says
what the names in it are: MarketStore requires it.  A bucket's key is SYMBOL/TIMEFRAME/ATTRIBUTES.
"""

import errno
import re
from collections.abc import Collection, Sequence
from contextlib import closing
from functools import lru_cache
from typing import NamedTuple

from holdfast.disk import Disk, File
from holdfast.errors import CorruptError, ExistsError, NotFoundError
from holdfast.formats import year_file as fmt
from holdfast.formats.bar_time import parse_timeframe
from holdfast.formats.flaw import Flaw
from holdfast.ownership import LOCK

CATEGORY = "category_name"
STAGING = ".staging"  # no symbol: see holdfast.bars.staging
CATEGORIES = (b"Symbol", b"Timeframe", b"AttributeGroup", b"Year")
_NAME = r"(?!\.{1,2}/)[ -.0-~]{1,200}"  # printable, and neither a slash nor a way up
_PATH = re.compile(rf"({_NAME}/{_NAME}/{_NAME})/([12][0-9]{{3}})\.bin")
_TAKEN = re.compile(r"LOCK$|\.staging$|WALFile\.|category_name$|metadata\.db$")
_ASTRAY = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)


class YearPath(NamedTuple):
    key: str
    year: int


@lru_cache(1 << 17)
def split_path(path: str) -> YearPath | None:
    """Return the bucket and the year of a path; None if it cannot be the path of a year file."""
    match = _PATH.fullmatch(path)
    return YearPath(match[1], int(match[2])) if match else None


@lru_cache(1 << 17)
def make_key(symbol: str, timeframe: str, attributes: str) -> str:
    parse_timeframe(timeframe)
    key = f"{symbol}/{timeframe}/{attributes}"
    if symbol == "*" or "," in symbol:
        raise ValueError(
            f"invalid symbol {symbol!r}: a query reads * as all symbols, and a comma between two; "
            "replace the character"
        )
    if split_path(year_path(key, 2000)) is None or _TAKEN.match(symbol):
        raise ValueError(
            f"invalid bucket {key!r}: use printable ASCII characters without a slash, "
            "and no name that the store uses itself"
        )
    return key


def year_path(key: str, year: int) -> str:
    return f"{key}/{year:04}.bin"


def leads_astray(error: OSError) -> bool:
    """Return whether a hostile path caused the error: a link, or a file for a directory."""
    return error.errno in _ASTRAY


def has_root(disk: Disk) -> bool:
    """Return whether a directory is a bar store: a new one has `category_name`, or only LOCK."""
    try:
        names = disk.list()
        if any(name == CATEGORY or name.startswith("WALFile.") for name in names):
            return True
        directories = disk.directories()
        if STAGING in directories:
            return True
        disk.open(LOCK).close()
    except FileNotFoundError:
        return False
    return not names and not directories


def check_root(disk: Disk, *, create: bool = False) -> bool:
    """Return whether a root must be created: it is missing, and `create` allows it.

    NotFoundError without `create`; ExistsError if the directory holds something else.
    """
    if has_root(disk):
        return False
    try:
        others = [*disk.list(), *disk.directories()]
    except FileNotFoundError:
        others = []
    if others and create:
        raise ExistsError(f"{disk} is not a bar store: it holds {others[0]!r}; use a new directory")
    if not create:
        what = f"it holds {others[0]!r}" if others else "it is missing or empty"
        raise NotFoundError(f"no bar store at {disk}: {what}; check the path, or create the store")
    return True


class Catalog:
    """Caches what the directories hold.  An owner adds the files that it creates."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._years: dict[str, frozenset[int]] = {}
        self._schemas: dict[str, fmt.Schema] = {}
        self.present: set[str] = set()  # files that are known to exist
        self._headers: dict[str, fmt.Header] = {}
        self.expected: dict[
            str, fmt.Header
        ] = {}  # of files that are being created, or created again
        self.checked: set[str] = set()  # buckets whose directories are known to be inside

    def forget(self) -> None:
        """Drop the cached years: a guest cannot know which files the owner has created."""
        self._years.clear()

    def symbols(self) -> list[str]:
        return [name for name in self._directories("") if name != STAGING]

    def buckets(self, symbol: str) -> list[str]:
        found = []
        for timeframe in self._directories(symbol):
            names = self._directories(f"{symbol}/{timeframe}")
            found += [f"{symbol}/{timeframe}/{attributes}" for attributes in names]
        return found

    def years(self, key: str) -> frozenset[int]:
        years = self._years.get(key)
        if years is None:
            try:
                names = self._disk.list(key)
            except FileNotFoundError:
                names = {}
            paths = [split_path(f"{key}/{name}") for name in names if name.endswith(".bin")]
            years = self._years[key] = frozenset(path.year for path in paths if path)
        return years

    def add(self, key: str, year: int, schema: fmt.Schema) -> None:
        self._years[key] = self.years(key) | {year}
        self._schemas[key] = schema

    def schemas(self, keys: Sequence[str]) -> list[fmt.Schema | None]:
        """Return the columns of many buckets."""
        known = self._schemas.get
        return [known(key) or self.schema(key) for key in keys]

    def schema(self, key: str, *, unless: Collection[str] = ()) -> fmt.Schema | None:
        """Return the columns of a bucket, which all its years share; None if it has no file.

        The files in `unless` are not read: they may be incomplete.
        """
        schema = self._schemas.get(key)
        if schema is None:
            years = [year for year in self.years(key) if year_path(key, year) not in unless]
            if years:  # the oldest is the least likely to be incomplete
                header = self._read(year_path(key, min(years)))
                schema = self._schemas[key] = header.schema
        return schema

    def header(self, file: File, path: str) -> fmt.Header | Flaw:
        header = self._headers.get(path) or find_header(file, path)
        expected = self.expected.get(path)
        if expected is None or (
            isinstance(header, fmt.Header) and header.schema is expected.schema
        ):
            return header
        return expected

    def trust(self, path: str, header: fmt.Header) -> None:
        """Cache the header of a file that is known to be complete."""
        self._headers[path] = header

    def _read(self, path: str) -> fmt.Header:
        with closing(self._disk.open(path)) as file:
            return read_header(file, path)

    def _directories(self, name: str) -> list[str]:
        try:
            return list(self._disk.directories(name))
        except (FileNotFoundError, NotADirectoryError):
            return []


def read_header(file: File, path: str) -> fmt.Header:
    """Return the header of a year file; CorruptError if its year is not that of its name."""
    header = find_header(file, path)
    if isinstance(header, Flaw):
        raise CorruptError(path, header.offset, header.why)
    return header


def find_header(file: File, path: str) -> fmt.Header | Flaw:
    head = file.read_at(0, fmt.HEAD_SIZE)
    header = _decode(head, file.read_at(fmt.TYPES_AT, fmt.COLUMNS_MAX))
    named = split_path(path)
    if isinstance(header, fmt.Header) and (named is None or named.year != header.year):
        return Flaw(264, f"a file of the year {header.year}")
    if isinstance(header, fmt.Header) and header.timeframe_ns != _timeframe_ns(path):
        return Flaw(272, f"a file of another timeframe: {header.timeframe_ns} ns")
    return header


def _timeframe_ns(path: str) -> int | None:
    try:
        return parse_timeframe(path.split("/")[1])
    except ValueError:  # no name that MarketStore knows
        return None


@lru_cache(512)
def _decode(head: bytes, types: bytes) -> fmt.Header | Flaw:
    return fmt.decode_header_parts(head, types)
