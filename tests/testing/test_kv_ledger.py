"""What the ledger of a kv store lets pass, and what it does not."""

import pytest

from holdfast.testing.explorer import BrokenPromiseError
from holdfast.testing.kv_ledger import KvLedger, Write


def written(ledger: KvLedger, epoch: int, seq: int, *keys: bytes, gone: bytes = b"") -> Write:
    write = ledger.begin(keys, [gone] if gone else [], b"")
    write.order = epoch, seq
    return write


def refused(ledger: KvLedger, state: dict[bytes, bytes], since: int | None = None) -> str:
    with pytest.raises(BrokenPromiseError) as error:
        ledger.judge(state, "we", since=since)
    return error.value.kind


def test_acknowledged_writes_are_there_whole_and_nothing_else_is() -> None:
    ledger = KvLedger()
    first, second = written(ledger, 1, 2, b"a", b"b"), written(ledger, 1, 3, b"a")
    ledger.acknowledge(first)
    since = ledger.now()
    ledger.judge({b"a": b"1:", b"b": b"1:"}, "we", since=since)
    ledger.judge({b"a": b"2:", b"b": b"1:"}, "we", since=since)  # may have arrived, unconfirmed
    ledger.judge({}, "somebody who has long not looked", since=first.began)
    assert refused(ledger, {}, since) == "lost"
    assert refused(ledger, {b"a": b"1:"}) == "lost"  # half a batch
    assert refused(ledger, {b"a": b"2:"}) == "lost"  # a gap before it
    assert refused(ledger, {b"a": b"3:"}) == refused(ledger, {b"c": b"1:"}) == "invented"
    assert refused(ledger, {b"a": b"2:..."}) == "invented"
    ledger.acknowledge(second)
    assert refused(ledger, {b"a": b"1:", b"b": b"1:"}, ledger.now()) == "lost"


def test_what_was_shown_once_stays_and_what_was_never_taken_is_forgotten() -> None:
    ledger = KvLedger()
    ledger.see({b"a": b"%d:" % written(ledger, 1, 1, b"a").number})
    ledger.drop(written(ledger, 1, 2, b"b"))
    ledger.judge({b"a": b"1:"}, "we", since=ledger.now())
    assert refused(ledger, {}, ledger.now()) == "lost"


def test_a_deletion_hides_what_is_older_and_only_that() -> None:
    ledger = KvLedger()
    ledger.acknowledge(written(ledger, 1, 1, b"a"))
    deletion = written(ledger, 1, 2, gone=b"a")
    ledger.judge({}, "we", since=ledger.now())  # unconfirmed, so either is right
    ledger.judge({b"a": b"1:"}, "we", since=ledger.now())
    ledger.acknowledge(deletion)
    assert refused(ledger, {b"a": b"1:"}, ledger.now()) == "lost"
    ledger.acknowledge(written(ledger, 1, 3, b"a"))
    assert refused(ledger, {}, ledger.now()) == "lost"


def test_writers_read_their_own() -> None:
    ledger = KvLedger()
    written(ledger, 1, 1, b"a")
    mine = written(ledger, 1, 2, b"a")
    ledger.judge_own(b"a", b"2:", mine, "we")
    for value in (None, b"1:"):
        with pytest.raises(BrokenPromiseError, match="hidden: we does not read its own"):
            ledger.judge_own(b"a", value, mine, "we")


def test_an_older_writer_does_not_acknowledge_after_a_newer_one() -> None:
    ledger = KvLedger()
    ledger.acknowledge(written(ledger, 2, 1, b"a"))
    with pytest.raises(BrokenPromiseError, match=r"lost: .* was taken after"):
        ledger.acknowledge(written(ledger, 1, 9, b"b"))


def test_numbers_rise_from_writer_to_writer() -> None:
    ledger = KvLedger()
    ledger.acknowledge(written(ledger, 1, 5, b"a"))
    with pytest.raises(BrokenPromiseError, match=r"broken: .* in another order"):
        ledger.acknowledge(written(ledger, 2, 5, b"b"))


def test_of_a_load_and_a_write_either_may_win_unless_one_was_over() -> None:
    ledger = KvLedger()
    write, load = written(ledger, 1, 1, b"a"), ledger.begin([b"a"], [], b"", load=True)
    ledger.acknowledge(write)
    ledger.acknowledge(load)
    now = ledger.now()
    for value in (b"1:", b"2:"):
        ledger.judge({b"a": value}, "we", since=now, loads_since=now)
    ledger.acknowledge(written(ledger, 1, 2, b"a"))
    assert refused(ledger, {b"a": b"2:"}, ledger.now()) == "lost"
