import json

import pytest

from holdfast.logs.staging import Transaction
from holdfast.spark.log_options import COLUMNS, LogOptions
from holdfast.spark.options import Use


def test_names_are_case_insensitive_and_defaults_are_safe() -> None:
    given = {"PATH": "/a", "startingindex": "3", "ENDINGINDEX": "5", "Mode": "permissive"}
    options = LogOptions.parse(given)
    assert (options.starting_index, options.ending_index, options.mode) == (3, 5, "PERMISSIVE")
    assert LogOptions.parse({"path": "/a"}) == LogOptions(given=("path",), path="/a")
    assert LogOptions().columns == COLUMNS


def test_paths_become_absolute_and_may_be_several() -> None:
    assert LogOptions.parse({"paths": json.dumps(["/a", "file:///b"])}).directories == ("/a", "/b")
    assert LogOptions.parse({"path": "a"}).directories[0].startswith("/")


def test_a_transaction_has_both_parts() -> None:
    options = LogOptions.parse({"txnAppId": "load", "txnVersion": "0"})
    assert options.transaction == Transaction("load", 0)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (
            {"startIndex": "3"},
            "remove the option 'startIndex': holdfast-log has the options checkpointLocation, ",
        ),
        ({"startingIndex": "0"}, "set startingIndex to earliest, latest or a number"),
        ({"startingIndex": "-5"}, "set startingIndex to"),
        ({"endingIndex": "latest"}, "set endingIndex to a number"),
        ({"maxEntriesPerTrigger": "1e3"}, "set maxEntriesPerTrigger to a number"),
        ({"mode": "LENIENT"}, "set mode to one of FAILFAST, PERMISSIVE, DROPMALFORMED"),
        ({"verify": "yes"}, "set verify to one of true, false"),
        ({"failOnDataLoss": ""}, "set failOnDataLoss to one of true, false"),
        ({"columns": "index,time"}, "set columns to some of index,payload,segment,offset"),
        ({"columns": ""}, "set columns to some of"),
        ({"format": "parquet"}, "set format to one of raft-wal, shanghai"),
        ({"txnAppId": "load"}, "set both txnAppId and txnVersion"),
        ({"txnAppId": "load", "txnVersion": "x"}, "set txnVersion to a number from 0 on"),
        ({"path": "s3://bucket/log"}, "local directory"),
    ],
)
def test_an_invalid_value_is_refused_with_advice(options: dict[str, str], advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        LogOptions.parse(options)


@pytest.mark.parametrize(
    ("use", "options", "advice"),
    [
        ("read", {"path": "/a", "failOnDataLoss": "true"}, "remove the option failOnDataLoss"),
        (
            "readStream",
            {"path": "/a", "endingIndex": "7"},
            "readStream of holdfast-log takes path, startingIndex",
        ),
        ("readStream", {"paths": '["/a", "/b"]'}, "remove the option paths"),
        (
            "write",
            {"path": "/a", "startingIndex": "7"},
            "write of holdfast-log takes txnAppId, txnVersion, checkpointLocation, path, format",
        ),
        ("writeStream", {"path": "/a", "txnAppId": "a", "txnVersion": "1"}, "txnAppId"),
        ("read", {}, r"name the log's directory: .load\("),
        ("writeStream", {}, r"name the log's directory: .start\("),
        ("read", {"path": "/a", "startingIndex": "latest"}, "latest is for readStream"),
    ],
)
def test_what_is_for_another_use_is_refused(use: Use, options: dict[str, str], advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        LogOptions.parse(options).only_for(use)
