import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.formats.raft_entry import RaftEntry

ARCHIVE = Path(__file__).parents[2] / "golden/raft_wal/raft-wal.tar.gz"
Copy = Callable[[str], Path]


def golden_names() -> list[str]:
    with tarfile.open(ARCHIVE) as archive:
        return sorted(n.removesuffix(".json") for n in archive.getnames() if n.endswith(".json"))


def pattern(index: int, size: int) -> bytes:
    return bytes((31 * index + 7 * j) & 255 for j in range(min(size, 256))) * (size // 256 + 1)


def entry(index: int, size: int, term: int = 1) -> RaftEntry:
    return RaftEntry(index, term, 0, pattern(index, size)[:size])


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("golden")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(directory, filter="data")
    return directory


@pytest.fixture
def copy_of(golden: Path, tmp_path: Path) -> Copy:
    def copy(name: str) -> Path:
        return Path(shutil.copytree(golden / name, tmp_path / name))

    return copy


@pytest.fixture
def manifest(golden: Path) -> Callable[[str], dict[str, Any]]:
    def read(name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((golden / f"{name}.json").read_text())
        return found

    return read
