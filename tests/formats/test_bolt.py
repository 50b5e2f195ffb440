import io
import json
import struct
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.formats import bolt
from holdfast.formats.bolt import Bucket, Image, pages
from holdfast.formats.flaw import Flaw

GOLDEN = Path(__file__).parents[1] / "golden/bolt"
keys = st.binary(min_size=1, max_size=12)
values = st.binary(max_size=40) | st.integers(0, 3000).map(lambda size: b"v" * size)
buckets_alone = st.builds(
    Bucket, st.dictionaries(keys, values, max_size=60), st.sampled_from([0, 1, 2**64 - 1])
)
buckets = st.recursive(
    buckets_alone,
    lambda inner: st.builds(Bucket, st.dictionaries(keys, values | inner, max_size=6)),
    max_leaves=5,
)
contents = st.dictionaries(keys, buckets, max_size=8)
page_sizes = st.sampled_from([512, 1024, 4096])
B = {b"b": Bucket({b"key": b"value"}, 3)}


def unpack(name: str) -> dict[str, bytes]:
    found = {}
    with tarfile.open(GOLDEN / name) as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            found[member.name] = file.read()
    return found


def bucket_of(found: dict[str, Any]) -> Bucket:
    items = {
        bytes.fromhex(key): bytes.fromhex(value) if isinstance(value, str) else bucket_of(value)
        for key, value in found["items"].items()
    }
    return Bucket(items, found["sequence"])


def read(data: bytes | bytearray) -> Image:
    image = bolt.decode(data)
    assert isinstance(image, Image), image
    return image


def flaw_of(data: bytes | bytearray) -> str:
    flaw = bolt.decode(data)
    assert isinstance(flaw, Flaw)
    return flaw.why


def apply(file: bytearray, change: bolt.Commit) -> None:
    """The writes in their order, the last one included."""
    file.extend(bytes(change.size - len(file)))
    for offset, data in [*change.pages, change.meta]:
        assert len(file[offset : offset + len(data)]) == len(data)
        file[offset : offset + len(data)] = data


def free_pages(data: bytes | bytearray) -> list[int]:
    metas = pages.find_metas(data)
    assert isinstance(metas, list)
    begin = metas[0].free_list * metas[0].page_size
    count = pages.PAGE.unpack_from(data, begin)[2]
    return list(struct.unpack_from(f"<{count}Q", data, begin + pages.HEADER_SIZE))


def assert_no_page_is_lost(data: bytes | bytearray) -> None:
    """What bbolt's Check looks for: below the high water mark a page is used, or else free."""
    image = read(data)
    assert sorted([*image.used, *free_pages(data)]) == list(range(2, image.high_water))


def reseal(data: bytearray, slot: int, page_size: int = 4096) -> None:
    """Give a meta page the checksum of what it says."""
    begin = slot * page_size + pages.HEADER_SIZE
    data[begin + 56 : begin + 64] = pages.ID.pack(pages._fnv1a(bytes(data[begin : begin + 56])))


# What others have written


def test_every_golden_meta_store_reads_as_its_manifest_says() -> None:
    files = unpack("wal-meta.tar.gz")
    manifest = json.loads(files.pop("contents.json"))
    assert len(manifest) == len(files) == 46
    for name, wanted in manifest.items():
        image = read(files[f"{name}.db"])
        stable = image.buckets[b"stable"].items
        assert stable == {k.encode(): bytes.fromhex(v) for k, v in wanted["stable"].items()}
        state = image.buckets[b"wal-meta"].items[b"m"]
        assert isinstance(state, bytes)
        assert json.loads(state) == wanted["state"]
        assert_no_page_is_lost(files[f"{name}.db"])


def test_a_golden_tree_reads_as_bbolt_reads_it() -> None:
    files = unpack("tree.tar.gz")
    report = json.loads(files["contents.json"])
    image = read(files["tree.db"])
    assert image.txid == report["txid"]
    assert image.buckets == {
        bytes.fromhex(name): bucket_of(found) for name, found in report["buckets"].items()
    }
    assert_no_page_is_lost(files["tree.db"])
    file = bytearray(files["tree.db"])
    change = bolt.commit(image, image.buckets)
    apply(file, change)
    assert read(file) == change.image


# What we write


@settings(max_examples=50)
@given(contents, page_sizes, st.integers(1, 2**64 - 1))
def test_files_round_trip(content: dict[bytes, Bucket], page_size: int, txid: int) -> None:
    data = bolt.encode(content, txid, page_size)
    image = read(data)
    assert (image.buckets, image.txid, image.page_size) == (content, txid, page_size)
    assert_no_page_is_lost(data)


