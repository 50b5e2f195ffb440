"""Create-if-absent for every object store: its own if it has one, else two-phase writes."""

from holdfast.kv.cas.open import open_bucket, open_records, open_two_phase
from holdfast.kv.cas.records import Record, Records, SweptError
from holdfast.kv.cas.two_phase import TwoPhaseBucket

__all__ = [
    "Record",
    "Records",
    "SweptError",
    "TwoPhaseBucket",
    "open_bucket",
    "open_records",
    "open_two_phase",
]
