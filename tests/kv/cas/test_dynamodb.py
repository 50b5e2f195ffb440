import random

import pytest

from holdfast.errors import MissingError, UnavailableError
from holdfast.kv.cas import open_records
from holdfast.kv.cas.dynamodb import DynamoRecords, open_dynamodb
from holdfast.testing.records_contract import Another, RecordsContract


class TestDynamoRecords(RecordsContract):
    racers, slots, retired = 4, 8, 5

    @pytest.fixture
    def another(self, dynamodb: str) -> Another:
        scope = f"{random.getrandbits(64):x}"
        return lambda: open_records(dynamodb, scope)


def test_many_records_are_retired_batch_by_batch(dynamodb: str) -> None:
    records = open_records(dynamodb, f"{random.getrandbits(64):x}")
    assert isinstance(records, DynamoRecords)
    for number in range(30):
        records.commit(records.insert(f"wal/{number:03}", "x", 0))
    records.retire("wal/", "wal/027")
    assert [number for number in range(30) if records.find(f"wal/{number:03}")] == [28, 29]


def test_a_missing_server_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    endpoint = "http://127.0.0.1:1"
    with pytest.raises(UnavailableError, match="DynamoDB"):
        open_dynamodb("table", "x", endpoint_url=endpoint, region_name="us-east-1")


def test_a_missing_driver_raises_an_error_that_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    with pytest.raises(MissingError, match=r"holdfast\[dynamodb\]"):
        open_dynamodb("table", "x")
