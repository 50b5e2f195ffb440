"""Directories of the real library: read alike, written alike, judged as well or better."""

import hashlib
import json
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.logs.raft_wal.conftest import Copy, entry, golden_names, pattern

from holdfast.disk import OsDisk
from holdfast.errors import CorruptError, HoldfastError, OutOfRangeError
from holdfast.formats.raft_entry import RaftEntry, Time, encode_time
from holdfast.logs.raft_wal import RAFT_CODEC, RaftWal, RaftWalReader
from holdfast.logs.raft_wal.meta_store import MetaStore

Manifest = Callable[[str], dict[str, Any]]

# Where the original serves, drops or deletes what it should not: first and last index, and which
# entries cannot be read; or None where opening is refused or the log is read-only.
SAFER: dict[str, tuple[int, int, set[int]]] = {
    "i17_flip_in_earlier_batch": (1, 20, {1, 2, 3, 4}),
    "i18_sealed_payload_flip": (1, 45, {1, 2, 3}),
    "i21_sealed_frame_type": (1, 45, {1, 2, 3}),
    "i21b_sealed_frame_zeroed": (1, 45, {1, 2, 3}),
    "i26_minindex_beyond_recovered": (18, 16, set()),
}
READ_ONLY = {"i17_flip_in_earlier_batch", "i26_minindex_beyond_recovered"}
NAMES = golden_names()


def is_sound(name: str) -> bool:
    return not name.startswith("i") or name.startswith("i0_") or name[:3] in ("i0b", "i0c")


def facts(found: RaftEntry) -> dict[str, Any]:
    return {
        "index": found.index,
        "term": found.term,
        "type": found.type,
        "len": len(found.data),
        "sha256": hashlib.sha256(found.data).hexdigest(),
        "ext": found.extensions.hex(),
        "appended_at_bin": found.appended_at.hex(),
    }


