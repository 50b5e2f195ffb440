from collections.abc import Iterable

from holdfast.testing import LogContract
from holdfast.testing.raft_wal import RaftWalSubject


class TestRaftWal(RaftWalSubject, LogContract):
    """The whole contract, as every log passes it."""

    # A life of this log costs three times one of Shanghai's.  For the full figures: torture.
    sequence_max = 2
    lives_count = 1500
    images_per_point = 12
    images_min = 20_000

    def bits_to_flip(self, name: str, content: bytes) -> Iterable[int]:
        """A sample.  Of the meta store, tests/logs/raft_wal/test_meta_store.py flips each."""
        return range(0, 8 * len(content), 397 if name == "wal-meta.db" else 3)
