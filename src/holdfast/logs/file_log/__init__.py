"""The FileLog, zmq-raft's storage.  The page: docs/formats/rlog.md"""

from holdfast.formats.rlog_entry import CHECKPOINT, CONFIG, STATE, FileEntry
from holdfast.logs.file_log.guest import FileLogGuest
from holdfast.logs.file_log.log import FileLog
from holdfast.logs.file_log.state import RAFT_STATE, StateFile

__all__ = [
    "CHECKPOINT",
    "CONFIG",
    "RAFT_STATE",
    "STATE",
    "FileEntry",
    "FileLog",
    "FileLogGuest",
    "StateFile",
]
