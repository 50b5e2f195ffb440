"""The raft-wal log.  The page: docs/formats/raft_wal.md"""

from holdfast.formats.raft_entry import RaftEntry
from holdfast.formats.raft_wal import OPAQUE_CODEC, RAFT_CODEC
from holdfast.logs.raft_wal.guest import RaftWalGuest
from holdfast.logs.raft_wal.log import RaftWal

__all__ = ["OPAQUE_CODEC", "RAFT_CODEC", "RaftEntry", "RaftWal", "RaftWalGuest"]
