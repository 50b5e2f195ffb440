"""Every bucket on every server, by the addresses that users give."""

from collections.abc import Iterator

import pytest
from tests.servers import ObjectStore, RealBucket

from holdfast.bucket import Bucket
from holdfast.errors import UnsupportedError
from holdfast.kv.cas import TwoPhaseBucket, open_bucket
from holdfast.testing.bucket_contract import BucketContract


class TestRealBuckets(BucketContract):
    @pytest.fixture
    def bucket(self, real_bucket: RealBucket) -> Iterator[Bucket]:
        bucket = real_bucket.open()
        yield bucket
        if isinstance(bucket, TwoPhaseBucket):
            bucket.close()


def test_a_store_that_ignores_conditions_is_refused(rclone: ObjectStore) -> None:
    with pytest.raises(UnsupportedError, match=r"ignores create-if-absent.*cas='sqlite:"):
        open_bucket(rclone.url("probe-me"), options=rclone.options)
    assert open_bucket(rclone.url("probe-me"), "native", options=rclone.options).list("") == []
