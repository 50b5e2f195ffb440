"""The raft-wal log: a format that holdfast.logs.format.LogFormat describes.

The page: docs/formats/raft_wal.md
"""

from holdfast.formats.raft_entry import RaftEntry
from holdfast.formats.raft_wal import OPAQUE_CODEC, RAFT_CODEC
from holdfast.logs.raft_wal.belongings import open_with
from holdfast.logs.raft_wal.directory import is_raft_wal as owns
from holdfast.logs.raft_wal.meta_store import META_STORE
from holdfast.logs.raft_wal.reader import RaftWalReader, belongings, check_segment, scan_segment
from holdfast.logs.raft_wal.repair import apply_repair, plan_repair
from holdfast.logs.raft_wal.writer import RaftWal

name = "raft-wal"
locked_file = META_STORE
takes_empty = True
open_reader = RaftWalReader
open_writer = RaftWal

__all__ = [
    "OPAQUE_CODEC",
    "RAFT_CODEC",
    "RaftEntry",
    "RaftWal",
    "RaftWalReader",
    "apply_repair",
    "belongings",
    "check_segment",
    "locked_file",
    "name",
    "open_reader",
    "open_with",
    "open_writer",
    "owns",
    "plan_repair",
    "scan_segment",
    "takes_empty",
]
