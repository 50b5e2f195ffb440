"""Objects by name, made once: in a directory, in memory, or in an object store."""

from holdfast.bucket.bucket import Bucket, ObjectInfo, Retirable, Sweepable
from holdfast.bucket.directory import DirectoryBucket
from holdfast.bucket.memory import MemoryBucket

__all__ = [
    "Bucket",
    "DirectoryBucket",
    "MemoryBucket",
    "ObjectInfo",
    "Retirable",
    "Sweepable",
]
