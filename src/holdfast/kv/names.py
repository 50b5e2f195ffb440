"""Where a store keeps its objects: names made of ids, and back.

    manifest/00000000000000000001.manifest      the store's state, one object for each change of it
    wal/00000000000000000001.sst                writes that are not compacted yet
    levels/00000000004294967296.sst             compacted writes

Ids are 20 digits wide, so that names sort as ids do.  Manifest and WAL ids begin at 1 and are
contiguous.  Other files in these directories, such as temporary files of a two-phase write, have no
id.
"""

import re
from collections.abc import Iterable, Iterator

from holdfast.bucket.bucket import Bucket, ObjectInfo

MANIFESTS, WAL, LEVELS = "manifest", "wal", "levels"
ID_MAX = 2**64 - 1
_ID = "([0-9]{20})"
_NAME = re.compile(rf"manifest/{_ID}\.manifest|wal/{_ID}\.sst|levels/{_ID}\.sst")


def manifest_name(manifest_id: int) -> str:
    return f"manifest/{_checked(manifest_id):020}.manifest"


def wal_name(wal_id: int) -> str:
    return f"wal/{_checked(wal_id):020}.sst"


def level_name(sst_id: int) -> str:
    return f"levels/{_checked(sst_id):020}.sst"


def id_of(name: str) -> int | None:
    """Return the id in an object's name; None unless the name is exactly that of an object with an
    id.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    number = int(match[match.lastindex or 0])
    return number if number <= ID_MAX else None


def required_id(name: str) -> int:
    """Return the id in a name that has one."""
    number = id_of(name)
    if number is None:
        raise ValueError(f"{name} has no id")
    return number


def ids(listing: Iterable[ObjectInfo]) -> Iterator[int]:
    """Return the ids in a listing; objects without an id are skipped."""
    return (number for info in listing if (number := id_of(info.name)) is not None)


def wal_ids(bucket: Bucket, after: int) -> list[int]:
    """Return the ids of the WAL that come after one, in order; there may be gaps between them."""
    return list(ids(bucket.list(WAL, after=wal_name(after))))


def contiguous(first: int, found: Iterable[int]) -> int:
    """Return the last of the contiguous ids from `first`; `first` - 1 if that is missing."""
    last = first - 1
    for number in found:
        if number != last + 1:
            break
        last = number
    return last


def _checked(number: int) -> int:
    if not 0 <= number <= ID_MAX:
        raise ValueError(f"{number} is not an id: it takes 64 bits")
    return number