@settings(max_examples=25)
@given(st.lists(contents, min_size=1, max_size=5), page_sizes, st.randoms(use_true_random=False))
def test_a_commit_is_all_or_nothing(
    history: list[dict[bytes, Bucket]], page_size: int, random: Random
) -> None:
    file = bytearray(bolt.encode({}, page_size=page_size))
    for content in history:
        before = read(file)
        change = bolt.commit(before, content)
        assert_writes_spare(change, before)
        torn = bytearray(file)
        apply(torn, replace(change, meta=(0, b"")))
        assert same_contents(read(torn), before)
        offset, meta = change.meta
        cut = random.randrange(len(meta))
        torn[offset : offset + len(meta)] = meta[:cut] + random.randbytes(len(meta) - cut)
        assert same_contents(read(torn), before)
        retried = bolt.commit(read(torn), content)  # a torn meta page does no harm
        apply(torn, retried)
        apply(file, change)
        assert read(file) == change.image
        assert read(file).buckets == read(torn).buckets == content
        assert_no_page_is_lost(file)
        assert_no_page_is_lost(torn)


def same_contents(one: Image, two: Image) -> bool:
    return (one.txid, one.buckets, one.used) == (two.txid, two.buckets, two.used)


def assert_writes_spare(change: bolt.Commit, before: Image) -> None:
    """No page that a sound meta page refers to is touched, nor that meta page itself."""
    size = before.page_size
    written = [
        id
        for offset, data in change.pages
        for id in range(offset // size, (offset + len(data)) // size)
    ]
    assert (before.used | {0, 1}).isdisjoint(written)
    assert change.meta[0] == (before.txid + 1) % 2 * size


def test_files_do_not_grow_without_bound() -> None:
    random, file = Random(1), bytearray(bolt.encode(B))
    image = read(file)
    for _ in range(3000):
        items = {b"m": b"x" * random.randrange(30_000)}
        image = bolt.commit(image, {**B, b"a": Bucket(items)}).image
    assert image.high_water < 2 + 3 * 3 * (30_000 // 4096 + 4)


def test_files_are_of_the_sizes_that_bbolt_gives_them() -> None:
    sizes = [len(bolt.encode({b"b": Bucket({b"k": bytes(size)})})) for size in (0, 20_000, 60_000)]
    assert sizes == [32768, 65536, 131072]
    assert len(bolt.encode({b"b": Bucket({b"k": bytes(17 * 2**20)})})) == 32 * 2**20


@pytest.mark.parametrize(("size", "pages_used"), [(1024, 2), (1025, 3)])
def test_a_bucket_is_inline_up_to_a_quarter_of_a_page(size: int, pages_used: int) -> None:
    bucket = Bucket({b"k": bytes(size - 16 - 16 - 1)})
    assert len(read(bolt.encode({b"b": bucket})).used) == pages_used


def test_many_keys_make_branches_and_large_values_overflow() -> None:
    many = Bucket({b"%06d" % i: b"v" for i in range(20_000)})
    large = Bucket({b"large": bytes(100_000)})
    data = bolt.encode({b"many": many, b"large": large})
    assert read(data).buckets == {b"many": many, b"large": large}
    kinds = {pages.PAGE.unpack_from(data, id * 4096)[1] for id in read(data).used}
    assert pages.BRANCH in kinds


def test_what_bbolt_would_refuse_is_refused() -> None:
    deep = Bucket({})
    for _ in range(40):
        deep = Bucket({b"in": deep})
    wrong: list[Mapping[bytes, Bucket]] = [
        {b"": Bucket({})},
        {b"b": Bucket({b"": b"x"})},
        {b"b": Bucket({b"k" * 32769: b"x"})},
        {b"b": deep},
    ]
    for content in wrong:
        with pytest.raises(ValueError, match=r"key takes 1 to 32768|nested deeper"):
            bolt.encode(content)
    with pytest.raises(ValueError, match="start at 1"):
        bolt.encode({}, txid=0)
    with pytest.raises(ValueError, match="invalid page_size"):
        bolt.encode({}, page_size=1000)


# Which transaction counts


@pytest.mark.parametrize("page_size", pages.PAGE_SIZES)
@pytest.mark.parametrize("txid", [6, 7])
def test_a_torn_newest_meta_page_falls_back(page_size: int, txid: int) -> None:
    file = bytearray(bolt.encode(B, txid, page_size))
    before = read(file)
    change = bolt.commit(before, {})
    apply(file, change)
    assert bolt.decode_newest(file[: 2**17]) == txid + 1
    for at in range(pages.HEADER_SIZE, pages.META_SIZE):
        torn = bytearray(file)
        torn[change.meta[0] + at] ^= 0x40
        assert same_contents(read(torn), before)
        assert bolt.decode_newest(torn) == txid
    offset, twin = change.twin  # once that is written, either of the two may rot
    file[offset : offset + len(twin)] = twin
    assert read(file) == change.image
    file[change.meta[0] + pages.HEADER_SIZE] ^= 1
    assert read(file).buckets == change.image.buckets


def test_without_a_valid_meta_page_a_file_is_a_flaw() -> None:
    data = bytearray(bolt.encode(B))
    data[20] ^= 1
    data[4096 + 20] ^= 1
    assert flaw_of(data) == "the meta page does not match its checksum"
    assert "magic is 0x0" in flaw_of(bytes(8192))
    assert "too short" in flaw_of(b"")
    assert isinstance(bolt.decode_newest(data), Flaw)


def test_a_meta_page_in_the_other_place_does_not_count() -> None:
    """Or the next transaction would be written over the newest."""
    data = bytearray(bolt.encode(B, txid=8))
    data[4096:8192] = data[:4096]
    assert read(data).txid == 8
    data[:4096] = bytes(4096)
    assert "magic" in flaw_of(data)


# Damage


@pytest.mark.parametrize(
    ("at", "value", "why"),
    [
        (16 + 4, "<I", "version 9"),
        (16 + 8, "<I", "pages of 9 bytes"),
        (16 + 16, "<Q", "page 9 of 4"),  # root
        (16 + 32, "<Q", "page 9 of 4"),  # free list
        (16 + 40, "<Q", "9 pages in a file of 32768"),  # high water mark
        (2 * 4096, "<Q", "page 2 says it is page 9"),
        (2 * 4096 + 8, "<H", "of kind 0x9"),
        (2 * 4096 + 10, "<H", "outside of its page"),  # count
        (2 * 4096 + 12, "<I", "has 9 more pages"),
        (2 * 4096 + 16, "<I", "has flags 9"),
        (2 * 4096 + 33, "<Q", "page 9 of 4"),  # the bucket's root
        (2 * 4096 + 33 + 16, "<Q", "inline bucket that is page 9"),
        (2 * 4096 + 33 + 16 + 8, "<H", "of kind 0x9"),
        (2 * 4096 + 33 + 16 + 10, "<H", "9 elements in"),
        (3 * 4096 + 8, "<H", "page 3 says"),
        (3 * 4096 + 10, "<H", "a free list out of order"),
    ],
)
def test_damage_is_a_flaw(at: int, value: str, why: str) -> None:
    data = bytearray(bolt.encode(B, txid=2))
    data[4096:8192] = bytes(4096)  # no second chance
    struct.pack_into(value, data, at, 9)
    reseal(data, 0)
    assert why in flaw_of(data)


def test_a_free_list_of_either_form_or_none() -> None:
    data = bytearray(bolt.encode(B, txid=2))
    free_list = 3 * 4096 + pages.HEADER_SIZE
    struct.pack_into("<H", data, 3 * 4096 + 10, 0xFFFF)
    assert read(data).buckets == B  # the count is in the body, and 0
    struct.pack_into("<QQ", data, free_list, 1, 2)
    assert flaw_of(data) == "a free list that names a page in use"
    struct.pack_into("<Q", data, free_list, 511)
    assert "a free list of 511 pages" in flaw_of(data)
    struct.pack_into("<Q", data, pages.HEADER_SIZE + 32, pages.NO_FREE_LIST)
    reseal(data, 0)
    assert read(data).buckets == B


def test_a_free_list_too_long_for_its_header() -> None:
    size = 512
    file = bytearray(bolt.encode({b"b": Bucket({b"k": bytes(70_000 * size)})}, page_size=size))
    for _ in range(3):  # until nothing refers to the pages of the large value
        apply(file, bolt.commit(read(file), {}))
    metas = pages.find_metas(file)
    assert isinstance(metas, list)
    count, real = struct.unpack_from("<10xH4xQ", file, metas[0].free_list * size)
    image = read(file)
    assert (count, real) == (0xFFFF, image.high_water - 2 - len(image.used))
    assert real > 69_000


def test_a_page_that_is_its_own_child_does_not_loop() -> None:
    data = bytearray(bolt.encode(B, txid=2))
    page = pages.PAGE.pack(2, pages.BRANCH, 1, 0) + pages.BRANCH_ELEMENT.pack(16, 1, 2) + b"b"
    data[8192 : 8192 + len(page)] = page
    assert flaw_of(data) == "page 2 is used twice"


def test_a_value_that_many_keys_share_is_not_multiplied() -> None:
    data = bytearray(bolt.encode({b"b": Bucket({b"%03d" % i: b"" for i in range(100)})}, txid=2))
    begin = next(id for id in range(2, 6) if pages.PAGE.unpack_from(data, id * 4096)[2] > 40) * 4096
    for i in range(20):
        struct.pack_into("<I", data, begin + pages.HEADER_SIZE + 16 * i + 12, 500)
    assert "outside of its page" in flaw_of(data)


def test_buckets_nested_without_end_are_a_flaw() -> None:
    depth = 500
    data = bytearray(bolt.encode({b"b": Bucket({b"k": bytes(depth * 4096)})}, txid=2))
    for id in range(2, depth):
        value = pages.BUCKET.pack(id + 1, 0)
        page = pages.PAGE.pack(id, pages.LEAF, 1, 0) + pages.LEAF_ELEMENT.pack(1, 16, 1, 16)
        data[id * 4096 : id * 4096 + 4096] = (page + b"b" + value).ljust(4096, b"\0")
    struct.pack_into("<Q", data, pages.HEADER_SIZE + 16, 2)
    reseal(data, 0)
    assert "nested deeper" in flaw_of(data)


@pytest.mark.parametrize("low_first", [True, False])
def test_keys_out_of_order_are_a_flaw(low_first: bool) -> None:
    data = bytearray(bolt.encode({b"b": Bucket({b"%04d" % i: bytes(60) for i in range(99)})}))
    at = data.index(b"0000" if low_first else b"0098")
    data[at : at + 4] = b"9999" if low_first else b"0001"
    assert flaw_of(data) == "keys out of order"


def test_a_hundred_thousand_mutants_are_only_ever_flaws() -> None:
    random, files = Random(13), unpack("wal-meta.tar.gz")
    names = ["a_empty.db"] * 5 + ["g_stable.db", "c_three_sealed_tail.db", "k_many_segments.db"]
    bases = [bytearray(files[name]) for name in names]
    small = bolt.encode({b"b": Bucket({b"%03d" % i: bytes(9) for i in range(25)})}, page_size=512)
    bases += [bytearray(small)]
    outcomes = {Image: 0, Flaw: 0}
    for _ in range(100_000):
        data = bases[int(random.random() * len(bases))]
        was = mutate(data, random)
        found = bolt.decode(data)
        outcomes[type(found)] += 1
        if isinstance(found, Image):
            assert held(found.buckets) <= len(data)
        for at, old in reversed(was):
            data[at : at + len(old)] = old
    assert min(outcomes.values()) > 10_000, outcomes


def mutate(data: bytearray, random: Random) -> list[tuple[int, bytes]]:
    """Change a few bytes where it hurts; return what was there."""
    size = int.from_bytes(data[24:28], "little")
    was = [(0, bytes(data[:96])), (size, bytes(data[size : size + 96]))]
    for _ in range(1 + int(random.random() * 3)):
        page = int(random.random() * 10)
        at = page * size + int(random.random() * random.choice((96, size)))
        new = random.choice((b"\0", b"\xff", b"\1", random.randbytes(1), random.randbytes(4)))
        was.append((at, bytes(data[at : at + len(new)])))
        data[at : at + len(new)] = new
    if random.random() < 0.7:
        for slot in (0, 1):  # sound, but for what it says
            reseal(data, slot, size)
    return was


def held(found: Mapping[bytes, Any]) -> int:
    """How many bytes of keys and values there are."""
    return sum(
        len(key) + (held(value.items) if isinstance(value, Bucket) else len(value))
        for key, value in found.items()
    )


@given(st.binary(max_size=400))
def test_garbage_is_only_ever_a_flaw(garbage: bytes) -> None:
    assert isinstance(bolt.decode(garbage), Flaw)
    assert isinstance(bolt.decode(memoryview(bytes(4096) + garbage)), Flaw)
    assert isinstance(bolt.decode(io.BytesIO(garbage).getbuffer()), Flaw)
