from collections.abc import Iterable

from holdfast.logs.mark import MARK
from holdfast.testing import LogContract
from holdfast.testing.raft_wal import RaftWalSubject


class TestRaftWal(RaftWalSubject, LogContract):
    """The whole contract, as every log passes it."""

    # It makes three times as many changes to the disk as Shanghai does, so there are as many more
    # points to crash at; fewer images of each are enough for as many in all.
    lives_count = 300
    images_per_point = 3
    payload_seeds = 1

    def bits_to_flip(self, name: str, content: bytes) -> Iterable[int]:
        """A sample.  Of the meta store, tests/logs/raft_wal/test_meta_store.py flips each."""
        return range(0, 8 * len(content), 397 if name in ("wal-meta.db", MARK) else 3)
