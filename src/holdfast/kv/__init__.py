"""A key-value store on object storage: one writer, many readers, no server.  docs/kv.md"""

from holdfast.kv.db import Db
from holdfast.kv.handles import WriteHandle
from holdfast.kv.options import Options
from holdfast.kv.reader import Reader
from holdfast.kv.snapshots import Snapshot

__all__ = ["Db", "Options", "Reader", "Snapshot", "WriteHandle"]
