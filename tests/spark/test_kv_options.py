import pickle
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.spark.kv_options import KvOptions, address_of


def test_options_in_any_case_are_understood() -> None:
    found = KvOptions.parse(
        {
            "PATH": "s3://bucket/kv",
            "cas": "sqlite:///records.db",
            "bucket.endpoint": "http://127.0.0.1:1",
            "prefix": "6b",
            "startingkey": "6b02",
            "endingKey": "7f",
            "keyEncoding": "hex",
            "columns": "value, key",
            "snapshotId": "00000000-0000-0000-0000-00000000000a",
        }
    )
    assert (found.bounds, found.columns) == ((b"k\2", b"l"), ("value", "key"))
    assert found.snapshot_id == UUID(int=10)
    assert found.address.url == "s3://bucket/kv"
    assert found.address.cas == "sqlite:///records.db"
    assert dict(found.address.options) == {"endpoint": "http://127.0.0.1:1"}
    assert pickle.loads(pickle.dumps(found)) == found


def test_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert address_of("kv").url == str(tmp_path / "kv")


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"prefx": "a"}, "remove the option 'prefx'"),
        ({"prefix": "g", "keyEncoding": "hex"}, "set prefix to hexadecimal digits"),
        ({"keyEncoding": "latin"}, "set keyEncoding to one of utf-8, hex"),
        ({"columns": "key,key"}, "set columns to some of"),
        ({"manifestId": "0"}, "set manifestId to a number from 1 on"),
        ({"manifestId": "1", "snapshotId": str(UUID(int=1))}, "not both"),
        ({"snapshotId": "x"}, "set snapshotId to the id of a snapshot"),
        ({"sort": "global"}, "set sort to one of task, none"),
        ({"pin": "maybe"}, "set pin to one of true, false"),
        ({"txnAppId": "a"}, "set both txnAppId and txnVersion"),
        ({"startingWalId": "soon"}, "set startingWalId to earliest, latest or a number"),
        ({"path": "memory://x"}, "processes do not share memory"),
    ],
)
def test_an_invalid_value_is_refused_with_advice(options: dict[str, str], advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        KvOptions.parse(options)


def test_options_are_refused_where_they_mean_nothing() -> None:
    with pytest.raises(ValueError, match="remove the option prefix: write of holdfast-kv takes"):
        KvOptions.parse({"path": "kv", "prefix": "a"}).only_for("write")
    with pytest.raises(ValueError, match="name the store's directory"):
        KvOptions.parse({}).only_for("read")
    with pytest.raises(ValueError, match="set startingWalId to earliest"):
        KvOptions.parse({"path": "kv"}).only_for("readStream")
