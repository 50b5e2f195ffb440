"""A key-value store on object storage: one writer, many readers, no server.  docs/kv.md"""

from holdfast.kv.bulk import BulkLoad, write_sorted
from holdfast.kv.compaction import Compactor
from holdfast.kv.gc import GarbageCollector, GcOptions
from holdfast.kv.maintenance import MaintenanceOptions
from holdfast.kv.options import KvOptions
from holdfast.kv.plans import CompactionOptions
from holdfast.kv.reader import KvReader
from holdfast.kv.snapshots import Snapshot
from holdfast.kv.tasks import merge_task
from holdfast.kv.writer import Kv
from holdfast.kv.writes import WriteHandle

__all__ = [
    "BulkLoad",
    "CompactionOptions",
    "Compactor",
    "GarbageCollector",
    "GcOptions",
    "Kv",
    "KvOptions",
    "KvReader",
    "MaintenanceOptions",
    "Snapshot",
    "WriteHandle",
    "merge_task",
    "write_sorted",
]
