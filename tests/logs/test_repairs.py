"""The repair of every log format: a plan is true to the entry."""

from holdfast.testing import RepairContract


class TestShanghai(RepairContract):
    format = "shanghai"


class TestRaftWal(RepairContract):
    format = "raft-wal"
    seeds = range(200)  # with a segment that has the bytes of another: 53, 56, 63


class TestFileLog(RepairContract):
    format = "file-log"
    seeds = range(150)
