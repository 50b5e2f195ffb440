"""Of many processes that create one store or one file at once, exactly one succeeds."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import linux
from holdfast.disk import OsDisk
from holdfast.doors import create_bars, create_kv, create_log, open_log, read_log
from holdfast.errors import ExistsError, LockedError
from holdfast.logs import opening
from holdfast.posix import Posix
from holdfast.testing.sim_disk import SimDisk

PROCESSES, ROUNDS = 3, 6
KINDS = ("file", "raft-wal", "shanghai", "file-log", "kv", "bars")

# Each process creates the same stores, in turn.  Before each it waits for the others.
PROGRAM = """
import sys
from pathlib import Path
from holdfast.disk import OsDisk
from holdfast.doors import create_bars, create_kv, create_log
from holdfast.errors import ExistsError, LockedError

root, me = Path(sys.argv[1]), sys.argv[2]
mine = me.encode() * 5000

def create(path, kind):
    if kind == "file":
        OsDisk(path).create("name", mine)
    elif kind == "kv":
        with create_kv(path, maintain=False) as kv:
            kv.put(b"who", mine).result()
    elif kind == "bars":
        create_bars(path, wal_size_max=70_000 + int(me)).close()
    else:
        with create_log(path, format=kind) as log:
            log.append([mine])

for line in sys.stdin:
    try:
        create(root / line.strip(), line.partition(" ")[0])
    except (FileExistsError, LockedError) as error:
        answer = type(error).__name__
    else:
        answer = "created"
    print(answer, flush=True)
"""


def test_one_of_many_processes_creates_it(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    try:
        for turn in range(ROUNDS * len(KINDS)):
            kind = KINDS[turn % len(KINDS)]
            for racer in racers:
                assert racer.stdin is not None
                racer.stdin.write(f"{kind} {turn}\n")
                racer.stdin.flush()
            answers = [racer.stdout.readline().strip() for racer in racers if racer.stdout]
            assert answers.count("created") == 1, f"{kind}: {answers}"
            assert set(answers) <= {"created", "ExistsError", "LockedError", "FileExistsError"}
            winner = str(answers.index("created")).encode()
            check(kind, tmp_path / f"{kind} {turn}", winner * 5000)
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()


def check(kind: str, path: Path, wanted: bytes) -> None:
    """What the winner wrote is there."""
    if kind == "file":
        assert [file.name for file in path.iterdir()] == ["name"]
        assert (path / "name").read_bytes() == wanted
    elif kind in opening.FORMATS:
        with read_log(path) as log:
            assert (log.last_index, log.read(1)) == (1, wanted)


def test_a_writer_that_comes_second_overwrites_nothing(tmp_path: Path) -> None:
    """Between the look and the rename another process creates the file."""

    class Late(Posix):
        def rename_new(self, *names: Any) -> None:
            if not (tmp_path / "x").exists():
                (tmp_path / "x").write_bytes(b"first")
            super().rename_new(*names)

    with pytest.raises(FileExistsError, match="x"):
        OsDisk(tmp_path, posix=Late()).create("x", b"second")
    OsDisk(tmp_path).create("y", b"y")
    (tmp_path / "x").unlink()
    with pytest.raises(FileExistsError, match="x"):
        OsDisk(tmp_path, posix=Late()).rename("y", "x")
    found = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert found == {"x": b"first", "y": b"y"}


def test_two_writers_of_one_side_file_do_not_mix(tmp_path: Path) -> None:
    """While one process replaces a file, another does: each file is whole."""
    other = OsDisk(tmp_path)

    class Slow(Posix):
        def fdatasync(self, fd: int) -> None:
            other.create("x", b"other " * 9, replace=True)
            super().fdatasync(fd)

    OsDisk(tmp_path, posix=Slow()).create("x", b"ours", replace=True)
    assert (tmp_path / "x").read_bytes() == b"ours"
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("links", [True, False])
def test_where_rename_cannot_refuse_a_name_a_link_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """NFS and some FUSE file systems; the last resort is for those without links."""
    monkeypatch.setattr(linux, "_renameat2", lambda: None)

    class Limited(Posix):
        def link(self, *names: Any) -> None:
            if not links:
                raise OSError(errno.EPERM, os.strerror(errno.EPERM))
            super().link(*names)

    disk = OsDisk(tmp_path, posix=Limited())
    disk.create("x", b"one")
    with pytest.raises(FileExistsError):
        disk.create("x", b"two")
    disk.create("y", b"three")
    with pytest.raises(FileExistsError):
        disk.rename("y", "x")
    disk.rename("y", "z")
    (tmp_path / "d").mkdir()
    disk.rename("d", "e")
    found = {file.name: file.is_dir() or file.read_bytes() for file in tmp_path.iterdir()}
    assert found == {"x": b"one", "z": b"three", "e": True}


@pytest.mark.parametrize("format", opening.FORMATS)
def test_a_log_that_was_created_meanwhile_is_not_opened(tmp_path: Path, format: str) -> None:
    """Both processes found nothing; the other has created a log and closed it."""
    disk, kind = SimDisk(), opening.FORMATS[format]
    looks: list[int] = []

    class Watched(SimDisk):
        def lock(self, name: str | None = None) -> Any:
            if not looks:
                looks.append(1)
                with opening.create(SimDisk(disk.posix), kind) as log:
                    log.append([b"theirs"])
            return super().lock(name)

    with pytest.raises(ExistsError):
        opening.create(Watched(disk.posix), kind)
    with kind.open_writer(disk) as log:
        assert log.read(1) == b"theirs"


def test_open_with_create_takes_what_another_has_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    real = OsDisk.lock

    def lock(disk: OsDisk, name: str | None = None) -> Any:
        monkeypatch.setattr(OsDisk, "lock", real)
        with create_log(path, format="shanghai") as log:
            log.append([b"theirs"])
        return disk.lock(name)

    monkeypatch.setattr(OsDisk, "lock", lock)
    with open_log(path, create=True) as log:
        assert log.read(1) == b"theirs"


def test_a_second_create_is_refused_while_the_first_is_open(tmp_path: Path) -> None:
    with create_log(tmp_path / "log"), pytest.raises((ExistsError, LockedError)):
        create_log(tmp_path / "log")
    with create_bars(tmp_path / "bars"), pytest.raises((ExistsError, LockedError)):
        create_bars(tmp_path / "bars")
    with create_kv(tmp_path / "kv"), pytest.raises(ExistsError):
        create_kv(tmp_path / "kv")
