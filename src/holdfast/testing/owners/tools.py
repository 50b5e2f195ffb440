"""What the scenarios of the owner contract share: forks that end in time, other processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from holdfast.testing.owners.stores import OwnedStore

LIMIT_S = 60


def must_raise(kind: type[BaseException], call: Callable[[], object]) -> BaseException:
    try:
        answer = call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised; it returned {answer!r}")


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


def elsewhere(kind: OwnedStore, path: Path, scenario: str) -> subprocess.Popen[str]:
    """Another process of this module."""
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
    """Tried by another process: locks of one process's own would tell nothing."""
    with elsewhere(kind, path, "knock") as other:
        answer, _ = other.communicate(timeout=LIMIT_S)
    assert answer.startswith("LockedError"), answer
    assert str(os.getpid()) in answer or "unknown" in answer, answer
