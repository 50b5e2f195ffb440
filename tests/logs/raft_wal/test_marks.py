import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.logs.raft_wal.conftest import golden_names
from tests.logs.raft_wal.test_golden import Script, files, is_sound

from holdfast.disk import OsDisk
from holdfast.errors import CorruptError
from holdfast.formats.mark import Mark
from holdfast.logs.mark import MARK, REMEMBERED, read_mark
from holdfast.logs.opening import format_of
from holdfast.logs.raft_wal import RaftWal, RaftWalReader, marks, recovery
from holdfast.logs.raft_wal.directory import segment_name
from holdfast.logs.raft_wal.meta_store import META_STORE
from holdfast.logs.raft_wal.repair import apply_repair, plan_repair
from holdfast.testing import MarkContract, SimDisk
from holdfast.testing.raft_wal import RaftWalSubject

FIRST = segment_name(1, 0)
Act = Callable[[RaftWal], object]


class TestMarks(MarkContract):
    format = "raft-wal"
    options: ClassVar[dict[str, Any]] = {"segment_size_max": 400, "segment_fill_ms": None}


class Roomy(RaftWalSubject):
    segment_size_max = 4096


def open_log(disk: SimDisk) -> RaftWal:
    return Roomy().open(disk)


def filled(count: int = 5) -> SimDisk:
    disk = SimDisk()
    with open_log(disk) as wal:
        for number in range(count):
            wal.append([b"entry %d" % number])
    return disk


def as_another_program(disk: SimDisk, act: Act) -> None:
    """Do something as a Go program does it: it does not know the mark."""
    mark = disk.files()[MARK]
    with open_log(disk) as wal:
        act(wal)
    disk.create(MARK, mark, replace=True)


def flip_entry(disk: SimDisk, payload: bytes) -> None:
    disk.flip(FIRST, 8 * disk.files()[FIRST].index(payload))


# Another program in between


@pytest.mark.parametrize("name", [name for name in golden_names() if is_sound(name)])
def test_what_a_go_program_does_in_turns_with_us_is_never_damage(
    name: str, golden: Path, tmp_path: Path
) -> None:
    """The operations of the real library, one by one; we own the log after every second one."""
    script, size, turn = Script(tmp_path), 0, 0
    for line in (golden / f"{name}.ops.jsonl").read_text().splitlines():
        operation = json.loads(line)
        verb = operation.pop("op")
        if verb == "close":
            continue
        size = operation["seg"] if verb == "open" else size
        mark = (tmp_path / MARK).read_bytes() if turn else b""
        script.open(size)
        if verb != "open":
            getattr(script, verb)(**operation)
        script.wal.close()
        if turn:
            (tmp_path / MARK).write_bytes(mark)
        with RaftWalReader(OsDisk(tmp_path)) as reader:
            assert reader.damage == (), f"after {line}"
            assert reader.verify().verdict == "clean"
        turn += 1
        if turn % 2:
            script.open(size)
            assert (script.wal.damage, script.wal.recovered) == ((), ())
            script.wal.close()
    assert files(tmp_path) == files(golden / name), "these are not the bytes of the real library"


ACTS: dict[str, Act] = {
    "append": lambda wal: wal.append([b"more"]),
    "rotate": lambda wal: wal.rotate(),
    "set": lambda wal: wal.set(b"key", b"value"),
    "truncate tail": lambda wal: wal.truncate_tail(2),
    "truncate head": lambda wal: wal.truncate_head(4),
    "truncate all": lambda wal: wal.truncate_head(wal.last_index + 1),
    "roll back and append": lambda wal: roll_back_and_append(wal),
}


def roll_back_and_append(wal: RaftWal) -> None:
    wal.truncate_tail(2)
    wal.append([b"other 3"])


@pytest.mark.parametrize("act", ACTS)
def test_what_another_program_removed_is_not_damage(act: str) -> None:
    disk = filled()
    as_another_program(disk, ACTS[act])
    assert RaftWalReader(disk).damage == ()
    with open_log(disk) as wal:
        assert wal.damage == ()
        wal.append([b"ours"])
    assert RaftWalReader(disk).verify().verdict == "clean"


@pytest.mark.parametrize("act", ["append", "set", "truncate head"])
def test_the_mark_holds_while_its_segment_is_active(act: str) -> None:
    """The same transaction, or a newer one that still names the segment as the active one."""
    disk = filled()
    as_another_program(disk, ACTS[act])
    flip_entry(disk, b"entry 4")
    (damage,) = open_log(disk).damage
    assert (damage.first_index, damage.last_index, damage.torn) == (5, 5, False)


def test_entries_after_one_bad_batch_can_be_read() -> None:
    """The mark confirms their indexes."""
    disk = filled()
    flip_entry(disk, b"entry 1")
    wal = open_log(disk)
    assert [(d.first_index, d.last_index) for d in wal.damage] == [(2, 2)]
    assert [wal.read(index) for index in (1, 3, 5)] == [b"entry 0", b"entry 2", b"entry 4"]
    with pytest.raises(CorruptError, match="checksum"):
        wal.read(2)
    wal.close()
    plan = plan_repair(disk, keep="after")
    assert (plan.kept, plan.lost) == ((3, 5), ((1, 2),))
    apply_repair(disk, plan)
    with open_log(disk) as wal:
        assert (wal.damage, wal.first_index, wal.append([b"six"])) == ((), 3, 6)


