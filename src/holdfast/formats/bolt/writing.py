"""Write a bbolt file: a whole one, or one more transaction.  The page: docs/formats/bolt.md

A transaction writes all of its buckets to pages that the previous one does not refer to.  When they
are durable, one meta page makes them the contents.  After a crash at any point before that, the
file holds the previous transaction.  Then the other meta page becomes a copy, so that either may be
damaged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from holdfast.formats.bolt.pages import (
    BRANCH,
    BRANCH_ELEMENT,
    BUCKET,
    COUNT_IN_BODY,
    ELEMENT_SIZE,
    FREE_LIST,
    HEADER_SIZE,
    ID,
    IS_BUCKET,
    KEY_SIZE_MAX,
    LEAF,
    LEAF_ELEMENT,
    PAGE,
    PAGE_SIZES,
    VALUE_SIZE_MAX,
    Bucket,
    Image,
    Meta,
    encode_meta,
)

_SIZE_MIN = 32 * 1024
_DOUBLED_MAX = 16 * 2**20  # files grow by doubling up to here, then by as much
_KEYS_PER_PAGE_MIN = 2
_NESTED_MAX = 32
_FIRST_PAGE = 2  # after the meta pages

Element = tuple[int, bytes, bytes]  # flags, key, value
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction as writes: make the file `size` long, write `pages`, sync, `meta`, sync;
    then `twin`, which the next sync may find."""

    size: int
    pages: list[tuple[int, bytes]]  # offset and bytes
    meta: tuple[int, bytes]
    twin: tuple[int, bytes]
    image: Image  # what the file holds then


def encode(buckets: Mapping[bytes, Bucket], txid: int = 1, page_size: int = 4096) -> bytes:
    """Encode a whole file.  Both meta pages refer to these buckets: nothing was before them."""
    if page_size not in PAGE_SIZES or not 1 <= txid < 2**64:
        raise ValueError(
            f"invalid page_size or txid; pages have {PAGE_SIZES} bytes, transactions start at 1"
        )
    plan = _Plan(page_size, _FIRST_PAGE, frozenset())
    meta = plan.lay_out(buckets, txid)
    metas = [(m.offset, encode_meta(m)) for m in _twins(meta)]
    file = bytearray(_file_size(0, meta.high_water * page_size))
    for offset, data in plan.writes() + metas:
        file[offset : offset + len(data)] = data
    return bytes(file)


def commit(image: Image, buckets: Mapping[bytes, Bucket]) -> Commit:
    """Encode the next transaction after `image`, which replaces all buckets by these."""
    plan = _Plan(image.page_size, image.high_water, image.used)
    meta = plan.lay_out(buckets, image.txid + 1)
    size = _file_size(image.size, meta.high_water * meta.page_size)
    result = Image(
        meta.txid,
        meta.page_size,
        dict(buckets),
        size,
        meta.high_water,
        frozenset(plan.used),
    )
    first, second = [(m.offset, encode_meta(m)) for m in _twins(meta)]
    return Commit(size, plan.writes(), first, second, result)


def _twins(meta: Meta) -> tuple[Meta, Meta]:
    """Return the meta page, and one in the other place that refers to the same contents."""
    return meta, replace(meta, txid=meta.txid - 1)


