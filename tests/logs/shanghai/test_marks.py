import json
from collections.abc import Callable
from typing import Any, ClassVar
from zlib import crc32

import pytest

from holdfast.errors import CorruptError
from holdfast.formats import shanghai as fmt
from holdfast.formats.mark import Mark
from holdfast.logs.mark import MARK, read_mark
from holdfast.logs.retention import Retention, Trim
from holdfast.logs.shanghai import ShanghaiLog, ShanghaiReader, directory, marks, recovery
from holdfast.testing import MarkContract, SimDisk
from holdfast.testing.log_contract import contents
from holdfast.testing.shanghai import ShanghaiSubject

EXPECTED = [b"%d" % (i + 1) for i in range(40)]


class TestMarks(MarkContract):
    format = "shanghai"
    options: ClassVar[dict[str, Any]] = {"segment_size_max": 300}


def open_log(disk: SimDisk) -> ShanghaiLog:
    return ShanghaiSubject().open(disk)


def as_0_1_0_left_it(disk: SimDisk, name: str, size: int, last_lsn: int) -> None:
    """Version 0.1.0 opened the log and closed it: it knows only its own mark."""
    header = fmt.decode_header(disk.files()[name])
    assert isinstance(header, fmt.Header)
    complete = {"name": name, "id": str(header.id), "size": size, "last_lsn": last_lsn}
    checksum = crc32(f"{name} {header.id} {size} {last_lsn}".encode())
    document = {"format": "shanghai", "complete": complete, "crc32": checksum}
    disk.create("metadata.json", json.dumps(document).encode(), replace=True)


def size_of(disk: SimDisk, name: str) -> int:
    return len(disk.files()[name])


def test_the_mark_of_0_1_0_holds_until_there_is_a_new_one(disk: SimDisk) -> None:
    name = "segment_00004.wal"
    disk.remove(MARK)
    as_0_1_0_left_it(disk, name, size_of(disk, name), 40)
    damaged = disk.copy_after_kill()
    damaged.flip(name, 8 * (64 + 8))
    log = open_log(damaged)
    assert (log.damage[0].first_index, log.damage[0].last_index) == (31, 31)
    assert MARK not in damaged.files()
    open_log(disk).close()
    assert json.loads(disk.files()["metadata.json"]) == {"format": "shanghai", "mark": MARK}
    mark = read_mark(disk)
    assert isinstance(mark, Mark)
    assert (mark.first_index, mark.last_index, mark.files) == (1, 40, 4)
    disk.remove("segment_00001.wal")
    (damage,) = open_log(disk).damage
    assert (damage.file, damage.first_index, damage.last_index) == ("segment_00001.wal", 1, 10)


def test_what_0_1_0_has_trimmed_since_is_not_missing(disk: SimDisk) -> None:
    """It does not know the mark of a later version, and does not lower it."""
    disk.remove("segment_00001.wal")
    name = "segment_00004.wal"
    as_0_1_0_left_it(disk, name, size_of(disk, name), 40)
    assert ShanghaiReader(disk).damage == ()
    log = open_log(disk)
    assert (log.damage, log.first_index) == ((), 11)
    log.close()
    assert open_log(disk).damage == ()


def test_a_mark_of_0_1_0_may_be_older_than_a_trim(disk: SimDisk) -> None:
    """It was written when the log was opened.  The owner rotated, trimmed and was killed."""
    name = "segment_00002.wal"
    as_0_1_0_left_it(disk, name, size_of(disk, name), 20)
    disk.remove("segment_00001.wal", name)
    assert ShanghaiReader(disk).damage == ()
    with open_log(disk) as log:
        assert (log.damage, log.first_index, log.append([b"41"])) == ((), 21, 41)


def test_a_log_without_a_mark_gets_one_when_it_is_opened(disk: SimDisk) -> None:
    disk.remove("metadata.json", MARK)
    assert ShanghaiReader(disk).damage == ()
    open_log(disk).close()
    mark = read_mark(disk)
    assert isinstance(mark, Mark) and mark.last_index == 40


