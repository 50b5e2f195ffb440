"""What every log with a mark must pass: nothing that was acknowledged goes missing unnoticed.

    class TestMine(MarkContract):
        format = "shanghai"
        options = {"segment_size_max": 200}

Real files, through the front door.  A log is closed, or its writer is killed; then something of it
is deleted, zeroed, cut or flipped.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from holdfast.disk import OsDisk
from holdfast.doors import create_log, open_log, read_log
from holdfast.errors import CorruptError
from holdfast.logs.log import Damage, SegmentInfo
from holdfast.logs.mark import MARK
from holdfast.logs.opening import format_of
from holdfast.ownership import LOCK
from holdfast.testing.damages import NOTICED
from holdfast.testing.harms import judge_log

End = Literal["closed", "killed"]
Span = tuple[int, int]
Harm = Callable[[Path, list[SegmentInfo]], Span]  # returns the indexes that are lost

ENTRIES = [b"entry %03d of what was acknowledged" % number for number in range(1, 24)]

_KILLED = """
import ast, os, signal, sys
from holdfast.testing.mark_contract import fill
fill(sys.argv[1], sys.argv[2], ast.literal_eval(sys.argv[3]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def fill(path: str, format: str, options: dict[str, Any]) -> Any:
    """Create a log with all entries, each acknowledged by itself; return its owner."""
    log = create_log(path, format=format, **options)
    for entry in ENTRIES:
        log.append([entry])
    return log


# Harm


def lose_the_first(path: Path, segments: list[SegmentInfo]) -> Span:
    return _lose(path, segments[:1])


def lose_one_inside(path: Path, segments: list[SegmentInfo]) -> Span:
    return _lose(path, segments[1:2])


def lose_the_last(path: Path, segments: list[SegmentInfo]) -> Span:
    return _lose(path, segments[-1:])


def lose_the_last_two(path: Path, segments: list[SegmentInfo]) -> Span:
    return _lose(path, segments[-2:])


def lose_all(path: Path, segments: list[SegmentInfo]) -> Span:
    return _lose(path, segments)


def empty_the_last(path: Path, segments: list[SegmentInfo]) -> Span:
    (path / segments[-1].name).write_bytes(b"")
    return segments[-1].first_index, segments[-1].last_index


def cut_the_last_entry(path: Path, segments: list[SegmentInfo]) -> Span:
    """Not one byte more or less."""
    file = path / segments[-1].name
    with read_log(path) as log:
        last = log.last_index
        (batch,) = log.scan(last, last + 1)
    file.write_bytes(file.read_bytes()[: batch["offset"][0].as_py()])
    return last, last


def cut_a_byte(path: Path, segments: list[SegmentInfo]) -> Span:
    data, stop = _end_of(path, segments)
    (path / segments[-1].name).write_bytes(data[: stop - 1])
    return segments[-1].last_index, segments[-1].last_index


def zero_the_end(path: Path, segments: list[SegmentInfo]) -> Span:
    data, stop = _end_of(path, segments)
    data[stop - 12 : stop] = bytes(12)
    (path / segments[-1].name).write_bytes(data)
    return segments[-1].last_index, segments[-1].last_index


def flip_the_last_byte(path: Path, segments: list[SegmentInfo]) -> Span:
    data, stop = _end_of(path, segments)
    data[stop - 1] ^= 1
    (path / segments[-1].name).write_bytes(data)
    return segments[-1].last_index, segments[-1].last_index


def flip_an_entry_of_the_last(path: Path, segments: list[SegmentInfo]) -> Span:
    """Entries that are sound follow it."""
    index = segments[-1].first_index + 1
    data, _ = _end_of(path, segments)
    data[data.index(ENTRIES[index - 1])] ^= 1
    (path / segments[-1].name).write_bytes(data)
    return index, index


def _lose(path: Path, segments: list[SegmentInfo]) -> Span:
    for segment in segments:
        (path / segment.name).unlink()
    return segments[0].first_index, segments[-1].last_index


def _end_of(path: Path, segments: list[SegmentInfo]) -> tuple[bytearray, int]:
    """The bytes of the last file, and where what was written to it ends."""
    data = bytearray((path / segments[-1].name).read_bytes())
    return data, len(data.rstrip(b"\0"))


HARMS: list[Harm] = [
    lose_the_first,
    lose_one_inside,
    lose_the_last,
    lose_the_last_two,
    lose_all,
    empty_the_last,
    cut_the_last_entry,
    cut_a_byte,
    zero_the_end,
    flip_the_last_byte,
    flip_an_entry_of_the_last,
]


class MarkContract:
    format: str
    options: ClassVar[dict[str, Any]]  # small segments: at least four

    @pytest.fixture(scope="class")
    @classmethod
    def logs(cls, tmp_path_factory: pytest.TempPathFactory) -> dict[End, Path]:
        """A log that was closed, and one whose writer was killed."""
        directory = tmp_path_factory.mktemp("logs")
        fill(str(directory / "closed"), cls.format, cls.options).close()
        arguments = str(directory / "killed"), cls.format, repr(cls.options)
        done = subprocess.run([sys.executable, "-c", _KILLED, *arguments], check=False)
        assert done.returncode == -9
        return {"closed": directory / "closed", "killed": directory / "killed"}

    @pytest.mark.parametrize("end", ["closed", "killed"])
    @pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
    def test_nothing_goes_missing_unnoticed(
        self, harm: Harm, end: End, logs: dict[End, Path], tmp_path: Path
    ) -> None:
        path = self.copied(logs[end], tmp_path)
        with read_log(path) as log:
            segments = log.segments()
            assert len(segments) >= 4
        lost = harm(path, segments)
        before = self.files(path)
        self.judge(path, lost)
        assert self.files(path) == before, "nothing may be cut off or written"
        self.repair(path)

    @pytest.mark.parametrize("end", ["closed", "killed"])
    def test_a_log_without_harm_is_clean(
        self, end: End, logs: dict[End, Path], tmp_path: Path
    ) -> None:
        path = self.copied(logs[end], tmp_path)
        with read_log(path) as log:
            assert (log.verify().verdict, log.damage) == ("clean", ())
        with open_log(path) as log:
            assert log.append([b"more"]) == len(ENTRIES) + 1
        with read_log(path) as log:
            assert log.verify().verdict == "clean"

    def test_a_log_whose_only_file_is_missing_is_not_a_new_log(self, tmp_path: Path) -> None:
        path = tmp_path / "log"
        fill(str(path), self.format, {}).close()
        with read_log(path) as log:
            (only,) = log.segments()
        (path / only.name).unlink()
        before = self.files(path)
        self.judge(path, (1, len(ENTRIES)))
        assert self.files(path) == before
        self.repair(path)
        with read_log(path) as log:
            assert log.first_index > len(ENTRIES), "an index was used twice"

    def test_a_log_that_lost_its_mark_is_not_clean(
        self, logs: dict[End, Path], tmp_path: Path
    ) -> None:
        path = self.copied(logs["closed"], tmp_path)
        (path / MARK).unlink()
        before = self.files(path)
        self.judge(path, None)
        with read_log(path) as log:
            assert "mark missing" in log.damage[0].why
        assert self.files(path) == before
        self.repair(path)
        assert (path / MARK).exists()

    def test_a_log_whose_mark_is_damaged_is_not_clean(
        self, logs: dict[End, Path], tmp_path: Path
    ) -> None:
        path = self.copied(logs["closed"], tmp_path)
        data = bytearray((path / MARK).read_bytes())
        data[30] ^= 1
        (path / MARK).write_bytes(data)
        with read_log(path) as log:
            assert log.verify().verdict == "clean", "the other slot is valid"
        data[4096 + 30] ^= 1
        (path / MARK).write_bytes(data)
        self.judge(path, None)
        self.repair(path)

    # Helpers

    def judge(self, path: Path, lost: Span | None) -> None:
        """Readers, verify and the owner report the damage; nothing is appended."""
        with read_log(path) as reader:
            self.is_reported(reader.damage, lost)
            assert reader.verify().verdict == "corrupt"
            assert reader.status().verdict == "corrupt"
            entries = dict(enumerate(ENTRIES, 1))
            assert judge_log(reader, reader.damage, entries, entries) == NOTICED
        with open_log(path) as owner:
            self.is_reported(owner.damage, lost)
            with pytest.raises(CorruptError):
                owner.append([b"over it"])

    def is_reported(self, damage: Any, lost: Span | None) -> None:
        found: list[Damage] = list(damage)
        assert found and not any(one.torn for one in found)
        for index in range(lost[0], lost[1] + 1) if lost else ():
            known = any(one.first_index <= index <= one.last_index for one in found)
            assert known, f"entry {index} is lost, but not reported: {found}"

    def repair(self, path: Path) -> None:
        """Repair sees the same, and ends with a clean log that takes entries."""
        disk = OsDisk(path)
        kind = format_of(disk)
        plan = kind.plan_repair(disk)
        assert [one for one in plan.damage if not one.torn]
        kind.apply_repair(disk, plan)
        with closing(open_log(path)) as log:
            assert log.damage == ()
            assert (log.first_index, log.last_index) == plan.kept
            assert log.append([b"after the repair"]) == plan.kept[1] + 1
        with read_log(path) as reader:
            assert reader.verify().verdict == "clean"

    def copied(self, log: Path, tmp_path: Path) -> Path:
        shutil.copytree(log, tmp_path / "log")
        return tmp_path / "log"

    def files(self, path: Path) -> dict[str, bytes]:
        return {
            str(one.relative_to(path)): one.read_bytes()
            for one in path.rglob("*")
            if one.is_file() and one.name != LOCK
        }
