"""Logs of one format made into another's: nothing is lost, changed or done twice."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.disk import OsDisk
from holdfast.doors import open_log, read_log
from holdfast.errors import ChangedError, CorruptError, HoldfastError, LockedError
from holdfast.formats.raft_entry import RaftEntry, Time, encode_entry, encode_time
from holdfast.logs.conversion import carry_over, convert_log
from holdfast.logs.log import LogReader
from holdfast.logs.opening import FORMATS
from holdfast.logs.origin import ORIGIN, Origin, read_origin
from holdfast.logs.raft_wal import RAFT_CODEC, RaftWal, RaftWalReader
from holdfast.logs.shanghai import Retention, ShanghaiLog
from holdfast.testing.sim_disk import PowerLost, SimDisk

KILLS = 5
WAIT_SECONDS = 30
AT = encode_time(Time(1_700_000_000_123_456_789, 3600))


def rows(path: Path) -> list[tuple[int, bytes]]:
    with closing(read_log(path)) as log:
        return rows_of(log)


def rows_of(log: LogReader) -> list[tuple[int, bytes]]:
    batches = [batch.select(["index", "payload"]).to_pylist() for batch in log.scan()]
    return [(row["index"], row["payload"]) for batch in batches for row in batch]


def entries(count: int, first: int = 1000) -> list[RaftEntry]:
    return [
        RaftEntry(i, i // 7, i % 256, b"%d" % i * (i % 9), b"ext" * (i % 2), AT)
        for i in range(first, first + count)
    ]


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """What a Raft server has: entries 1000..1199 in many segments, a term and a vote."""
    with RaftWal(OsDisk(tmp_path / "server"), codec=RAFT_CODEC, segment_size_max=2000) as wal:
        wal.set_uint64(b"CurrentTerm", 28)
        wal.set(b"LastVoteCand", b"\xff here")
        wal.store_logs(entries(120))
        wal.store_logs(entries(80, 1120))
    return tmp_path / "server"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    with ShanghaiLog(OsDisk(tmp_path / "plain"), segment_size_max=500) as log:
        log.append([b"entry %d" % i for i in range(50)])
        log.append([b"entry %d" % i for i in range(50, 100)])
        log.append([b"x" * 900])
    return tmp_path / "plain"


def test_there_and_back_again_is_the_same_log(server: Path, tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    done = convert_log(server, there, "shanghai", segment_size_max=1000)
    assert (done.first_index, done.last_index, done.shift, done.verdict) == (1000, 1199, 0, "equal")
    assert rows(there) == rows(server) == [(e.index, encode_entry(e)) for e in entries(200)]
    convert_log(there, back, "raft-wal")
    with closing(RaftWalReader(OsDisk(back))) as log:
        assert [log.get_log(i) for i in range(1000, 1200)] == entries(200)
        assert log.stable == {
            b"CurrentTerm": (28).to_bytes(8, "little"),
            b"LastVoteCand": b"\xff here",
        }
        assert log.codec == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["back", "server", "there"]


def test_a_codec_of_ones_own_comes_back_too(tmp_path: Path) -> None:
    with RaftWal(OsDisk(tmp_path / "a"), codec=70_000, first_index=2**40) as wal:
        wal.append([b"mine", b"too"])
    convert_log(tmp_path / "a", tmp_path / "b", "shanghai")
    convert_log(tmp_path / "b", tmp_path / "c", "raft-wal")
    assert rows(tmp_path / "c") == [(2**40, b"mine"), (2**40 + 1, b"too")]
    with closing(RaftWalReader(OsDisk(tmp_path / "c"))) as log:
        assert log.codec == 70_000


@pytest.mark.parametrize("format", FORMATS)
def test_a_log_of_any_format_gets_other_segments(plain: Path, tmp_path: Path, format: str) -> None:
    shown: list[tuple[int, int]] = []
    done = convert_log(
        *(plain, tmp_path / "new", format),
        segment_size_max=700,
        on_progress=lambda done, total: shown.append((done, total)),
    )
    assert rows(tmp_path / "new") == rows(plain)
    assert done.files >= 3
    assert (shown[0], shown[-1]) == ((0, 202), (202, 202))
    assert shown == sorted(shown)


def test_an_empty_log_keeps_its_first_index(tmp_path: Path) -> None:
    RaftWal(OsDisk(tmp_path / "a"), first_index=7).close()
    assert convert_log(tmp_path / "a", tmp_path / "b", "shanghai").entries == 0
    with open_log(tmp_path / "b") as log:
        assert (log.first_index, log.last_index) == (7, 6)


def test_raft_entries_keep_the_index_they_name(tmp_path: Path) -> None:
    with ShanghaiLog(OsDisk(tmp_path / "a")) as log:
        log.append([encode_entry(entry) for entry in entries(100, 501)])
    done = convert_log(tmp_path / "a", tmp_path / "b", "raft-wal", codec=RAFT_CODEC)
    assert done.shift == 500
    with closing(RaftWalReader(OsDisk(tmp_path / "b"))) as guest:
        assert guest.get_log(600) == entries(1, 600)[0]


@pytest.mark.parametrize("format", FORMATS)
def test_power_may_fail_at_every_step(plain: Path, server: Path, format: str) -> None:
    """Whatever a power cut leaves of the target, the next run makes the same log of it."""
    source, kind = (server if format == "shanghai" else plain), FORMATS[format]
    with closing(read_log(source)) as guest:
        origin = Origin("source", guest.first_index, {"raft-wal": {"codec": 65_536, "stable": {}}})
        crashes, is_done = 0, False
        while not is_done:
            disk, random = SimDisk(), Random(crashes)
            disk.posix.dies_at = crashes
            try:
                carry_over(guest, disk, kind, origin, segment_size_max=8000)
                is_done, disk.posix.dies_at = True, None
            except PowerLost:
                disk = disk.after_power_cut(random) if crashes % 3 else disk.after_kill()
            carry_over(guest, disk, kind, origin, segment_size_max=8000)
            copy = kind.open_reader(disk)
            assert rows_of(copy) == rows_of(guest)
            crashes += 1
    assert crashes > 20


def test_a_killed_conversion_can_be_continued(tmp_path: Path) -> None:
    source, target, random = tmp_path / "source", tmp_path / "target", Random(5)
    with RaftWal(OsDisk(source), codec=65_536) as wal:
        for first in range(0, 40_000, 1000):
            wal.append([b"%d" % i * 20 for i in range(first, first + 1000)])
    program = "import sys; from holdfast.logs.conversion import convert_log as run; "
    program += "run(*sys.argv[1:], segment_size_max=16384)"
    command = [sys.executable, "-c", program, str(source), str(target), "shanghai"]
    kills = 0
    while kills < KILLS:
        had = size_of(tmp_path / "target.converting")
        process = subprocess.Popen(command)
        deadline = time.monotonic() + WAIT_SECONDS
        while size_of(tmp_path / "target.converting") <= had and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(random.random() * 0.1)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it was done before it was killed"
        assert not target.exists()
        kills += 1
    done = convert_log(source, target, "shanghai")
    assert 0 < done.resumed_after < 40_000
    assert rows(target) == rows(source)
    again = convert_log(source, target, "shanghai")  # killed before it could tell
    assert (again.resumed_after, again.verdict) == (40_000, "equal")


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.glob("*.wal"))


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    with RaftWal(OsDisk(tmp_path / "a"), codec=65_536, first_index=5) as wal:
        wal.append([b"x"] * 9 + [b""] + [b"y"] * 9)
    with pytest.raises(
        ValueError, match=r"entry 14 cannot be stored in a shanghai log: .*be empty"
    ):
        convert_log(tmp_path / "a", tmp_path / "b", "shanghai")
    with ShanghaiLog(OsDisk(tmp_path / "c")) as log:
        log.append([encode_entry(entry) for entry in entries(90)])
        log.append([b"no entry"])
    with pytest.raises(ValueError, match=r"entry 91 cannot be stored in a raft-wal log: .*Raft"):
        convert_log(tmp_path / "c", tmp_path / "d", "raft-wal", codec=RAFT_CODEC)
    assert not (tmp_path / "d").exists()


def test_a_difference_is_found(plain: Path, tmp_path: Path) -> None:
    target = tmp_path / "new"
    convert_log(plain, target, "raft-wal")
    with RaftWal(OsDisk(target)) as wal:
        wal.truncate_tail(98)
        wal.append([b"entry 98", b"entry 9!", b"x" * 900])
    with pytest.raises(CorruptError, match=r"not equal .* another payload of entry 100"):
        convert_log(plain, target, "raft-wal")


def test_damage_is_not_converted(plain: Path, tmp_path: Path) -> None:
    file = plain / "segment_00001.wal"
    data = bytearray(file.read_bytes())
    data[data.index(b"entry 9")] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptError, match="entry 10"):
        convert_log(plain, tmp_path / "new", "raft-wal")
    (plain / "segment_00002.wal").unlink()
    with pytest.raises(CorruptError, match="repair the log first"):
        convert_log(plain, tmp_path / "other", "raft-wal")
    assert not (tmp_path / "new").exists()


def test_what_another_conversion_left_is_refused(plain: Path, server: Path, tmp_path: Path) -> None:
    new, half = tmp_path / "new", tmp_path / "new.converting"
    shutil.copytree(plain, half)
    with pytest.raises(HoldfastError, match="that no conversion has made"):
        convert_log(plain, new, "shanghai")
    with pytest.raises(HoldfastError, match="holds a shanghai log, not a raft-wal one"):
        convert_log(plain, new, "raft-wal")
    shutil.rmtree(half)
    shutil.move(new_of(plain, tmp_path), half)
    with pytest.raises(HoldfastError, match=f"holds entries of {plain}"):
        convert_log(server, new, "shanghai")
    with ShanghaiLog(OsDisk(plain)) as log:
        log.rotate()
        log.trim(Retention(before=51))
    with ShanghaiLog(OsDisk(half)), pytest.raises(LockedError):
        convert_log(plain, new, "shanghai")
    (half / ORIGIN).write_bytes(b"[]")
    with pytest.raises(CorruptError, match="not an object with the fields source"):
        read_origin(OsDisk(half))


def new_of(source: Path, tmp_path: Path) -> str:
    convert_log(source, tmp_path / "made", "shanghai")
    return str(tmp_path / "made")


def test_invalid_targets_and_formats_are_refused(plain: Path, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match="convert into a new directory"):
        convert_log(plain, plain, "shanghai")
    with pytest.raises(ValueError, match="invalid log format 'parquet'"):
        convert_log(plain, tmp_path / "new", "parquet")


def killed_at(event: int, source: Path, target: Path, format: str) -> bool:
    """Convert in a process that kills itself at that event; return whether it came to it.

    Events are the calls of `on_progress`, then before and after the target gets its name.
    """
    child = os.fork()
    if child == 0:
        seen = 0

        def happens(*_: object) -> None:
            nonlocal seen
            if seen == event:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1

        rename = OsDisk.rename

        def renaming(disk: OsDisk, name: str, new: str, *, replace: bool = False) -> None:
            if name.endswith(".converting"):
                happens()
            rename(disk, name, new, replace=replace)
            if name.endswith(".converting"):
                happens()

        OsDisk.rename = renaming  # type: ignore[method-assign, assignment]
        try:
            convert_log(source, target, format, on_progress=happens, segment_size_max=4096)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def source_of(path: Path, format: str) -> Any:
    log = FORMATS[format].open_writer(OsDisk(path), segment_size_max=4096)
    for first in range(1, 100, 20):
        log.append([b"entry %d " % index * 9 for index in range(first, first + 20)])
        log.rotate()
    return log


@pytest.mark.parametrize(("one", "two"), [(one, two) for one in FORMATS for two in FORMATS])
def test_a_conversion_that_is_killed_at_any_event_can_be_continued(
    tmp_path: Path, one: str, two: str
) -> None:
    source, event, kills = tmp_path / "source", 0, 0
    source_of(source, one).close()
    while killed_at(event, source, tmp_path / f"target-{event}", two):
        # Again and again, each time a little further.
        killed_at(event // 2, source, tmp_path / f"target-{event}", two)
        done = convert_log(source, tmp_path / f"target-{event}", two, segment_size_max=4096)
        assert (done.entries, done.shift, done.verdict) == (100, 0, "equal")
        assert rows(tmp_path / f"target-{event}") == rows(source)
        event, kills = event + 2 + event // 3, kills + 1
    assert kills >= 4
    assert not list(tmp_path.glob("*.converting"))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("event", [0, 5])
def test_a_source_that_was_trimmed_since_is_converted_from_its_beginning(
    tmp_path: Path, format: str, event: int
) -> None:
    source = tmp_path / "source"
    with closing(source_of(source, "raft-wal")) as log:
        assert killed_at(event, source, tmp_path / "target", format)
        log.trim(Retention(before=61))
        done = convert_log(source, tmp_path / "target", format)
        assert (done.first_index, done.resumed_after, done.shift) == (61, 0, 0)
        assert rows(tmp_path / "target") == rows(source)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("count", [1, 300])
def test_a_source_that_was_rolled_back_since_is_converted_from_its_beginning(
    tmp_path: Path, format: str, count: int
) -> None:
    source = tmp_path / "source"
    with closing(source_of(source, "raft-wal")) as log:
        assert killed_at(8, source, tmp_path / "target", format)
        log.truncate_tail(5)
        log.append([b"other %d" % number for number in range(count)])
        done = convert_log(source, tmp_path / "target", format)
        assert (done.last_index, done.resumed_after) == (5 + count, 0)
        assert rows(tmp_path / "target") == rows(source)


@pytest.mark.parametrize("format", FORMATS)
def test_a_half_made_target_that_is_cleared_may_be_killed_too(
    plain: Path, tmp_path: Path, format: str
) -> None:
    """Power fails at every step of a run that begins again, because the source was trimmed."""
    kind, crashes, is_done = FORMATS[format], 0, False
    shutil.copytree(plain, tmp_path / "whole")
    with closing(read_log(tmp_path / "whole")) as whole:
        before = Origin("source", whole.first_index, {})
        with ShanghaiLog(OsDisk(plain)) as log:
            log.trim(Retention(before=51))
        with closing(read_log(plain)) as guest:
            assert guest.first_index > whole.first_index
            origin = replace(before, first_index=guest.first_index)
            while not is_done:
                disk = SimDisk()
                carry_over(whole, disk, kind, before, segment_size_max=8000)
                disk.posix.operations, disk.posix.dies_at = 0, crashes
                try:
                    carry_over(guest, disk, kind, origin, segment_size_max=8000)
                    is_done, disk.posix.dies_at = True, None
                except PowerLost:
                    cut = disk.after_power_cut(Random(crashes))
                    disk = cut if crashes % 3 else disk.after_kill()
                carry_over(guest, disk, kind, origin, segment_size_max=8000)
                with closing(kind.open_reader(disk)) as copy:
                    assert rows_of(copy) == rows_of(guest)
                crashes += 1
    assert crashes > 10


@pytest.mark.parametrize("one", FORMATS)
@pytest.mark.parametrize("times", [3, 1000])
def test_a_source_whose_owner_removes_files_is_converted_again(
    tmp_path: Path, one: str, times: int
) -> None:
    """The owner trims while the entries are copied: a few times, or without an end."""
    source, trims = tmp_path / "source", 0
    with closing(source_of(source, one)) as log:
        if one == "file-log":
            log.close()
            options = {"request_ttl_ms": None, "requests_max": 1}  # files can soon go
            log = FORMATS[one].open_writer(OsDisk(source), **options)

        def trim(done: int, total: int) -> None:
            nonlocal trims
            if done and done < total // 2 and trims < times:
                trims += 1
                for _ in range(4):
                    log.append([b"more"] * 20)
                    log.rotate()
                until = log.last_index - 40
                if one == "file-log":
                    log.create_snapshot(until, b"state")
                log.trim(Retention(before=until + 1))

        target = tmp_path / "target"
        if times > 100:
            with pytest.raises(ChangedError, match=r"run again, or register a replica"):
                convert_log(source, target, "raft-wal", on_progress=trim)
            assert not target.exists()
        else:
            done = convert_log(source, target, "raft-wal", on_progress=trim)
            assert done.first_index == log.first_index > 1
            assert rows(target) == rows(source)
        log.close()
