"""Simulators and contracts, shipped so that you can torture your own store on your own disk."""

from holdfast.testing.bucket_contract import BucketContract
from holdfast.testing.explorer import BrokenPromiseError, Explorer, Ledger
from holdfast.testing.log_contract import LogContract
from holdfast.testing.records_contract import RecordsContract
from holdfast.testing.sim_bucket import Call, Faults, SimBucket
from holdfast.testing.sim_disk import Fault, PowerLost, SimDisk
from holdfast.testing.sim_records import SimRecords

__all__ = [
    "BrokenPromiseError",
    "BucketContract",
    "Call",
    "Explorer",
    "Fault",
    "Faults",
    "Ledger",
    "LogContract",
    "PowerLost",
    "RecordsContract",
    "SimBucket",
    "SimDisk",
    "SimRecords",
]
