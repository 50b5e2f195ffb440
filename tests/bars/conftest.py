import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from holdfast.bars import BarStore
from holdfast.testing import SimDisk
from holdfast.testing.bars import open_store

ARCHIVES = Path(__file__).parents[1] / "golden"


class Golden:
    """What the real server wrote, unpacked."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def manifest(self, case: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.path / case / "manifest.json").read_text())
        return found

    def array(self, case: str, name: str) -> npt.NDArray[np.void]:
        array: npt.NDArray[np.void] = np.load(self.path / case / name)
        return array

    def root(self, case: str, target: Path, part: str = "root") -> Path:
        """A copy to work on."""
        return Path(shutil.copytree(self.path / case / part, target / f"{case}-{part}"))

    def year_files(self) -> list[Path]:
        found = sorted(self.path.glob("*/root/*/*/*/*.bin"))
        assert found
        return found

    def logs(self) -> list[Path]:
        found = (*self.path.glob("*/root/*.walfile"), *self.path.glob("*/wals/*.walfile"))
        assert found
        return sorted(found)


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    path = tmp_path_factory.mktemp("golden")
    for format in ("year_file", "market_wal"):
        with tarfile.open(ARCHIVES / format / "marketstore.tar.xz") as archive:
            archive.extractall(path, filter="data")
    return Golden(path)


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


@pytest.fixture
def store(disk: SimDisk) -> Iterator[BarStore]:
    with open_store(disk) as store:
        yield store
