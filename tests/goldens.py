"""Stores that released versions wrote, and what must be in them: tests/golden/VERSION."""

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"


class Goldens:
    """The stores of one version."""

    def __init__(self, version: str) -> None:
        self._directory = GOLDEN / version
        self.expected: dict[str, dict[str, Any]] = json.loads(
            (self._directory / "expected.json").read_text()
        )

    def names(self, kind: str, *having: str) -> list[str]:
        """The stores of a kind whose expectations name all of `having`."""
        return [
            name
            for name, expected in self.expected.items()
            if expected["kind"] == kind and all(expected.get(key) for key in having)
        ]

    def unpack(self, name: str, parent: Path) -> Path:
        """Unpack an archive into a new directory, and return that."""
        target = parent / name
        with tarfile.open(self._directory / f"{name}.tar.gz") as archive:
            archive.extractall(target, filter="data")
        return target


def move_parquet(sink: Path, old: str, new: Path) -> None:
    """Let Spark's record of a Parquet sink name the files at the place where they are now."""
    record = sink / "_spark_metadata"
    for path in record.iterdir():
        if path.suffix == ".crc":
            path.unlink()
        else:
            text = path.read_text()
            assert f"file://{old}/" in text
            path.write_text(text.replace(f"file://{old}/", f"file://{new}/"))


def digests(directory: Path) -> dict[str, str]:
    """Every directory, and every file with a digest of its bytes."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else "directory"
        for path in directory.rglob("*")
    }
