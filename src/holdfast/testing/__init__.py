"""Simulators and contracts, shipped so that you can torture your own store on your own disk."""

from holdfast.testing.explorer import BrokenPromiseError, Explorer, Ledger
from holdfast.testing.log_contract import LogContract
from holdfast.testing.sim_disk import Fault, PowerLost, SimDisk

__all__ = [
    "BrokenPromiseError",
    "Explorer",
    "Fault",
    "Ledger",
    "LogContract",
    "PowerLost",
    "SimDisk",
]
