"""Read a bbolt file.  The page: docs/formats/bolt.md

Every id, offset and length is checked before it is followed, no page is visited twice, and no
byte is counted for two values; so nothing that a file holds can make a reader crash, loop or
take more memory than a few times the file.
"""

from collections.abc import Sequence
from itertools import pairwise

from holdfast.formats.bolt.pages import (
    BRANCH,
    BRANCH_ELEMENT,
    BUCKET,
    BUCKET_SIZE,
    COUNT_IN_BODY,
    ELEMENT_SIZE,
    FREE_LIST,
    HEADER_SIZE,
    ID,
    IS_BUCKET,
    LEAF,
    LEAF_ELEMENT,
    NO_FREE_LIST,
    PAGE,
    Bucket,
    Bytes,
    Image,
    Meta,
    find_metas,
)
from holdfast.formats.flaw import Flaw

_DEPTH_MAX = 128
_Element = tuple[int, bytes, memoryview]  # flags, key, value


def decode(data: Bytes) -> Image | Flaw:
    """Decode the newest transaction whose meta page is valid, with all its buckets.

    If a meta page is torn, the previous transaction counts, since meta pages are written last.  A
    valid meta page that refers to an invalid page is a flaw: no crash leaves that.
    """
    metas = find_metas(data)
    if isinstance(metas, Flaw):
        return metas
    view, newest = memoryview(data), metas[0]
    try:
        walk = _Walk(view, newest)
    except _BrokenError as error:
        return error.flaw
    return Image(
        newest.txid,
        newest.page_size,
        walk.buckets,
        len(view),
        newest.high_water,
        frozenset(walk.used),
    )


def decode_newest(data: Bytes) -> int | Flaw:
    """Return the transaction that `decode` would return, by the meta pages alone."""
    metas = find_metas(data)
    return metas if isinstance(metas, Flaw) else metas[0].txid


class _BrokenError(Exception):
    def __init__(self, offset: int, why: str) -> None:
        super().__init__(why)
        self.flaw = Flaw(offset, why)


