"""Good rows and bad ones are exact complements, and each bad one says why."""

import base64
import json

from pyspark.sql import DataFrame, SparkSession

from holdfast.spark.pipelines.declared import Source
from holdfast.spark.pipelines.parsing import parse

SCHEMA = "symbol STRING NOT NULL, at TIMESTAMP, price DOUBLE, size BIGINT"
JSON = {
    b'{"symbol":"A","at":"2026-01-05T14:30:00Z","price":1.5,"size":3}': None,
    b' {"symbol":"A","other":1} ': None,
    b'{"symbol":"A","price":"x"}': "price is not DOUBLE",
    b'{"symbol":"A","size":1.5}': "size is not BIGINT",
    b'{"symbol":"A","at":"noon"}': "at is not TIMESTAMP",
    b'{"symbol":null}': "symbol is missing",
    b"{}": "symbol is missing",
    b"no json": "not JSON",
    b'{"symbol":"A"': "not JSON",
    b'{"symbol":"A"} and more': "not JSON",
    b'{"symbol":"A"}{"symbol":"B"}': "not JSON",
    b'{"symbol":"A"},{"symbol":"B"}': "not one object",
    b'[{"symbol":"A"}]': "not a JSON object",
    b"null": "not a JSON object",
    b" ": "not a JSON object",
    b'{"symbol":"\xff"}': "not UTF-8",
    b'{"symbol":"' + b"long" * 40 + b'","price":"x"}': "price is not DOUBLE",
}
CSV = {
    b"A,2026-01-05T14:30:00Z,1.5,3": None,
    b'"A\nB",,,': None,
    b"A,noon,1.5,3": "at is not TIMESTAMP",
    b"A,,1.5": "not 4 columns",
    b"A,,1.5,3,4": "not 4 columns",
    b"A,,,1\nB,,,1": "not 4 columns",
    b",,,": "symbol is missing",
    b"": "empty",
    b"\xff,,,": "not UTF-8",
}


def rows(spark: SparkSession, payloads: "list[bytes]") -> DataFrame:
    return spark.createDataFrame(list(enumerate(payloads)), "index BIGINT, payload BINARY")


def test_every_payload_is_good_or_bad_for_a_reason(spark: SparkSession) -> None:
    for kind, cases in (("json", JSON), ("csv", CSV)):
        source = Source("ticks", "holdfast-log", parse=kind, schema=SCHEMA)
        found = parse(rows(spark, list(cases)), source)
        assert found.good.columns == ["_index", "symbol", "at", "price", "size"]
        good = {row["_index"] for row in found.good.collect()}
        assert found.bad is not None
        letters = [json.loads(row["payload"]) for row in found.bad.collect()]
        verdicts = dict.fromkeys(good) | {letter["index"]: letter["reason"] for letter in letters}
        assert verdicts == dict(enumerate(cases.values())), kind
        assert len(good) + len(letters) == len(cases)
        for letter in letters:
            assert letter["source"] == "ticks"
            assert base64.b64decode(letter["payload"]) == list(cases)[letter["index"]]
            assert "\n" not in letter["payload"]


def test_a_deleted_key_does_not_count_as_a_bad_row(spark: SparkSession) -> None:
    changes = [(b"a", b'{"n":1}', 1, False), (b"b", None, 2, True), (b"c", b"?", 3, False)]
    frame = spark.createDataFrame(
        changes, "key BINARY, value BINARY, sequence BIGINT, deleted BOOLEAN"
    )
    found = parse(frame, Source("kv", "holdfast-kv", parse="json", schema="n INT"))
    good = [(bytes(r["_key"]), r["_deleted"], r["n"]) for r in found.good.collect()]
    assert good == [(b"a", False, 1), (b"b", True, None)]
    assert found.bad is not None
    (letter,) = (json.loads(row["payload"]) for row in found.bad.collect())
    assert letter == {
        "source": "kv",
        "sequence": 3,
        "key": "Yw==",
        "reason": "not JSON",
        "payload": "Pw==",
    }


def test_damage_in_a_log_is_a_bad_row(spark: SparkSession) -> None:
    shape = "index BIGINT, payload BINARY, _corrupt_record STRING"
    frame = spark.createDataFrame([(1, b"x", None), (2, None, "checksum mismatch")], shape)
    for kind, schema in ((None, None), ("csv", "a STRING")):
        found = parse(frame, Source("log", "holdfast-log", parse=kind, schema=schema))
        assert "_corrupt_record" not in found.good.columns
        assert found.good.count() == 1
        assert found.bad is not None
        (letter,) = (json.loads(row["payload"]) for row in found.bad.collect())
        assert letter == {"source": "log", "index": 2, "reason": "checksum mismatch"}
