"""Where a store keeps its objects: names made of ids, and back.

    manifest/00000000000000000001.manifest      the store's state, one object for each change of it
    wal/00000000000000000001.sst                what was written and is not yet compacted
    levels/00000000004294967296.sst            what is

Ids are 20 digits wide, so that names sort as ids do.  Manifest and WAL ids begin at 1 and are
contiguous.  What else lies in these directories (temporaries of a two-phase write, say) has no id.
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
    """The id in an object's name; None where the name is not one of ours, to the letter."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    number = int(match[match.lastindex or 0])
    return number if number <= ID_MAX else None


def required_id(name: str) -> int:
    """The id in a name that has one."""
    number = id_of(name)
    if number is None:
        raise ValueError(f"{name} has no id")
    return number


def ids(listing: Iterable[ObjectInfo]) -> Iterator[int]:
    """The ids in a listing; what has none is passed over."""
    return (number for info in listing if (number := id_of(info.name)) is not None)


def wal_ids(bucket: Bucket, after: int) -> list[int]:
    """The ids of the WAL that come after one, in order; there may be gaps between them."""
    return list(ids(bucket.list(WAL, after=wal_name(after))))


def contiguous(first: int, found: Iterable[int]) -> int:
    """The last id of the unbroken row that begins at `first`; one less where it is not there."""
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
