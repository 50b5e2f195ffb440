"""A key-value store on object storage: one writer, many readers, no server.  docs/kv.md"""

from holdfast.kv.bulk import BulkLoad, write_sorted
from holdfast.kv.compaction import Compactor
from holdfast.kv.db import Db
from holdfast.kv.gc import GarbageCollector, GcOptions
from holdfast.kv.handles import WriteHandle
from holdfast.kv.maintenance import MaintenanceOptions
from holdfast.kv.options import Options
from holdfast.kv.plans import CompactionOptions
from holdfast.kv.reader import Reader
from holdfast.kv.snapshots import Snapshot
from holdfast.kv.tasks import merge_task

__all__ = [
    "BulkLoad",
    "CompactionOptions",
    "Compactor",
    "Db",
    "GarbageCollector",
    "GcOptions",
    "MaintenanceOptions",
    "Options",
    "Reader",
    "Snapshot",
    "WriteHandle",
    "merge_task",
    "write_sorted",
]
