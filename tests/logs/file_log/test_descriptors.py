"""A log may have more files than a process may open."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.disk import OsDisk
from holdfast.logs.file_log import FileLog

FILES, LIMIT = 80, 40

PROGRAM = """
import os, resource, sys
import pyarrow, numpy  # before the limit
from holdfast.disk import OsDisk
from holdfast.logs.file_log import FileLog, FileLogReader
from holdfast.logs.file_log.repair import plan_repair
from holdfast.logs.file_log.view import Segment
from holdfast.logs.retention import Retention
from holdfast.logs.verify import verify_log

path, leaks = sys.argv[1], len(sys.argv) > 2
if leaks:
    Segment.unload = lambda self: None
disk = OsDisk(path)
verify_log(disk)
resource.setrlimit(resource.RLIMIT_NOFILE, (%d, %d))
with FileLog(disk, capacity=2) as log:
    last = log.last_index
    assert log.append_request(b"r" * 12, b"data", term=1) == last + 1
    assert log.append_request(b"r" * 12, b"data", term=1) == last + 1
    assert sum(batch.num_rows for batch in log.scan()) == last + 1
    assert all(log.read(index) for index in range(1, last + 1))
    assert log.check_whole() == []
    log.create_snapshot(50, b"")
    log.trim(Retention(before=51))
    log.truncate_tail(last - 5)
    assert log.find_request(b"r" * 12) is None
    log.append([b"x"] * 20)
    with FileLogReader(disk) as guest:
        assert guest.check_whole() == []
        assert sum(batch.num_rows for batch in guest.scan()) == log.last_index - 50
        assert all(guest.read(index) for index in range(51, log.last_index + 1))
        for batch in guest.scan():
            guest.decode_columns(batch)
    assert verify_log(disk).verdict == "clean"
assert plan_repair(disk).damage == ()
print("done", len(os.listdir("/proc/self/fd")))
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log")
    with FileLog(OsDisk(path), capacity=2, sync_mode="original") as log:
        log.append([b"%d" % number for number in range(2 * FILES)])
        assert len(log.segments()) >= FILES
    return path


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = PROGRAM % (LIMIT, LIMIT)
    command = [sys.executable, "-c", program, str(path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)


def test_owner_and_guest_need_few_descriptors_for_many_files(path: Path) -> None:
    done = run(path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[1]) < LIMIT


def test_files_that_stay_open_are_noticed(path: Path) -> None:
    """Without this, the test before would prove nothing."""
    done = run(path, "leaks")
    assert done.returncode == 1
    assert "Too many open files" in done.stderr
