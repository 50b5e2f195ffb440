from collections.abc import Iterable

from holdfast.testing import LogContract
from holdfast.testing.raft_wal import RaftWalSubject

META_PAGES_SIZE = 2 * 4096


class TestRaftWal(RaftWalSubject, LogContract):
    """The whole contract, as every log passes it."""

    # A life of this log costs three times one of Shanghai's.  For the full figures: torture.
    sequence_max = 2
    lives_count = 1500
    images_per_point = 12
    images_min = 20_000

    def bits_to_flip(self, name: str, content: bytes) -> Iterable[int]:
        """A sample.  bbolt has checksums on its meta pages and on nothing else."""
        if name == "wal-meta.db":
            return range(0, 8 * META_PAGES_SIZE, 97)
        return range(0, 8 * len(content), 3)
