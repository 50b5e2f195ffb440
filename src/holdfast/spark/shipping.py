"""The package as a zip file for the workers of a cluster.

Python data sources travel to the executors by reference, so `holdfast` must be importable there,
in the same version as on the driver.  Sending the driver's own copy ensures both without an
installation on every machine.  What it imports (numpy, pyarrow, cramjam) must be installed there.
"""

import hashlib
import io
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from holdfast.spark.cachedir import cache_dir, write_atomically

_EPOCH = (1980, 1, 1, 0, 0, 0)


def package_zip() -> Path:
    """Return the path of a zip of the running `holdfast`, named after its contents."""
    members = dict(sorted(_members(files("holdfast"), "holdfast")))
    digest = hashlib.sha256()
    for name, data in members.items():
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    path = cache_dir() / f"holdfast-{digest.hexdigest()[:16]}.zip"
    write_atomically(path, _zip(members))
    return path


def _members(directory: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for child in directory.iterdir():
        if child.name == "__pycache__":
            continue
        if child.is_dir():
            yield from _members(child, f"{name}/{child.name}")
        else:
            yield f"{name}/{child.name}", child.read_bytes()


def _zip(members: dict[str, bytes]) -> bytes:
    """Write a zip whose bytes depend only on its members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
