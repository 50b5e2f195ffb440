import hashlib
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.disk import OsDisk
from holdfast.logs.file_log import FileEntry, FileLog
from holdfast.runtime import Runtime

ARCHIVE = Path(__file__).parents[2] / "golden/rlog/zmq-raft.tar.xz"
FROZEN_MS = 1_704_164_645_678  # 2024-01-02T03:04:05.678Z
HOST = "golden-host"
FROZEN = Runtime(now_ns=lambda: FROZEN_MS * 10**6, hostname=lambda: HOST)

Manifest = dict[str, Any]
Copy = Callable[[str], Path]


def golden_names() -> list[str]:
    with tarfile.open(ARCHIVE) as archive:
        return sorted(name for name in archive.getnames() if "/" not in name)


def payload(seed: str, size: int) -> bytes:
    """The rule by which golden data is made."""
    blocks = range((size + 31) // 32)
    return b"".join(hashlib.sha256(f"{seed}:{n}".encode()).digest() for n in blocks)[:size]


def entry(index: int, size: int = 16, term: int = 1) -> FileEntry:
    """Entry `index` as golden directories have it."""
    request_id = bytes.fromhex(f"65934e657a72676f6c{index:06x}")
    return FileEntry(term, payload(f"e{index}", size), 0, request_id)


def open_golden(path: Path, **options: Any) -> FileLog:
    """An owner with the clock and the host that golden directories were made with."""
    settings = {"request_ttl_ms": 60_000, "runtime": FROZEN}
    return FileLog(OsDisk(path), **{**settings, **options})


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("golden")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(directory, filter="data")
    return directory


@pytest.fixture
def copy_of(golden: Path, tmp_path: Path) -> Copy:
    """A directory to spoil."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(golden / name / "raft", tmp_path / name))

    return copy


@pytest.fixture(scope="session")
def manifest(golden: Path) -> Callable[[str], Manifest]:
    def read(name: str) -> Manifest:
        found: Manifest = json.loads((golden / name / "manifest.json").read_text())
        return found

    return read
