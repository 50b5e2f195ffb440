"""What the scenarios of the owner contract share: forks that end in time, other processes."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from holdfast.testing.owners.stores import OwnedStore

LIMIT_S = 60


Errors = type[BaseException] | tuple[type[BaseException], ...]


def must_raise(kind: Errors, call: Callable[[], object]) -> BaseException:
    try:
        answer = call()
    except kind as error:
        return error
    raise AssertionError(f"{kind} was not raised; it returned {answer!r}")


def in_fork(step: Callable[[], object]) -> None:
    """Run `step` in a forked child; AssertionError unless it returns in time."""
    pid = os.fork()
    if not pid:
        signal.alarm(LIMIT_S)
        code = 1
        try:
            step()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child ended with {os.waitstatus_to_exitcode(status)}"


def compare(kind: OwnedStore, path: Path, wanted: list[int]) -> None:
    found = kind.read(path)
    assert found == wanted, f"{found} instead of {wanted}"


def copy_as_killed(source: Path, target: Path) -> None:
    """Copy a store as a kill would leave it: no background thread changed a file meanwhile."""
    for _ in range(1000):
        with suppress(FileNotFoundError, shutil.Error):  # a file was removed
            shutil.copytree(source, target)
            if _bytes_of(source) == _bytes_of(target):
                return
        shutil.rmtree(target)
    raise AssertionError(f"{source} does not settle")


def _bytes_of(directory: Path) -> dict[Path, bytes]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {path.relative_to(directory): path.read_bytes() for path in files}


def elsewhere(kind: OwnedStore, path: Path, scenario: str) -> subprocess.Popen[str]:
    """Start another process of this module."""
    command = [
        sys.executable,
        "-m",
        "holdfast.testing.owners.lives",
        kind.name,
        scenario,
        str(path),
    ]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def must_refuse_a_second_owner(kind: OwnedStore, path: Path) -> None:
    """Check that another process cannot become the owner."""
    with elsewhere(kind, path, "knock") as other:
        answer, _ = other.communicate(timeout=LIMIT_S)
    assert answer.startswith("LockedError"), answer
    assert str(os.getpid()) in answer or "unknown" in answer, answer