class _Plan:
    """Where the pages of one transaction go: none of them to a page in `taken`."""

    def __init__(self, page_size: int, high_water: int, taken: frozenset[int]) -> None:
        self._page_size, self._high_water = page_size, high_water
        self._free = _runs(sorted(set(range(_FIRST_PAGE, high_water)) - taken))
        self._pages: dict[int, bytes] = {}
        self.used: set[int] = set()

    def lay_out(self, buckets: Mapping[bytes, Bucket], txid: int) -> Meta:
        root = self._tree([(IS_BUCKET, key, self._bucket(buckets[key])) for key in sorted(buckets)])
        free_list = self._free_list()
        return Meta(self._page_size, root, free_list, self._high_water, txid)

    def writes(self) -> list[tuple[int, bytes]]:
        return [(id * self._page_size, self._pages[id]) for id in sorted(self._pages)]

    def _bucket(self, bucket: Bucket, depth: int = 1) -> bytes:
        """Return the value of a bucket: all of it if it is small, else its root page."""
        if depth > _NESTED_MAX:
            raise ValueError(f"buckets nested deeper than {_NESTED_MAX}")
        elements: list[Element] = []
        for key in sorted(bucket.items):
            value = bucket.items[key]
            if isinstance(value, Bucket):
                elements.append((IS_BUCKET, key, self._bucket(value, depth + 1)))
            else:
                elements.append((0, key, value))
        page = _leaf(elements)
        small = HEADER_SIZE + len(page) <= self._page_size // 4
        if small and not any(flags for flags, _, _ in elements):
            header = BUCKET.pack(0, bucket.sequence) + PAGE.pack(0, LEAF, len(elements), 0)
            return header + page
        return BUCKET.pack(self._tree(elements), bucket.sequence)

    def _tree(self, elements: Sequence[Element]) -> int:
        """Add leaf pages, and branch pages above them until one is left: the root."""
        level = [
            (group[0][1] if group else b"", self._put(LEAF, len(group), _leaf(group)))
            for group in self._groups(elements, [len(k) + len(v) for _, k, v in elements])
        ]
        while len(level) > 1:
            level = [
                (group[0][0], self._put(BRANCH, len(group), _branch(group)))
                for group in self._groups(level, [len(key) for key, _ in level])
            ]
        return level[0][1]

    def _groups(self, elements: Sequence[_T], body_sizes: Sequence[int]) -> list[Sequence[_T]]:
        """Split the keys at half a page if they do not fit one page, with a few keys on each, as
        bbolt does.
        """
        groups, begin = [], 0
        room = self._page_size - HEADER_SIZE
        sizes = [ELEMENT_SIZE + size for size in body_sizes]
        left = sum(sizes)
        while left > room and len(elements) - begin > 2 * _KEYS_PER_PAGE_MIN:
            stop = begin + _KEYS_PER_PAGE_MIN
            taken = sum(sizes[begin:stop])
            last = len(elements) - _KEYS_PER_PAGE_MIN
            while stop < last and taken + sizes[stop] <= self._page_size // 2 - HEADER_SIZE:
                taken += sizes[stop]
                stop += 1
            groups.append(elements[begin:stop])
            begin, left = stop, left - taken
        return [*groups, elements[begin:]]

    def _free_list(self) -> int:
        """Return the pages below the high water mark that this transaction, with this list, does
        not use.
        """
        count_max = self._high_water - _FIRST_PAGE - len(self.used)
        id = self._take(self._pages_for((1 + count_max) * ID.size))
        free = sorted(set(range(_FIRST_PAGE, self._high_water)) - self.used)
        count, ids = len(free), free
        if count >= COUNT_IN_BODY:
            count, ids = COUNT_IN_BODY, [count, *free]
        body = np.array(ids, "<u8").tobytes()
        self._fill(id, FREE_LIST, count, body, (1 + count_max) * ID.size)
        return id

    def _put(self, flags: int, count: int, body: bytes) -> int:
        id = self._take(self._pages_for(len(body)))
        self._fill(id, flags, count, body, len(body))
        return id

    def _fill(self, id: int, flags: int, count: int, body: bytes, body_size: int) -> None:
        pages = self._pages_for(body_size)
        page = PAGE.pack(id, flags, count, pages - 1) + body
        self._pages[id] = page.ljust(pages * self._page_size, b"\0")

    def _pages_for(self, body_size: int) -> int:
        return -(-(HEADER_SIZE + body_size) // self._page_size)

    def _take(self, count: int) -> int:
        """Return the first free run of so many pages, or new pages."""
        for at, (first, length) in enumerate(self._free):
            if length >= count:
                self._free[at] = first + count, length - count
                break
        else:
            first, self._high_water = self._high_water, self._high_water + count
        self.used.update(range(first, first + count))
        return first


def _runs(ids: list[int]) -> list[tuple[int, int]]:
    """Return the first page and the length of each run of pages.  There are few of them."""
    places = np.array(ids, np.int64)
    begins = np.flatnonzero(np.diff(places, prepend=-1) != 1)
    lengths = np.diff(begins, append=len(places))
    return list(zip(places[begins].tolist(), lengths.tolist(), strict=True))


def _leaf(elements: Sequence[Element]) -> bytes:
    """Encode the body of a leaf page.  A body is `pos` bytes after the start of its element."""
    heads, bodies = [], []
    pos = ELEMENT_SIZE * len(elements)
    for flags, key, value in elements:
        if not 0 < len(key) <= KEY_SIZE_MAX or len(value) > VALUE_SIZE_MAX:
            raise ValueError(
                f"a key takes 1 to {KEY_SIZE_MAX} bytes, a value at most {VALUE_SIZE_MAX}"
            )
        heads.append(LEAF_ELEMENT.pack(flags, pos, len(key), len(value)))
        bodies += [key, value]
        pos += len(key) + len(value) - ELEMENT_SIZE
    return b"".join(heads + bodies)


def _branch(children: Sequence[tuple[bytes, int]]) -> bytes:
    heads, pos = [], ELEMENT_SIZE * len(children)
    for key, child in children:
        heads.append(BRANCH_ELEMENT.pack(pos, len(key), child))
        pos += len(key) - ELEMENT_SIZE
    return b"".join(heads + [key for key, _ in children])


def _file_size(size: int, size_min: int) -> int:
    """Return the size that bbolt gives a file: it grows seldom, so few transactions change it."""
    if size_min <= size:
        return size
    if size_min <= _DOUBLED_MAX:
        return max(_SIZE_MIN, 1 << (size_min - 1).bit_length())
    return -(-size_min // _DOUBLED_MAX) * _DOUBLED_MAX
