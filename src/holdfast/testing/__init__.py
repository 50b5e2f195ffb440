"""Simulators and contracts, part of the package, to test your own store on your own disk."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.testing.bucket_contract import BucketContract
    from holdfast.testing.explorer import BrokenPromiseError
    from holdfast.testing.kv_simulation import Simulation
    from holdfast.testing.log_contract import LogContract
    from holdfast.testing.logs import Explorer, Ledger
    from holdfast.testing.mark_contract import MarkContract
    from holdfast.testing.owners.contract import OwnerContract
    from holdfast.testing.records_contract import RecordsContract
    from holdfast.testing.repair_contract import RepairContract
    from holdfast.testing.sim_bucket import Call, Faults, SimBucket
    from holdfast.testing.sim_disk import Fault, PowerLost, SimDisk
    from holdfast.testing.sim_records import SimRecords
    from holdfast.testing.store_contract import DiskStoreContract, StoreContract

__all__ = [
    "BrokenPromiseError",
    "BucketContract",
    "Call",
    "DiskStoreContract",
    "Explorer",
    "Fault",
    "Faults",
    "Ledger",
    "LogContract",
    "MarkContract",
    "OwnerContract",
    "PowerLost",
    "RecordsContract",
    "RepairContract",
    "SimBucket",
    "SimDisk",
    "SimRecords",
    "Simulation",
    "StoreContract",
]

# Imported when first used: the contracts need pytest, which `holdfast torture` does not, and a
# writer that is killed a thousand times should start quickly.
_HOMES = {
    "bucket_contract": ("BucketContract",),
    "explorer": ("BrokenPromiseError",),
    "kv_simulation": ("Simulation",),
    "log_contract": ("LogContract",),
    "logs": ("Explorer", "Ledger"),
    "mark_contract": ("MarkContract",),
    "owners.contract": ("OwnerContract",),
    "records_contract": ("RecordsContract",),
    "repair_contract": ("RepairContract",),
    "sim_bucket": ("Call", "Faults", "SimBucket"),
    "sim_disk": ("Fault", "PowerLost", "SimDisk"),
    "sim_records": ("SimRecords",),
    "store_contract": ("DiskStoreContract", "StoreContract"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"holdfast.testing.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
