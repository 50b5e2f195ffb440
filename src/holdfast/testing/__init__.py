"""Simulators and contracts, shipped so that you can torture your own store on your own disk."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.testing.bucket_contract import BucketContract
    from holdfast.testing.explorer import BrokenPromiseError
    from holdfast.testing.kv_simulation import Simulation
    from holdfast.testing.log_contract import LogContract
    from holdfast.testing.logs import Explorer, Ledger
    from holdfast.testing.owners.contract import OwnerContract
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
    "OwnerContract",
    "PowerLost",
    "RecordsContract",
    "SimBucket",
    "SimDisk",
    "SimRecords",
    "Simulation",
]

# Loaded when first wanted: the contracts need pytest, which `holdfast torture` does not, and a
# writer that is killed a thousand times should start quickly.
_HOMES = {
    "BrokenPromiseError": "explorer",
    "BucketContract": "bucket_contract",
    "Call": "sim_bucket",
    "Explorer": "logs",
    "Fault": "sim_disk",
    "Faults": "sim_bucket",
    "Ledger": "logs",
    "LogContract": "log_contract",
    "OwnerContract": "owners.contract",
    "PowerLost": "sim_disk",
    "RecordsContract": "records_contract",
    "SimBucket": "sim_bucket",
    "SimDisk": "sim_disk",
    "SimRecords": "sim_records",
    "Simulation": "kv_simulation",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"holdfast.testing.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
