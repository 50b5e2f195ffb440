"""Crashes of the three logs, judged by the bytes on the disk and not by our own readers alone.

At every image, before anything recovers it: each acknowledged entry is in the bytes, in order, with
a right checksum.  After recovery the files hold exactly what the log shows.
"""

import zlib
from collections.abc import Callable
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.logs import raw_bytes

from holdfast.errors import HoldfastError
from holdfast.formats import checksums, raft_wal, shanghai
from holdfast.logs.file_log import writer
from holdfast.logs.file_log.entries import encode_states
from holdfast.testing.file_log import FileLogSubject
from holdfast.testing.lives import BrokenPromiseError
from holdfast.testing.logs import Explorer, Ledger, Subject
from holdfast.testing.raft_wal import RaftWalSubject
from holdfast.testing.shanghai import ShanghaiSubject
from holdfast.testing.sim_disk import SimDisk

Decode = Callable[[raw_bytes.Files], list[bytes]]
LOGS: dict[str, tuple[Subject, Decode]] = {
    "shanghai": (ShanghaiSubject(), raw_bytes.shanghai),
    "raft-wal": (RaftWalSubject(), raw_bytes.raft_wal),
    "file-log": (FileLogSubject(), raw_bytes.file_log),
}
SEQUENCES = (
    ("batch", "append", "large", "batch"),
    ("large", "reopen", "batch", "append"),
    ("append", "batch", "batch", "reopen", "large"),
)


class RawExplorer(Explorer):
    """Looks at the bytes before and after each recovery."""

    def __init__(self, subject: Subject, decode: Decode, *, images_per_point: int = 4) -> None:
        super().__init__(subject, images_per_point=images_per_point)
        self._decode = decode
        self.judged = 0

    def _judge(self, disk: SimDisk, ledger: Ledger, random: Random, guests: float = 0.0) -> None:
        promised, files = ledger.promised, disk.files()
        if self._decode is raw_bytes.file_log:
            is_there = raw_bytes.file_log_has(files, promised)
        else:
            is_there = self._decode(files)[: len(promised)] == promised
        if not is_there:
            raise BrokenPromiseError(
                "lost", f"of {len(promised)} entries some are not in the bytes"
            )
        super()._judge(disk, ledger, random, guests)
        found = self._decode(disk.files())
        if found != ledger.promised:
            what = f"{len(found)} entries are in the bytes, {len(ledger.promised)} are shown"
            raise BrokenPromiseError("broken", what)
        self.judged += len(found)


def explore(format: str) -> RawExplorer:
    explorer = RawExplorer(*LOGS[format])
    for sequence in SEQUENCES:
        explorer.every_crash_point(sequence)
    return explorer


@pytest.mark.parametrize("format", LOGS)
def test_every_acknowledged_entry_is_in_the_bytes_after_every_crash(format: str) -> None:
    explorer = explore(format)
    assert explorer.images > 200
    assert explorer.judged > 500


def _other_checksum_in_shanghai(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shanghai, "crc32", lambda data: checksums.crc32c(bytes(data)))
    patch.setattr(shanghai, "mismatches", partial(checksums.mismatches, kind=checksums.CRC32C))


def _other_checksum_in_raft_wal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(raft_wal, "google_crc32c", SimpleNamespace(value=zlib.crc32))
    patch.setattr(raft_wal, "CRC32C", checksums.CRC32)


def _other_term_in_the_file_log(patch: pytest.MonkeyPatch) -> None:
    def encode(ids: Any, datas: Any, term: int) -> Any:
        return encode_states(ids, datas, term + 1)

    patch.setattr(writer, "encode_states", encode)


PLANTED: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "shanghai": _other_checksum_in_shanghai,
    "raft-wal": _other_checksum_in_raft_wal,
    "file-log": _other_term_in_the_file_log,
}


@pytest.mark.parametrize("format", LOGS)
def test_a_bug_that_writer_and_reader_share_is_caught(
    format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    PLANTED[format](monkeypatch)
    subject: Any = LOGS[format][0]
    Explorer(subject, images_per_point=2).every_crash_point(("append", "batch"))  # does not see it
    with pytest.raises((BrokenPromiseError, AssertionError, HoldfastError)):
        explore(format)
