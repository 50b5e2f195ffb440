"""The per-user cache directory: class caches, shims, zips for workers.

It is `$HOLDFAST_CACHE`, else `$XDG_CACHE_HOME/holdfast`, else `~/.cache/holdfast`.  A file in it is
either whole or absent, and deleting all of it costs time only.
"""

import os
import tempfile
from pathlib import Path


def cache_dir() -> Path:
    """Return the directory of the cache.  It may not exist yet."""
    if chosen := os.environ.get("HOLDFAST_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").absolute() / "holdfast"


def write_atomically(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a whole file to `path`, unless it has the same bytes already."""
    if path.is_file() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink()
        raise
