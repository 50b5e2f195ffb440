"""What a root holds: symbols, timeframes, attribute groups and years, as directories and files.

root/SYMBOL/TIMEFRAME/ATTRIBUTES/YEAR.bin, and in each directory a file `category_name` that says
what the names in it are: MarketStore wants it so.  A bucket's key is SYMBOL/TIMEFRAME/ATTRIBUTES.
"""

import errno
import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

from holdfast.disk import Disk, File
from holdfast.errors import CorruptError
from holdfast.formats import year_file as fmt
from holdfast.formats.bar_time import parse_timeframe
from holdfast.formats.flaw import Flaw

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
    """The bucket and the year of a file's name; None if no year file could be called so."""
    match = _PATH.fullmatch(path)
    return YearPath(match[1], int(match[2])) if match else None


@lru_cache(1 << 17)
def make_key(symbol: str, timeframe: str, attributes: str) -> str:
    parse_timeframe(timeframe)
    key = f"{symbol}/{timeframe}/{attributes}"
    if split_path(year_path(key, 2000)) is None or _TAKEN.match(symbol):
        raise ValueError(f"{key!r} is no name for a bucket: printable ASCII, and no slash")
    return key


def year_path(key: str, year: int) -> str:
    return f"{key}/{year:04}.bin"


def leads_astray(error: OSError) -> bool:
    """Whether a name leads to what no store has made, as hostile ones do; else a disk fails."""
    return error.errno in _ASTRAY


class Catalog:
    """Looks into directories when asked, and remembers.  An owner tells it of what it makes."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._years: dict[str, frozenset[int]] = {}
        self._schemas: dict[str, fmt.Schema] = {}
        self.present: set[str] = set()  # files that are there for sure
        self._headers: dict[str, fmt.Header] = {}
        self.expected: dict[str, fmt.Header] = {}  # of files that are being made, or made again
        self.checked: set[str] = set()  # buckets whose directories are known to be inside

    def forget(self) -> None:
        """Look again: a guest cannot know what the owner has made."""
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
        """The columns of many buckets."""
        known = self._schemas.get
        return [known(key) or self.schema(key) for key in keys]

    def schema(self, key: str, *, unless: Collection[str] = ()) -> fmt.Schema | None:
        """The columns of a bucket, which all its years share; None if there is no file.

        What is in the files `unless` does not count: perhaps they are only half made.
        """
        schema = self._schemas.get(key)
        if schema is None:
            years = [year for year in self.years(key) if year_path(key, year) not in unless]
            if years:  # the oldest: no other is less likely to be just being made
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
        """Remember the header of a file that is surely made."""
        self._headers[path] = header

    def _read(self, path: str) -> fmt.Header:
        file = self._disk.open(path)
        try:
            return read_header(file, path)
        finally:
            file.close()

    def _directories(self, name: str) -> list[str]:
        try:
            return list(self._disk.directories(name))
        except (FileNotFoundError, NotADirectoryError):
            return []


def read_header(file: File, path: str) -> fmt.Header:
    """The header of a year file, which must be of the year that its name says."""
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
