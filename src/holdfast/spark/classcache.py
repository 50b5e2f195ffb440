"""Spark's classes, loaded and linked ahead of time, so that a session starts in half the time.

Java can save the classes that a program has loaded and map them at the next start (AppCDS, and from
Java 25 the AOT cache).  Such a file belongs to one JVM and one set of jars.  Its name has a digest
of both, so a new Spark or Java needs a new file.

Only `warm()` (`holdfast spark warm`) trains a cache.  Sessions use it if it exists.  A file is
complete or absent (written aside, synced, renamed), and one process at a time creates it.  Java
checks the file, and starts without it if it does not fit.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from holdfast.errors import UnsupportedError
from holdfast.spark.cachedir import cache_dir
from holdfast.spark.java import Java, find_java
from holdfast.spark.jvm import class_path, module_flags, spark_home

KEPT_MAX = 4
"""A file has some 200 MB; of more files than this, the least recently used are deleted."""

_AOT_MAJOR_MIN = 25
_TRAINING_SECONDS_MAX = 900
_NOT_FOR_TRAINING = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_SUBMIT_ARGS")


def warm(java: Java | None = None) -> Path:
    """Create the class cache of this Java and this Spark, if it is missing; return its path.

    This takes about a minute.  If another process is creating it, this call waits for that one.
    UnsupportedError: this Java cannot create one; sessions work without it.
    """
    java = java or find_java()
    path = cache_path(java)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the kernel releases it when its holder dies
        if not path.is_file():
            _make(java, path)
    return path


def cache_path(java: Java) -> Path:
    """Return the path of the class cache of this Java and Spark, whether it exists or not."""
    digest = hashlib.sha256()
    parts = [str(java.path.resolve()), java.banner, class_path(), *module_flags(java)]
    for jar in sorted((spark_home() / "jars").iterdir()):
        stat = jar.stat()
        parts.append(f"{jar.name} {stat.st_size} {stat.st_mtime_ns}")
    digest.update("\n".join(parts).encode())
    suffix = "aot" if java.major >= _AOT_MAJOR_MIN else "jsa"
    return cache_dir() / f"classes-{java.major}-{digest.hexdigest()[:16]}.{suffix}"


def use_flags(java: Java) -> list[str]:
    """Return the flags that start this Java with its class cache; none if there is no cache."""
    path = cache_path(java)
    if not path.is_file():
        return []
    _mark_used(path)
    option = "AOTCache" if java.major >= _AOT_MAJOR_MIN else "SharedArchiveFile"
    return [f"-XX:{option}={path}"]


def training_flags(java: Java, output: Path) -> list[str]:
    """Return the flags with which this Java writes a class cache when it exits."""
    if java.major >= _AOT_MAJOR_MIN:
        return [f"-XX:AOTCacheOutput={output}"]
    # The archive has only classes: the second compiler's work would be lost.
    return [f"-XX:ArchiveClassesAtExit={output}", "-XX:TieredStopAtLevel=1"]


def _make(java: Java, path: Path) -> None:
    """Train a cache.  The caller holds the lock."""
    for leftover in path.parent.glob(f"{path.stem}.part*"):
        leftover.unlink()
    part = path.with_suffix(f".part{path.suffix}")
    run = subprocess.run(
        [sys.executable, "-m", "holdfast.spark.training", str(java.path), str(part)],
        capture_output=True,
        text=True,
        timeout=_TRAINING_SECONDS_MAX,
        env={key: value for key, value in os.environ.items() if key not in _NOT_FOR_TRAINING},
    )
    if run.returncode != 0 or not part.is_file():
        _failure(path).write_text(run.stderr, encoding="utf-8")
        raise UnsupportedError(f"{java} could not create a class cache; see {_failure(path)}")
    with part.open("rb") as file:
        os.fsync(file.fileno())  # Java maps it without reading it all: a hole would crash it
    part.chmod(0o644)
    part.replace(path)
    _failure(path).unlink(missing_ok=True)
    _remove_unused(path.parent)


def _failure(path: Path) -> Path:
    return path.with_suffix(".failed")


def _mark_used(path: Path) -> None:
    # A cache in a read-only place is used too, but cannot be marked.
    if os.access(path, os.W_OK):
        os.utime(path)


def _remove_unused(directory: Path) -> None:
    caches = [path for path in directory.glob("classes-*") if path.suffix in (".aot", ".jsa")]
    finished = [path for path in caches if ".part" not in path.name]
    finished.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in finished[KEPT_MAX:]:
        path.unlink(missing_ok=True)
