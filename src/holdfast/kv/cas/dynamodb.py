"""Records of two-phase writes in a DynamoDB table.

One partition per scope.  In it `r/NAME` is a record, `w/DIRECTORY` a watermark, and `e` the
epoch.  An insert is one transaction that checks the other two; every read is consistent.
(No attribute has a name of one word: DynamoDB reserves hundreds of words.)
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from holdfast.errors import UnavailableError
from holdfast.kv.cas.records import Record, SweptError, directory_of, driver_of

_BATCH = 25  # how many deletes DynamoDB takes at once
_BELOW = "attribute_not_exists(boundary_name) OR boundary_name < :boundary"
# Its names for temporary errors.
_PASSING = {
    "InternalServerError",
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ServiceUnavailable",
    "ThrottlingException",
    "TransactionInProgressException",
}


def open_dynamodb(table: str, scope: str, **options: str) -> "DynamoRecords":
    """Open a table, or create it; options are boto3's (endpoint_url, region_name ...)."""
    with driver_of("records in DynamoDB need boto3", "dynamodb"):
        import boto3
    return DynamoRecords(boto3.client("dynamodb", **options), table, scope)


class DynamoRecords:
    """See Records."""

    def __init__(self, client: Any, table: str, scope: str) -> None:
        self._client, self._table, self._scope = client, table, scope
        with _translated():
            self._make_table()

    def __repr__(self) -> str:
        return f"DynamoRecords({self._table!r}, {self._scope!r})"

    def epoch(self) -> int:
        return int(self._get("e").get("sweep_epoch", {"N": "0"})["N"])

    def insert(self, destination: str, source: str, epoch: int) -> Record:
        record = self._key(f"r/{destination}") | {
            "source_name": {"S": source},
            "is_committed": {"BOOL": False},
        }
        put = {
            "TableName": self._table,
            "Item": record,
            "ConditionExpression": "attribute_not_exists(source_name)",
        }
        wanted = {":boundary": {"S": destination}}
        now = {":epoch": {"N": str(epoch)}}
        same = "sweep_epoch = :epoch" if epoch else "attribute_not_exists(sweep_epoch)"
        steps = [
            {"Put": put},
            {"ConditionCheck": self._check(f"w/{directory_of(destination)}", _BELOW, wanted)},
            {"ConditionCheck": self._check("e", same, now if epoch else {})},
        ]
        with _translated():
            try:
                self._client.transact_write_items(TransactItems=steps)
            except self._client.exceptions.TransactionCanceledException as error:
                return self._holder(destination, error.response)
        return Record(destination, source)

    def commit(self, record: Record) -> None:
        values = {":yes": {"BOOL": True}, ":source": {"S": record.source}}
        same = "source_name = :source"
        self._update(f"r/{record.destination}", "SET is_committed = :yes", values, same)

    def find(self, destination: str) -> Record | None:
        item = self._get(f"r/{destination}")
        return _record(item) if item else None

    def uncommitted(self) -> list[Record]:
        records = [_record(item) for item in self._between("r/", "r0")]
        return [record for record in records if not record.committed]

    def retire(self, directory: str, boundary: str) -> None:
        mark = {":boundary": {"S": boundary}}
        self._update(f"w/{directory}", "SET boundary_name = :boundary", mark, _BELOW)
        records = [_record(item) for item in self._between(f"r/{directory}", f"r/{boundary}")]
        gone = [
            self._key(f"r/{record.destination}")
            for record in records
            if record.committed and directory_of(record.destination) == directory
        ]
        for start in range(0, len(gone), _BATCH):
            self._forget(gone[start : start + _BATCH])

    def begin_sweep(self) -> int:
        answer = self._update("e", "ADD sweep_epoch :one", {":one": {"N": "1"}})
        return int(answer["sweep_epoch"]["N"])

    def close(self) -> None:
        self._client.close()

    def _holder(self, destination: str, answer: dict[str, Any]) -> Record:
        """Return why a transaction was refused: taken, retired, swept, or a conflict."""
        reasons = [reason.get("Code") for reason in answer.get("CancellationReasons", [])]
        holder = self.find(destination)
        if holder is not None:
            return holder
        if len(reasons) == 3 and reasons[1] == "ConditionalCheckFailed":
            raise FileExistsError(f"object {destination} was created, and retired")
        if len(reasons) == 3 and reasons[2] == "ConditionalCheckFailed":
            raise SweptError
        raise UnavailableError(f"DynamoDB refused a transaction: {reasons}")

    def _make_table(self) -> None:
        keys = [("scope_key", "HASH"), ("item_key", "RANGE")]
        with suppress(self._client.exceptions.ResourceNotFoundException):
            self._client.describe_table(TableName=self._table)
            return
        with suppress(self._client.exceptions.ResourceInUseException):  # another client was faster
            self._client.create_table(
                TableName=self._table,
                KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in keys],
                AttributeDefinitions=[
                    {"AttributeName": key, "AttributeType": "S"} for key, _ in keys
                ],
                BillingMode="PAY_PER_REQUEST",
            )
        self._client.get_waiter("table_exists").wait(
            TableName=self._table, WaiterConfig={"Delay": 1, "MaxAttempts": 60}
        )

    def _key(self, name: str) -> dict[str, Any]:
        return {"scope_key": {"S": self._scope}, "item_key": {"S": name}}

    def _check(self, name: str, condition: str, values: dict[str, Any]) -> dict[str, Any]:
        check = {
            "TableName": self._table,
            "Key": self._key(name),
            "ConditionExpression": condition,
        }
        return check | ({"ExpressionAttributeValues": values} if values else {})

    def _update(
        self, name: str, change: str, values: dict[str, Any], condition: str | None = None
    ) -> dict[str, Any]:
        """Change an item and return its new attributes; none if the condition does not hold."""
        only_if = {"ConditionExpression": condition} if condition else {}
        with _translated(), suppress(self._client.exceptions.ConditionalCheckFailedException):
            answer: dict[str, Any] = self._client.update_item(
                TableName=self._table,
                Key=self._key(name),
                UpdateExpression=change,
                ExpressionAttributeValues=values,
                ReturnValues="UPDATED_NEW",
                **only_if,
            )
            return answer["Attributes"]  # type: ignore[no-any-return]
        return {}

    def _get(self, name: str) -> dict[str, Any]:
        with _translated():
            answer = self._client.get_item(
                TableName=self._table, Key=self._key(name), ConsistentRead=True
            )
        item: dict[str, Any] = answer.get("Item", {})
        return item

    def _between(self, first: str, last: str) -> Iterator[dict[str, Any]]:
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            ConsistentRead=True,
            KeyConditionExpression="scope_key = :scope AND item_key BETWEEN :first AND :last",
            ExpressionAttributeValues={
                ":scope": {"S": self._scope},
                ":first": {"S": first},
                ":last": {"S": last},
            },
        )
        with _translated():
            for page in pages:
                yield from page["Items"]

    def _forget(self, keys: list[dict[str, Any]]) -> None:
        requests = {self._table: [{"DeleteRequest": {"Key": key}} for key in keys]}
        with _translated():
            answer = self._client.batch_write_item(RequestItems=requests)
        if answer["UnprocessedItems"]:
            raise UnavailableError("DynamoDB is too busy to delete more")


def _record(item: dict[str, Any]) -> Record:
    name = item["item_key"]["S"].removeprefix("r/")
    return Record(name, item["source_name"]["S"], item["is_committed"]["BOOL"])


@contextmanager
def _translated() -> Iterator[None]:
    """Raise UnavailableError for a temporary error, or if there was no answer."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        if error.response["Error"]["Code"] not in _PASSING:
            raise
        raise UnavailableError(f"DynamoDB: {error}") from error
    except BotoCoreError as error:
        raise UnavailableError(f"DynamoDB: {error}") from error
