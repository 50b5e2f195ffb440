"""Create-if-absent for every store: its own where it has one, else two-phase writes."""

from holdfast.kv.cas.open import open_and_recover, open_bucket, open_records
from holdfast.kv.cas.records import Record, Records, SweptError
from holdfast.kv.cas.two_phase import TwoPhaseBucket

__all__ = [
    "Record",
    "Records",
    "SweptError",
    "TwoPhaseBucket",
    "open_and_recover",
    "open_bucket",
    "open_records",
]
