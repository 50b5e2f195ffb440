import pytest

from holdfast.bucket import Bucket, MemoryBucket
from holdfast.testing.bucket_contract import BucketContract


class TestMemoryBucket(BucketContract):
    slots = 100

    @pytest.fixture
    def bucket(self) -> Bucket:
        return MemoryBucket()