class _Walk:
    """The pages that one meta page refers to."""

    def __init__(self, view: memoryview, meta: Meta) -> None:
        self._view, self._meta = view, meta
        self.used: set[int] = set()
        if meta.high_water * meta.page_size > len(view):
            raise _BrokenError(
                meta.offset, f"{meta.high_water} pages in a file of {len(view)} bytes"
            )
        root: dict[bytes, bytes | Bucket] = {}
        self._collect(meta.root, root, 0, b"", None)
        self.buckets = {key: value for key, value in root.items() if isinstance(value, Bucket)}
        if len(self.buckets) != len(root):
            raise _BrokenError(meta.root * meta.page_size, "a value outside of any bucket")
        if meta.free_list != NO_FREE_LIST:
            self._check_free_list(meta.free_list)

    def _page(self, id: int, kinds: int) -> tuple[int, int, int, memoryview]:
        """Return flags, count, offset and bytes, overflow included, of a page not visited yet."""
        size, high_water = self._meta.page_size, self._meta.high_water
        if not 2 <= id < high_water:
            raise _BrokenError(self._meta.offset, f"page {id} of {high_water}")
        offset = id * size
        own_id, flags, count, overflow = PAGE.unpack_from(self._view, offset)
        stop = id + 1 + overflow
        if own_id != id or flags not in (BRANCH, LEAF, FREE_LIST) or not flags & kinds:
            raise _BrokenError(offset, f"page {id} says it is page {own_id} of kind {flags:#x}")
        if stop > high_water:
            raise _BrokenError(offset, f"page {id} has {overflow} more pages, of {high_water}")
        ids = range(id, stop)
        if not self.used.isdisjoint(ids):
            raise _BrokenError(offset, f"page {id} is used twice")
        self.used.update(ids)
        return flags, count, offset, self._view[offset : stop * size]

    def _collect(
        self,
        id: int,
        items: "dict[bytes, bytes | Bucket]",
        depth: int,
        low: bytes,
        high: bytes | None,
    ) -> None:
        """Add what is in and below a page, whose keys are all from `low` to before `high`."""
        if depth > _DEPTH_MAX:
            raise _BrokenError(self._meta.offset, f"pages nested deeper than {_DEPTH_MAX}")
        flags, count, offset, page = self._page(id, BRANCH | LEAF)
        if flags == LEAF:
            self._add(_leaf(count, offset, page), offset, items, depth, low, high)
            return
        children = _branch(count, offset, page)
        bounds: list[bytes | None] = [key for key, _ in children]
        _check_order([key for key, _ in children], offset, low, high)
        for (_, child), (first, after) in zip(children, pairwise([*bounds, high]), strict=True):
            assert first is not None, "only the last bound may be open"
            self._collect(child, items, depth + 1, first, after)

    def _add(
        self,
        elements: Sequence[_Element],
        offset: int,
        items: "dict[bytes, bytes | Bucket]",
        depth: int,
        low: bytes = b"",
        high: bytes | None = None,
    ) -> None:
        _check_order([key for _, key, _ in elements], offset, low, high)
        for flags, key, value in elements:
            items[key] = self._bucket(value, offset, depth) if flags == IS_BUCKET else bytes(value)

    def _bucket(self, value: memoryview, offset: int, depth: int) -> Bucket:
        if len(value) < BUCKET_SIZE:
            raise _BrokenError(offset, f"a bucket of {len(value)} bytes")
        root, sequence = BUCKET.unpack_from(value)
        items: dict[bytes, bytes | Bucket] = {}
        if root:
            self._collect(root, items, depth + 1, b"", None)
            return Bucket(items, sequence)
        page = value[BUCKET_SIZE:]
        if len(page) < HEADER_SIZE:
            raise _BrokenError(offset, f"an inline bucket of {len(value)} bytes")
        id, flags, count, overflow = PAGE.unpack_from(page)
        if (id, flags, overflow) != (0, LEAF, 0):
            raise _BrokenError(offset, f"an inline bucket that is page {id} of kind {flags:#x}")
        elements = _leaf(count, offset, page)
        if any(flags for flags, _, _ in elements):
            raise _BrokenError(offset, "a bucket in an inline bucket")
        self._add(elements, offset, items, depth)
        return Bucket(items, sequence)

    def _check_free_list(self, id: int) -> None:
        _, count, offset, page = self._page(id, FREE_LIST)
        begin = HEADER_SIZE
        if count == COUNT_IN_BODY:
            (count,) = ID.unpack_from(page, begin)
            begin += ID.size
        if count > (len(page) - begin) // ID.size:
            raise _BrokenError(offset, f"a free list of {count} pages in {len(page)} bytes")
        free = [id for (id,) in ID.iter_unpack(page[begin : begin + count * ID.size])]
        if any(a >= b for a, b in pairwise([1, *free, self._meta.high_water])):
            raise _BrokenError(offset, "a free list out of order, or of pages that do not exist")
        if not self.used.isdisjoint(free):
            raise _BrokenError(offset, "a free list that names a page in use")


def _leaf(count: int, offset: int, page: memoryview) -> list[_Element]:
    left, found = _room_for_bodies(count, offset, page), []
    elements = LEAF_ELEMENT.iter_unpack(page[HEADER_SIZE : len(page) - left])
    for at, (flags, pos, key_size, value_size) in enumerate(elements):
        key = HEADER_SIZE + at * ELEMENT_SIZE + pos
        value, stop = key + key_size, key + key_size + value_size
        left -= key_size + value_size
        if left < 0 or stop > len(page) or flags > IS_BUCKET:
            raise _BrokenError(offset, f"element {at} is outside of its page, or has flags {flags}")
        found.append((flags, bytes(page[key:value]), page[value:stop]))
    return found


def _branch(count: int, offset: int, page: memoryview) -> list[tuple[bytes, int]]:
    """Return the first key of each child, and its page."""
    left, found = _room_for_bodies(count, offset, page), []
    elements = BRANCH_ELEMENT.iter_unpack(page[HEADER_SIZE : len(page) - left])
    for at, (pos, key_size, child) in enumerate(elements):
        key = HEADER_SIZE + at * ELEMENT_SIZE + pos
        left -= key_size
        if left < 0 or key + key_size > len(page):
            raise _BrokenError(offset, f"branch {at} is outside of its page")
        found.append((bytes(page[key : key + key_size]), child))
    return found


def _room_for_bodies(count: int, offset: int, page: memoryview) -> int:
    left = len(page) - HEADER_SIZE - count * ELEMENT_SIZE
    if left < 0:
        raise _BrokenError(offset, f"{count} elements in {len(page)} bytes")
    return left


def _check_order(keys: Sequence[bytes], offset: int, low: bytes, high: bytes | None) -> None:
    sorted_in = all(a < b for a, b in pairwise(keys)) and (not keys or b"" < keys[0] >= low)
    if not sorted_in or (keys and high is not None and keys[-1] >= high):
        raise _BrokenError(offset, "keys out of order")
