import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import holdfast
from holdfast.bars import BarStore
from holdfast.cli.app import app
from holdfast.disk import OsDisk
from holdfast.doors import open_bars
from holdfast.posix import Posix
from holdfast.runtime import Runtime

Run = Callable[..., Result]
WAIT_SECONDS = 30  # for a process to end that is about to


def start(*args: object, **options: object) -> subprocess.Popen[bytes]:
    """The command in a process of its own."""
    command = [sys.executable, "-c", "from holdfast.cli import main; main()", *map(str, args)]
    pipe = subprocess.PIPE
    options = {"stdin": pipe, **options}
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, **options)  # type: ignore[call-overload, no-any-return]


@pytest.fixture
def run() -> Run:
    """The command, run here."""

    def invoke(*args: object, stdin: str = "") -> Result:
        return CliRunner().invoke(app, [str(arg) for arg in args], input=stdin)

    return invoke


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log of three segments: 1..4 and 5..8 sealed, 9..10 active."""
    with holdfast.create_log(tmp_path / "log", format="shanghai", segment_size_max=80) as log:
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


NOBODYS = Runtime(process_id=lambda: 2**22 + 1)  # no process has this id


def minute_bars(symbol: str, count: int, first_price: float = 100) -> pa.Table:
    """Bars of 2024-01-02 from 14:30 on."""
    start = np.datetime64("2024-01-02T14:30", "ns")
    opens = first_price + np.arange(count, dtype=float)
    return pa.table(
        {
            "symbol": [symbol] * count,
            "time": start + np.arange(count) * np.timedelta64(60, "s"),
            **{"Open": opens, "High": opens + 2, "Low": opens - 2, "Close": opens + 1},
            "Volume": np.arange(1, count + 1),
        }
    )


@pytest.fixture(scope="session")
def market(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `root` and `killed` are copies of."""
    path = tmp_path_factory.mktemp("market") / "root"
    with open_bars(path, create=True) as store:
        store.write(minute_bars("A", 10), "1Min", "OHLCV")
        store.write(minute_bars("B", 3, 50), "1Min", "OHLCV")
        ticks = {"time": np.array([1704205800 * 10**9, 1704205815 * 10**9]), "Price": [1.5, 2.5]}
        store.write(ticks, "1Min", "TICK", symbol="A", is_variable=True)
    copy(path, path.with_name("killed"))
    with BarStore(OsDisk(path.with_name("killed")), create=True, runtime=NOBODYS) as store:
        for symbol, price in (("A", 7.0), ("C", 9.0)):
            store.write(minute_bars(symbol, 1, price), "1Min", "OHLCV")
        copy(path.with_name("killed"), path.with_name("left"))
    return path.parent


def copy(source: Path, target: Path) -> Path:
    """A copy of a root, its holes included."""
    subprocess.run(["cp", "-r", "--sparse=always", source, target], check=True)
    return target


@pytest.fixture
def root(market: Path, tmp_path: Path) -> Path:
    """Ten bars of A, three of B, two ticks of A, all in the year files."""
    return copy(market / "root", tmp_path / "market")


@pytest.fixture
def killed(market: Path, tmp_path: Path) -> Path:
    """The same, and one more bar of A and of C that the owner's death has left in its log."""
    return copy(market / "left", tmp_path / "left")


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A function that lets the kernel refuse to open files whose path ends with a name."""
    honest, names = Posix.open, list[str]()

    def open_or_fail(self: Posix, path: str, flags: int, at: int | None = None) -> int:
        if any(path.endswith(name) for name in names):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return honest(self, path, flags, at)

    monkeypatch.setattr(Posix, "open", open_or_fail)
    return names.append


def log_of(path: Path) -> Path:
    (log,) = path.glob("WALFile.*")
    return log


def flip(file: Path, offset: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(offset)
        (byte,) = opened.read(1)
        opened.seek(offset)
        opened.write(bytes([byte ^ 0x55]))
