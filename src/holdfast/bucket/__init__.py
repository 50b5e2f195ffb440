"""Named objects that are created once: in a directory, in memory, or in an object store."""

from holdfast.bucket.bucket import Bucket, ObjectInfo, Retirable, Sweepable
from holdfast.bucket.directory import DirectoryBucket
from holdfast.bucket.memory import MemoryBucket
from holdfast.bucket.open import connect, open_bucket
from holdfast.bucket.probe import enforces_create
from holdfast.bucket.retry import Patience, RetryingBucket

__all__ = [
    "Bucket",
    "DirectoryBucket",
    "MemoryBucket",
    "ObjectInfo",
    "Patience",
    "Retirable",
    "RetryingBucket",
    "Sweepable",
    "connect",
    "enforces_create",
    "open_bucket",
]
