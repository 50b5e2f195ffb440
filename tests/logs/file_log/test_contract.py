from collections.abc import Iterable
from pathlib import Path

from holdfast.testing import LogContract
from holdfast.testing.file_log import FileLogSubject


class TestFileLog(FileLogSubject, LogContract):
    """The whole contract, as every log passes it."""

    # It makes more changes to the disk than Shanghai does, so there are more points to crash at.
    lives_count = 250
    images_per_point = 10
    payload_seeds = 1

    def bits_to_flip(self, name: str, content: bytes) -> Iterable[int]:
        """Those that something covers: heads.  The format has no checksums."""
        if not name.endswith(".rlog"):
            return range(8 * 12) if name == "snap" else ()
        marker = content.index(b"ITMZ")
        return [*range(8 * 24), *range(8 * marker, 8 * (marker + 8))]

    def test_many_threads_append_and_one_sync_serves_many(self, tmp_path: Path) -> None:
        self.capacity, self.segment_size_max = 1024, 2**20
        super().test_many_threads_append_and_one_sync_serves_many(tmp_path)
