import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import holdfast
from holdfast.cli.app import app

Run = Callable[..., Result]
WAIT_SECONDS = 30  # for a process to end that is about to


def start(*args: object, **options: object) -> subprocess.Popen[bytes]:
    """The command in a process of its own."""
    command = [sys.executable, "-c", "from holdfast.cli import main; main()", *map(str, args)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, **options)  # type: ignore[call-overload, no-any-return]


@pytest.fixture
def run() -> Run:
    """The command, run here."""

    def invoke(*args: object, stdin: str = "") -> Result:
        return CliRunner().invoke(app, [str(arg) for arg in args], input=stdin)

    return invoke


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log of three segments: 1..4 and 5..8 sealed, 9..10 active."""
    with holdfast.create_log(tmp_path / "log", segment_size_max=80) as log:
        for first in (1, 5, 9):
            log.append([b"entry %d" % i for i in range(first, min(first + 4, 11))])
    return tmp_path / "log"


@pytest.fixture
def damaged(path: Path) -> Path:
    """The same with a flipped bit in entry 6."""
    file = path / "segment_00002.wal"
    data = bytearray(file.read_bytes())
    data[data.index(b"entry 6")] ^= 1
    file.write_bytes(data)
    return path


@pytest.fixture
def torn(path: Path) -> Path:
    """The same with an append that a crash cut short."""
    with (path / "segment_00003.wal").open("ab") as file:
        file.write(b"\0\0\0\x07\1\2\3\4ent")
    return path