def test_entries_after_a_bad_batch_are_not_counted_on_if_one_may_be_skipped() -> None:
    """A length that leads to a later frame would give all after it the indexes of others."""
    disk = filled()
    at = disk.files()[FIRST].index(b"entry 1") - 4
    batch = disk.files()[FIRST].index(b"entry 2") - disk.files()[FIRST].index(b"entry 1")
    data = bytearray(disk.files()[FIRST])
    data[at] += batch
    disk.create(FIRST, data, replace=True)
    wal = open_log(disk)
    assert [(d.first_index, d.last_index) for d in wal.damage] == [(2, 5)]
    assert wal.last_index == 1


def test_what_another_program_appended_last_may_be_torn() -> None:
    disk = filled()
    as_another_program(disk, ACTS["append"])
    flip_entry(disk, b"more")
    with open_log(disk) as wal:
        assert (wal.damage, wal.last_index) == ((), 5)
        assert "torn write" in wal.recovered[0]


# The meta store


def test_an_older_meta_store_is_damage() -> None:
    disk = filled()
    old = disk.files()[META_STORE]
    with open_log(disk) as wal:
        wal.set(b"vote", b"me")
    disk.create(META_STORE, old, replace=True)
    (damage,) = RaftWalReader(disk).damage
    assert (damage.file, damage.torn) == (META_STORE, False)
    assert "older than the log" in damage.why
    with pytest.raises(CorruptError, match="older than the log"):
        open_log(disk).append([b"x"])


def test_a_directory_with_nothing_but_a_mark_is_not_a_new_log() -> None:
    disk = filled()
    disk.remove(FIRST, META_STORE)
    assert format_of(disk).name == "raft-wal"
    for opened in (open_log, RaftWalReader):
        with pytest.raises(CorruptError, match=r"missing, but the log held entries 1\.\.5"):
            opened(disk)
    plan = plan_repair(disk)
    assert (plan.kept, plan.lost) == ((6, 5), ((1, 5),))
    apply_repair(disk, plan)
    with open_log(disk) as wal:
        assert wal.append([b"six"]) == 6


def test_an_empty_active_segment_that_existed_is_missed() -> None:
    disk = filled(1)
    with open_log(disk) as wal:
        wal.rotate()
    disk.remove(segment_name(2, 1))
    (damage,) = open_log(disk).damage
    assert "missing: the log was complete up to 1" in damage.why


def test_a_stable_key_moves_the_mark_to_its_transaction() -> None:
    disk = filled()
    with open_log(disk) as wal:
        wal.set_uint64(b"CurrentTerm", 7)
        mark = read_mark(disk)
        assert isinstance(mark, Mark)
        assert mark.word == marks.word_of(wal._meta.txid)
        assert (mark.last_index, mark.first_index) == (5, 1)


def test_entries_that_are_sound_but_others_are_damage() -> None:
    disk = filled(2)
    other = SimDisk()
    with open_log(other) as wal:
        for payload in (b"ENTRY 0", b"ENTRY 1"):
            wal.append([payload])
    disk.create(FIRST, other.files()[FIRST], replace=True)
    (damage,) = open_log(disk).damage
    assert (damage.first_index, damage.last_index) == (1, 2)
    assert "other entries than it held" in damage.why


def test_a_log_without_a_mark_gets_one_when_it_is_opened() -> None:
    disk = filled()
    disk.remove(MARK, REMEMBERED)
    assert RaftWalReader(disk).damage == ()
    open_log(disk).close()
    assert {MARK, REMEMBERED} <= disk.files().keys()
    mark = read_mark(disk)
    assert isinstance(mark, Mark) and mark.last_index == 5


def the_tail_is_not_held_to_the_mark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "missing_tail", lambda *_: None)
    patch.setattr(recovery, "vouches", lambda *_: False)


def a_missing_file_is_created_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "missing_file", lambda *_: None)


def the_meta_store_may_go_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "check_store", lambda *_: [])


def go_back(disk: SimDisk) -> None:
    old = disk.files()[META_STORE]
    with open_log(disk) as wal:
        wal.set(b"vote", b"me")
    disk.create(META_STORE, old, replace=True)


@pytest.mark.parametrize(
    ("bug", "harm"),
    [
        (the_tail_is_not_held_to_the_mark, lambda disk: flip_entry(disk, b"entry 4")),
        (a_missing_file_is_created_again, lambda disk: disk.remove(FIRST)),
        (the_meta_store_may_go_back, go_back),
    ],
)
def test_a_planted_bug_lets_a_loss_pass(
    bug: Callable[[pytest.MonkeyPatch], None],
    harm: Callable[[SimDisk], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The damage is reported, and is not with the bug: so the bug would be caught."""
    disk = filled()
    harm(disk)
    assert RaftWalReader(disk).damage
    bug(monkeypatch)
    assert not RaftWalReader(disk).damage
