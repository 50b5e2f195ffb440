"""Spark's classes, loaded and linked ahead of time, so that a session starts sooner.

Java can save the classes that a program has loaded and map them in at the next start (AppCDS, and
from Java 25 the AOT cache).  Such a file belongs to one JVM and to one set of jars, so its name
holds a digest of both: a file of that name is the right one, and a new Spark makes a new name.

A file appears whole or not at all (written aside, synced, renamed), and one process at a time makes
it.  Java itself checks it and starts without it when it does not fit.

A session that finds no file leaves making it to a detached process of the lowest priority, which
begins when the session's own process ends.  At that moment nobody waits for a result any more, so
the first run is as fast as without it, and it needs no thread or timer inside the user's program.
A program that is killed or never ends does not get there: it can call `warm()`.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import UnsupportedError
from holdfast.spark.cachedir import cache_dir
from holdfast.spark.java import Java, find_java
from holdfast.spark.jvm import class_path, module_flags, spark_home

KEPT_MAX = 4
"""A file is some 200 MB; the least recently used beyond these are removed."""

_AOT_MAJOR_MIN = 25
_TRAINING_SECONDS_MAX = 900
_NOT_FOR_TRAINING = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_SUBMIT_ARGS")
_BACKGROUND = "from holdfast.spark.classcache import warm_quietly; warm_quietly()"


def warm(java: Java | None = None) -> Path:
    """Make the class cache of this Java and this Spark, unless it is there; return its path.

    It takes about a minute.  When another process is making it, this waits for that
    one.  UnsupportedError: this Java cannot make one; sessions work all the same.
    """
    java = java or find_java()
    path = cache_path(java)
    with _lock(path, blocking=True):
        if not path.is_file():
            _make(java, path)
    return path


def warm_quietly() -> None:
    """`warm()` for the background: gives way to everyone, and fails at most once per Spark."""
    os.nice(19)
    java = find_java()
    path = cache_path(java)
    with _lock(path, blocking=False) as locked:
        if locked and not path.is_file() and not _failure(path).exists():
            _make(java, path)


def warm_at_exit(java: Java) -> None:
    """Start `warm_quietly` in a process that outlives this one.  To be called when it ends."""
    path = cache_path(java)
    # Without a place to write, it would fail after all the work, at every exit.
    if path.exists() or _failure(path).exists() or not _can_write(path.parent):
        return
    subprocess.Popen(
        [sys.executable, "-c", _BACKGROUND],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ).returncode = 0  # it is meant to outlive us, so its Popen must not complain of that


def cache_path(java: Java) -> Path:
    """Where the class cache of this Java and of Spark's jars is, or would be."""
    digest = hashlib.sha256()
    parts = [str(java.path.resolve()), java.banner, class_path(), *module_flags(java)]
    for jar in sorted((spark_home() / "jars").iterdir()):
        stat = jar.stat()
        parts.append(f"{jar.name} {stat.st_size} {stat.st_mtime_ns}")
    digest.update("\n".join(parts).encode())
    suffix = "aot" if java.major >= _AOT_MAJOR_MIN else "jsa"
    return cache_dir() / f"classes-{java.major}-{digest.hexdigest()[:16]}.{suffix}"


def use_flags(java: Java) -> list[str]:
    """The flags that start this Java with its class cache; none when there is no cache."""
    path = cache_path(java)
    if not path.is_file():
        return []
    _mark_used(path)
    option = "AOTCache" if java.major >= _AOT_MAJOR_MIN else "SharedArchiveFile"
    return [f"-XX:{option}={path}"]


def training_flags(java: Java, output: Path) -> list[str]:
    """The flags with which this Java writes a class cache as it exits."""
    if java.major >= _AOT_MAJOR_MIN:
        return [f"-XX:AOTCacheOutput={output}"]
    # It keeps classes alone, so what the second compiler would find out is of no use.
    return [f"-XX:ArchiveClassesAtExit={output}", "-XX:TieredStopAtLevel=1"]


def _make(java: Java, path: Path) -> None:
    """The caller holds the lock."""
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
        raise UnsupportedError(f"{java} made no class cache; the reason is in {_failure(path)}")
    with part.open("rb") as file:
        os.fsync(file.fileno())  # Java maps it without reading it all: a hole would crash it
    part.chmod(0o644)
    part.replace(path)
    _failure(path).unlink(missing_ok=True)
    _remove_unused(path.parent)


def _failure(path: Path) -> Path:
    return path.with_suffix(".failed")


def _can_write(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that is read-only or full: sessions work without a cache
        return False
    return os.access(directory, os.W_OK)


def _mark_used(path: Path) -> None:
    # A cache in a read-only place is used all the same; it only cannot be marked.
    if os.access(path, os.W_OK):
        os.utime(path)


def _remove_unused(directory: Path) -> None:
    caches = [path for path in directory.glob("classes-*") if path.suffix in (".aot", ".jsa")]
    finished = [path for path in caches if ".part" not in path.name]
    finished.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in finished[KEPT_MAX:]:
        path.unlink(missing_ok=True)


@contextmanager
def _lock(path: Path, *, blocking: bool) -> Iterator[bool]:
    """Whether we have it.  The kernel releases it when its holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