def test_the_mark_alone_says_that_a_log_was_here(disk: SimDisk) -> None:
    from holdfast.logs.opening import format_of

    segments = [name for name in disk.files() if name.startswith("segment_")]
    disk.remove(*segments, "metadata.json")
    assert format_of(disk).name == "shanghai"
    (damage,) = open_log(disk).damage
    assert (damage.first_index, damage.last_index) == (1, 40)


def test_entries_after_a_bad_one_are_not_counted_on_if_its_length_is_wrong(disk: SimDisk) -> None:
    """A length that leads to a later entry would give all after it the LSNs of others."""
    name = "segment_00004.wal"
    data = bytearray(disk.files()[name])
    data[64 + 3] += 10  # one entry more
    disk.create(name, data, replace=True)
    log = open_log(disk)
    assert [(d.first_index, d.last_index) for d in log.damage] == [(31, 40)]
    assert log.last_index == 30


def test_entries_that_are_sound_but_others_are_damage(disk: SimDisk) -> None:
    """An older copy of the file that was put back and written to again, say."""
    name = "segment_00004.wal"
    data = disk.files()[name]
    payload = bytes(fmt.encode_entries([b"xx"])[0])
    disk.create(name, data[: -len(payload)] + payload, replace=True)
    (damage,) = open_log(disk).damage
    assert (damage.first_index, damage.last_index) == (31, 40)
    assert "other entries than it held" in damage.why


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_segment_that_is_another_one_is_damage(disk: SimDisk, number: int) -> None:
    disk.flip(f"segment_0000{number}.wal", 8 * 12)  # its id
    log = open_log(disk)
    assert log.damage
    with pytest.raises(CorruptError):
        log.append([b"x"])


def test_a_reader_looks_again_when_the_mark_was_lowered_meanwhile(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the mark, and then the owner trims."""
    log = open_log(disk)
    original, trimmed = directory.find_segments, list[Trim]()

    def find_segments(disk: Any, mark: Any) -> Any:
        if not trimmed:
            trimmed.append(log.trim(Retention(before=21)))
        return original(disk, mark)

    monkeypatch.setattr(recovery, "find_segments", find_segments)
    state = recovery.survey(disk)
    assert trimmed and state.damage == []
    assert ShanghaiReader(disk).first_index == 21


def a_lost_last_entry_is_overlooked(patch: pytest.MonkeyPatch) -> None:
    original = marks.missing_tail

    def missing_tail(*arguments: Any) -> Any:
        damage = original(*arguments)
        return damage if damage and damage.last_index > damage.first_index else None

    patch.setattr(recovery, "missing_tail", missing_tail)


def the_first_file_is_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "missing_files", lambda mark, found, first: [])
    patch.setattr(recovery, "other_files", lambda mark, found: [])


def the_mark_is_not_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(marks, "_REMEMBERED", {})


@pytest.mark.parametrize(
    ("bug", "harm"),
    [
        (a_lost_last_entry_is_overlooked, lambda disk: cut(disk, "segment_00004.wal", 10)),
        (the_first_file_is_not_looked_for, lambda disk: disk.remove("segment_00001.wal")),
        (the_mark_is_not_remembered, lambda disk: disk.remove(MARK)),
    ],
)
def test_a_planted_bug_lets_a_loss_pass(
    bug: Callable[[pytest.MonkeyPatch], None],
    harm: Callable[[SimDisk], None],
    disk: SimDisk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The damage is reported, and is not with the bug: so the bug would be caught."""
    harm(disk)
    assert ShanghaiReader(disk).damage
    bug(monkeypatch)
    assert not ShanghaiReader(disk).damage


def cut(disk: SimDisk, name: str, size: int) -> None:
    disk.create(name, disk.files()[name][:-size], replace=True)


def test_nothing_is_written_when_a_closed_log_is_opened_and_closed(disk: SimDisk) -> None:
    open_log(disk).close()
    before = disk.files()
    log = open_log(disk)
    assert contents(log) == EXPECTED
    log.close()
    assert disk.files() == before