def wanted(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    keys = facts(RaftEntry(1)).keys()
    return [{key: known[key] for key in keys} for known in manifest["entries"]]


def files(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in path.iterdir() if p.suffix == ".wal"}


@pytest.mark.parametrize("name", [n for n in NAMES if is_sound(n)])
def test_a_valid_directory_is_read_as_the_original_reads_it(
    name: str, golden: Path, manifest: Manifest
) -> None:
    known = manifest(name)
    with RaftWalReader(OsDisk(golden / name)) as guest:
        assert guest.damage == ()
        indexes = range(guest.first_index, guest.last_index + 1)
        assert [facts(guest.get_log(index)) for index in indexes] == wanted(known)
        if indexes:
            assert (guest.first_index, guest.last_index) == (
                known["first_index"],
                known["last_index"],
            )
        assert {k.decode(): v.hex() for k, v in guest.stable.items()} == known["stable"]
        assert [guest.check(segment.name) for segment in guest.segments()] == [None] * len(
            guest.segments()
        )
        scanned = [row for batch in guest.scan() for row in batch.to_pylist()]
        assert [(row["index"], row["payload"]) for row in scanned] == [
            (index, guest.read(index)) for index in indexes
        ]


@pytest.mark.parametrize("name", [n for n in NAMES if is_sound(n)])
def test_a_log_of_the_original_can_be_appended_to(
    name: str, copy_of: Copy, manifest: Manifest
) -> None:
    known, path = manifest(name), copy_of(name)
    before = files(path)
    with RaftWal(
        OsDisk(path), segment_size_max=known["segment_size"] or 2**26, segment_fill_ms=None
    ) as wal:
        assert wal.recovered == ()
        assert files(path) == before
        wal.store_logs([entry(wal.raft_last_index + 1, 50)])
        assert wal.last_index == known["append_one_after_reopen"]["last_index"]
        last = wal.last_index
    with RaftWalReader(OsDisk(path)) as guest:
        assert guest.get_log(last) == entry(last, 50)


def time_of(text: str) -> bytes:
    if not text or text == "0001-01-01T00:00:00Z":
        return encode_time(None)
    match = re.fullmatch(r"(.{19})(?:\.(\d+))?(Z|[+-].*)", text)
    assert match
    moment = datetime.fromisoformat(match[1] + match[3].replace("Z", "+00:00"))
    offset = moment.utcoffset()
    assert offset is not None
    unix_ns = int(moment.timestamp()) * 10**9 + int((match[2] or "0").ljust(9, "0"))
    return encode_time(Time(unix_ns, None if match[3] == "Z" else int(offset.total_seconds())))


class Script:
    """Does the operations that the driver of the original did."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.wal: RaftWal

    def open(self, seg: int) -> None:
        self.wal = RaftWal(
            OsDisk(self._path),
            codec=RAFT_CODEC,
            segment_size_max=seg or 64 * 2**20,
            segment_fill_ms=None,
        )

    def close(self, nowait: bool) -> None:
        self.wal.close()

    def fill(
        self, count: int, size: int, batch: int, start: int | None = None, term: int = 1
    ) -> None:
        first = start or self.wal.last_index + 1
        for begin in range(first, first + count, batch):
            stop = min(begin + batch, first + count)
            self.wal.store_logs([entry(index, size, term) for index in range(begin, stop)])

    def append(self, entries: list[dict[str, Any]]) -> None:
        self.wal.store_logs(
            [
                RaftEntry(
                    e["index"],
                    e.get("term", 0),
                    e.get("type", 0),
                    pattern(e["index"], e["size"])[: e["size"]],
                    bytes.fromhex(e.get("ext", "")),
                    time_of(e.get("at", "")),
                )
                for e in entries
            ]
        )

    def delete(self, min: int, max: int) -> None:
        self.wal.delete_range(min, max)

    def set(self, key: str, value: str | None) -> None:
        self.wal.set(key.encode(), None if value is None else bytes.fromhex(value))

    def setu64(self, key: str, u64: int) -> None:
        self.wal.set_uint64(key.encode(), u64)

    def get(self, key: str) -> None:
        self.wal.get(key.encode())

    def getu64(self, key: str) -> None:
        self.wal.get_uint64(key.encode())

    def getlog(self, index: int) -> None:
        if self.wal.first_index <= index:
            self.wal.get_log(index)
        else:  # the original still answers; here what is truncated is gone
            with pytest.raises(OutOfRangeError):
                self.wal.get_log(index)

    def first(self) -> None:
        assert self.wal.raft_first_index <= self.wal.raft_last_index

    last = first


@pytest.mark.parametrize("name", [n for n in NAMES if is_sound(n)])
def test_the_same_operations_write_the_same_bytes(
    name: str, golden: Path, tmp_path: Path, manifest: Manifest
) -> None:
    script = Script(tmp_path)
    for line in (golden / f"{name}.ops.jsonl").read_text().splitlines():
        operation = json.loads(line)
        getattr(script, operation.pop("op"))(**operation)
    assert files(tmp_path) == files(golden / name)
    state = MetaStore(OsDisk(tmp_path), read_only=True).load()
    assert state is not None
    known = manifest(name)["meta_after_reopen"][0]
    assert state.next_segment_id == known["NextSegmentID"]
    ours = [
        (s.id, s.base_index, s.min_index, s.max_index, s.codec, s.index_start, s.size_limit)
        for s in state.segments
    ]
    fields = ("ID", "BaseIndex", "MinIndex", "MaxIndex", "Codec", "IndexStart", "SizeLimit")
    assert ours == [tuple(s[field] for field in fields) for s in known["Segments"]]


@pytest.mark.parametrize("name", [n for n in NAMES if not is_sound(n)])
def test_a_damaged_directory_is_judged_as_well_or_better(
    name: str, copy_of: Copy, manifest: Manifest
) -> None:
    known, path = manifest(name), copy_of(name)
    before = files(path)
    if known["open_error"]:
        with pytest.raises(HoldfastError), RaftWal(OsDisk(path)) as wal:
            wal.store_logs([entry(wal.last_index + 1, 50)])
        assert files(path) == before, "nothing is deleted or changed on a guess"
        return
    first, last, unreadable = SAFER.get(name, (known["first_index"], known["last_index"], set()))
    with RaftWal(OsDisk(path)) as wal:
        assert (wal.raft_first_index or first, wal.last_index) == (first, last)
        for one in wanted(known):
            if one["index"] in unreadable:
                with pytest.raises(CorruptError):
                    wal.get_log(one["index"])
            else:
                assert facts(wal.get_log(one["index"])) == one
        if name in READ_ONLY:
            with pytest.raises(CorruptError):
                wal.store_logs([entry(wal.last_index + 1, 50)])
            return
        wal.store_logs([entry(wal.raft_last_index + 1, 50)])
        assert wal.last_index == known["append_one_after_reopen"]["last_index"]
    with RaftWal(OsDisk(path)) as wal:
        assert wal.recovered == ()
        assert wal.get_log(wal.last_index) == entry(wal.last_index, 50)
