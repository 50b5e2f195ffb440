"""Every hexdump in docs/formats is what the code writes.  A page that lies fails the build."""

import re
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from isal.isal_zlib import crc32

from holdfast.bars.group import NewFile
from holdfast.formats import (
    bolt,
    manifest,
    mark,
    market_wal,
    marketstore_wal,
    raft_wal,
    rlog,
    rlog_commit,
    shanghai,
    side_file,
    snapshot_file,
    sst,
    state_file,
    token_file,
    year_file,
)
from holdfast.formats.raft_entry import RaftEntry, encode_entry
from holdfast.formats.rlog_entry import FileEntry, encode_entries

PAGES = Path(__file__).parents[2] / "docs" / "formats"
STORE = bolt.encode(
    {
        b"stable": bolt.Bucket({b"CurrentTerm": (7).to_bytes(8, "little")}),
        b"wal-meta": bolt.Bucket({b"m": b'{"NextSegmentID":0,"Segments":[]}'}),
    }
)
NEXT = bolt.commit(bolt.Image(1, 4096, {}, 32768, 4, frozenset([2, 3])), {})
RAFT_ENTRY = encode_entry(RaftEntry(1, 1, 0, bytes((31 + 7 * j) & 255 for j in range(50))))
RAFT_HEADER = raft_wal.encode_header(raft_wal.Header(1, 0, raft_wal.RAFT_CODEC))
OHLC = year_file.schema_of((("Open", 0), ("Close", 0)), False)
ROW = bytes.fromhex("0000c03f00002040")  # 1.5 and 2.5
MINUTE = market_wal.encode_place(market_wal.FIXED, "AAPL/1Min/OC/2021.bin", 2021, 1440)
YEAR = year_file.Header(2021, 60 * 10**9, OHLC)
REAL = marketstore_wal.IntervalSet(0, "AAPL/1Min/OC/2021.bin", 0, 37_040, 2, ROW, OHLC.columns)
SST = sst.encode_sst(
    sst.Rows.from_pairs([(b"apple", b"red", 41), (b"pear", None, 42)]),
    writer_epoch=3,
    unique_id=bytes(range(16)),
)
MANIFEST = manifest.Manifest.create(created_ms=0x18B2E5FA000, gc_min_age_ms=3_600_000).edit()
MANIFEST.message.writer_epoch = 1
MANIFEST.add_snapshot(b"S" * 16, manifest_id=1, expire_time_s=1_700_000_000)
MANIFEST.message.writer.CopyFrom(
    manifest.Writer(
        epoch=1,
        host="db-3",
        pid=4711,
        process="boot pid:[1] 99",
        program="serve.py",
        opened_ms=0x18B2E5FA000,
        lease=b"S" * 16,
    )
)
META = token_file.Meta("2024-01-02T03:04:05.678Z", "golden-host")
FILE_ENTRY = encode_entries([FileEntry(3, b"hello", 0, bytes.fromhex("65934e657a72676f6c000001"))])[
    0
]
ENDS = np.array([len(FILE_ENTRY)], np.uint32)
INDEX_FILE = rlog.encode_file(rlog.Header(1, 3), META)
NO_VOTE = state_file.encode_record({"votedFor": None})
MARK = mark.Mark(
    "shanghai",
    files=2,
    list_crc=0x0A0B0C0D,
    first=mark.MarkedFile("segment_00001.wal", bytes(range(16))),
    last=mark.MarkedFile("segment_00002.wal", bytes(range(16, 32))),
    base_index=5,
    size=97,
    last_index=6,
    tail_crc=0x583EB340,
    counter=9,
)
EXAMPLES = {
    "market-wal": market_wal.encode_status(market_wal.Status(1, 1, 4711))
    + market_wal.encode_write(
        1465405207042113300,
        NewFile("AAPL/1Min/OC", 2021, OHLC).encode(1440)
        + market_wal.encode_set(MINUTE, [2, 3], ROW + ROW, 8),
        2,
    ).messages
    + market_wal.encode_info(1465405207042113300, 1, 2),
    "market-wal-program": marketstore_wal.encode_interval(REAL),
    "year-file-header": year_file.encode_header(YEAR)[256:376],
    "year-file-record": bytes(
        year_file.encode_records(np.array([2]), np.frombuffer(ROW, OHLC.row), OHLC)
    ),
    "year-file-payload": year_file.encode_payload(
        ROW + b"\0\0\0\x40" + ROW + b"\0\0\0\x80", compress=True
    ),
    "token-chunk": token_file.encode_chunk(b"FORM", b"seven b"),
    "rlog-one-entry": INDEX_FILE[:24] + rlog.encode_slots(ENDS) + INDEX_FILE[28:] + FILE_ENTRY,
    "rlog-record": rlog_commit.encode_commit(0, 0, crc32(FILE_ENTRY), ENDS),
    "snapshot": snapshot_file.encode_head(20, 2, 5, META) + b"state",
    "state": state_file.encode_record({"currentTerm": 2**31, "votedFor": "id1"}) + NO_VOTE,
    "state-redo": state_file.encode_redo(state_file.Redo(0, 0, NO_VOTE)),
    "side-file": side_file.encode_side_file(
        "replicas/north.json", {"acknowledged": 7, "updated_ms": 1794865474184}
    ),
    "sst-example": SST,
    "manifest-example": manifest.encode_manifest(MANIFEST.freeze(), bytes(range(16))),
    "raft-wal-first-batch": raft_wal.encode_batch(
        [RAFT_ENTRY], offset=0, header=RAFT_HEADER, size_limit=65536
    ).data,
    "raft-wal-seal": raft_wal.encode_batch([], offset=208, earlier=[32, 120], size_limit=None).data,
    "mark-slot": bytes(mark.encode(MARK)),
    "bolt-meta": STORE[4096 : 4096 + 80],
    "bolt-leaf": STORE[8192 : 8192 + 211],
    "bolt-free-list": NEXT.pages[1][1][:32],
    "shanghai-example": shanghai.encode_header(
        shanghai.Header(UUID("f47ac572-e34d-4ab3-9c8e-3f2a1b6fc84e"), 0x18B2E5FA000, 1)
    )
    + shanghai.encode_entries([b"Hello, Shanghai!"])[0],
}


def hexdumps() -> dict[str, bytes]:
    found = {}
    for page in PAGES.glob("*.md"):
        for name, body in re.findall(r"```hexdump (\S+)\n(.*?)```", page.read_text(), re.DOTALL):
            rows = [line[10:58] for line in body.splitlines()]
            found[name] = bytes.fromhex("".join(rows))
    return found


@pytest.mark.parametrize("name", EXAMPLES)
def test_hexdump_is_what_the_code_writes(name: str) -> None:
    assert hexdumps()[name] == EXAMPLES[name]


def test_no_hexdump_is_unchecked() -> None:
    assert hexdumps().keys() == EXAMPLES.keys()


def test_every_page_has_a_hexdump() -> None:
    for page in PAGES.glob("*.md"):
        assert "```hexdump " in page.read_text(), page
