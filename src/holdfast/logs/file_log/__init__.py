"""The FileLog, zmq-raft's storage: a format that holdfast.logs.format.LogFormat describes.

The page: docs/formats/rlog.md
"""

from holdfast.formats.rlog_entry import CHECKPOINT, CONFIG, STATE, FileEntry
from holdfast.logs.file_log.active import SyncMode
from holdfast.logs.file_log.directory import NAME
from holdfast.logs.file_log.directory import is_file_log as owns
from holdfast.logs.file_log.reader import FileLogReader, check_segment, scan_segment
from holdfast.logs.file_log.repair import apply_repair, plan_repair
from holdfast.logs.file_log.state import RAFT_STATE, StateFile
from holdfast.logs.file_log.writer import FileLog

name = NAME
locked_file = None
takes_empty = True
open_reader = FileLogReader
open_writer = FileLog

__all__ = [
    "CHECKPOINT",
    "CONFIG",
    "RAFT_STATE",
    "STATE",
    "FileEntry",
    "FileLog",
    "FileLogReader",
    "StateFile",
    "SyncMode",
    "apply_repair",
    "check_segment",
    "locked_file",
    "name",
    "open_reader",
    "open_writer",
    "owns",
    "plan_repair",
    "scan_segment",
    "takes_empty",
]
