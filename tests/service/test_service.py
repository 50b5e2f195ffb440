"""The service in its short form: until every guest has done something and a process was killed.

HOLDFAST_SERVICE_SECONDS makes it longer.
"""

import os
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from campaign.service import serve
from tests.service.__main__ import compare
from tests.service.entries import InventedError, Ledger, Seen, judge, key_of, make
from tests.service.roles import prepare

from holdfast.doors.logs import open_log
from holdfast.logs.opening import FORMATS

SECONDS = float(os.environ.get("HOLDFAST_SERVICE_SECONDS", "1"))


@pytest.mark.parametrize("format", FORMATS)
def test_a_service_keeps_what_it_acknowledged_beside_guests_and_kills(
    tmp_path: Path, format: str
) -> None:
    counts = serve(format, tmp_path, SECONDS, Random().randrange(1 << 30))
    assert counts["acknowledged"] > 10
    assert counts["kills"] >= 1


def test_what_goes_wrong_is_found(tmp_path: Path) -> None:
    """Plant what the comparison must find, one by one."""
    kind = "raft-wal"
    prepare(kind, tmp_path)
    keys = [key_of(1, thread, number) for number in range(5) for thread in (0, 1)]
    with open_log(tmp_path / "log") as log:
        log.append([make(key) for key in keys])
    ledger = Ledger(tmp_path / "ledger-1")
    for index, key in enumerate(keys, 1):
        ledger.acknowledge(index, key, 1)
    assert list(compare(kind, tmp_path)) == []

    ledger.acknowledge(11, key_of(1, 0, 5), 1)
    assert list(compare(kind, tmp_path)) == ["lost: entry 11"]
    with open_log(tmp_path / "log") as log:
        log.append([make(key_of(1, 0, 5))])
    assert list(compare(kind, tmp_path)) == []

    seen = tmp_path / "seen-scan-1"
    seen.write_text(f"12 {key_of(1, 1, 5)}\n")
    assert list(compare(kind, tmp_path)) == ["seen-scan-1: entry 12 was shown, and is gone"]
    seen.write_text(f"3 {key_of(1, 1, 0)}\n")
    assert "seen-scan-1 has another entry 3, and 0 more" in list(compare(kind, tmp_path))
    seen.unlink()

    with open_log(tmp_path / "log") as log:
        log.append([make(key_of(1, 1, 4)), make(key_of(1, 1, 50))])
    wrong = list(compare(kind, tmp_path))
    assert "entries of thread 101 are twice there, or in another order" in wrong
    assert f"thread 101 never appended {key_of(1, 1, 50):x}" in wrong


def test_wrong_bytes_are_found() -> None:
    payload = make(key_of(3, 2, 1))
    assert judge(1, payload) == key_of(3, 2, 1)
    for wrong in (payload[:-1], payload + b"x", b"", bytes(40), payload[:9] + b"?" + payload[10:]):
        with pytest.raises(InventedError):
            judge(1, wrong)
    seen = Seen()
    rows = [make(key_of(1, 1, 0)), make(key_of(1, 1, 1))]
    for payload in rows:
        batch = pa.record_batch({"index": [7], "payload": [payload]})
        if payload == rows[0]:
            seen.add(batch)
        else:
            with pytest.raises(InventedError, match="entry 7 was"):
                seen.add(batch)


def test_an_index_that_is_acknowledged_twice_is_found(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger-1")
    ledger.acknowledge(5, key_of(1, 0, 0), 2)
    ledger.acknowledge(6, key_of(1, 1, 0), 1)
    with pytest.raises(InventedError, match="index 6 was acknowledged twice"):
        Ledger.load(tmp_path / "ledger-1")
