"""Owners that are forked, moved, interrupted and robbed of their lock: one scenario a process.

    python -m holdfast.testing.owner_lives KIND SCENARIO PATH

KIND is one of holdfast.testing.owned_stores.KINDS.  Exit code 0 if every promise held; else a
traceback says which did not.  Each scenario has a process of its own, so that it can fork without
copying another's threads, and so that a deadlock ends in a signal: every wait has a limit.
"""

import argparse
import faulthandler
import multiprocessing
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any

from holdfast.errors import HoldfastError, LockedError, NotOwnerError
from holdfast.testing.owned_stores import KINDS, OwnedStore

LIMIT_S = 60
FORKS, INTERRUPTS, REENTRIES = 20, 40, 3

Scenario = Callable[[OwnedStore, Path], None]


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
    command = [sys.executable, "-m", "holdfast.testing.owner_lives", kind.name, scenario, str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def must_refuse_a_second_owner(kind: OwnedStore, path: Path) -> None:
    """Tried by another process: locks of one process's own would tell nothing."""
    with elsewhere(kind, path, "knock") as other:
        answer, _ = other.communicate(timeout=LIMIT_S)
    assert answer.startswith("LockedError"), answer
    assert str(os.getpid()) in answer or "unknown" in answer, answer


# What the other process does


def knock(kind: OwnedStore, path: Path) -> None:
    """Try to become the owner, and say how it went."""
    try:
        kind.open(path).close()
    except HoldfastError as error:
        print(f"{type(error).__name__}: {error}")
    else:
        print("opened")


def hold(kind: OwnedStore, path: Path) -> None:
    """Own the store until standard input ends."""
    store = kind.open(path)
    kind.write(store, 1)
    print("held", flush=True)
    sys.stdin.read()
    store.close()


# Forks


def a_forked_child_is_refused(kind: OwnedStore, path: Path) -> None:
    store = kind.open(path)
    kind.write(store, 1)

    def child() -> None:
        error = must_raise(NotOwnerError, lambda: kind.write(store, 100))
        assert "fork" in str(error)
        must_raise(NotOwnerError, lambda: kind.change(store))
        store.close()
        store.close()

    in_fork(child)
    kind.write(store, 2)
    in_fork(store.close)
    kind.change(store)
    kind.write(store, 3)
    store.close()
    compare(kind, path, [1, 2, 3])


def a_child_reads_as_a_guest_and_owns_what_is_free(kind: OwnedStore, path: Path) -> None:
    store = kind.open(path)
    kind.write(store, 1)
    in_fork(lambda: compare(kind, path, [1]))
    if kind.locks:
        in_fork(lambda: must_raise(LockedError, lambda: kind.open(path)))
    store.close()

    def own() -> None:
        mine = kind.open(path)
        kind.write(mine, 2)
        mine.close()

    in_fork(own)
    compare(kind, path, [1, 2])


def forks_among_writing_threads(kind: OwnedStore, path: Path) -> None:
    """A child may be forked while another thread holds any lock of the store."""
    store, numbers, written, stop = kind.open(path), count(1), list[int](), threading.Event()

    def write() -> None:
        while not stop.is_set():
            number = next(numbers)
            kind.write(store, number)
            written.append(number)

    threads = [threading.Thread(target=write, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()

    def child() -> None:
        must_raise(NotOwnerError, lambda: kind.write(store, 10**6))
        store.close()

    for _ in range(FORKS):
        in_fork(child)
    stop.set()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    store.close()
    assert len(written) > 4
    compare(kind, path, sorted(written))


def a_child_that_outlives_its_parent_keeps_no_lock(kind: OwnedStore, path: Path) -> None:
    readable, writable = os.pipe()
    again, go = os.pipe()
    parent = os.fork()
    if not parent:
        store = kind.open(path)
        kind.write(store, 1)
        if os.fork():
            os.write(writable, b"%020d" % os.getpid())
            os.kill(os.getpid(), signal.SIGKILL)
        code = 1
        with suppress(BaseException):
            os.close(go)
            os.read(again, 1)  # until its parent is dead, and the store has another owner
            must_raise(NotOwnerError, lambda: kind.write(store, 100))
            store.close()
            code = 0
        os.write(writable, b"%020d" % code)
        os._exit(0)
    os.close(again)
    os.waitpid(parent, 0)
    os.read(readable, 20)
    store = kind.open(path)  # the child lives, and waits
    kind.write(store, 2)
    os.write(go, b"x")
    assert int(os.read(readable, 20)) == 0, "the child was not refused"
    kind.write(store, 3)
    store.close()
    compare(kind, path, [1, 2, 3])


def _write_in_child(kind_name: str, store: Any, path: str) -> None:
    """The target of multiprocessing: it must be importable."""
    kind = KINDS[kind_name]()
    if store is not None:
        must_raise(NotOwnerError, lambda: kind.write(store, 100))
        store.close()
    elif kind.locks:
        must_raise(LockedError, lambda: kind.open(Path(path)))
    compare(kind, Path(path), [1])


def multiprocessing_in_every_way(kind: OwnedStore, path: Path) -> None:
    store = kind.open(path)
    kind.write(store, 1)
    for method in ("fork", "spawn", "forkserver"):
        context: Any = multiprocessing.get_context(method)
        inherited = store if method == "fork" else None
        if inherited is None:  # it would have to be pickled
            process = context.Process(target=_write_in_child, args=(kind.name, store, str(path)))
            error = must_raise(TypeError, process.start)
            assert "open the store" in str(error), error
        process = context.Process(target=_write_in_child, args=(kind.name, inherited, str(path)))
        process.start()
        process.join(LIMIT_S)
        assert process.exitcode == 0, f"{method}: exit code {process.exitcode}"
    kind.write(store, 2)
    store.close()
    compare(kind, path, [1, 2])


def a_program_with_our_descriptors_keeps_no_lock(kind: OwnedStore, path: Path) -> None:
    store = kind.open(path)
    kind.write(store, 1)
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1, close_fds=False)
    store.close()
    try:
        store = kind.open(path)
        kind.write(store, 2)
        store.close()
    finally:
        sleeper.kill()
        sleeper.wait()
    compare(kind, path, [1, 2])


# The directory and its lock


def a_second_owner_is_refused_until_the_first_is_gone(kind: OwnedStore, path: Path) -> None:
    with elsewhere(kind, path, "hold") as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        error = must_raise(LockedError, lambda: kind.open(path))
        assert str(holder.pid) in str(error), error
        compare(kind, path, [1])
        holder.kill()
    store = kind.open(path)
    kind.write(store, 2)
    must_refuse_a_second_owner(kind, path)
    store.close()
    compare(kind, path, [1, 2])


def the_directory_is_moved(kind: OwnedStore, path: Path) -> None:
    store, moved = kind.open(path), path.with_name("moved")
    kind.write(store, 1)
    path.rename(moved)
    for number in range(2, 5):
        kind.write(store, number)
        kind.change(store)
    assert not path.exists(), "the owner has made the directory again"
    must_refuse_a_second_owner(kind, moved)
    other = kind.open(path)
    kind.write(other, 100)
    kind.write(store, 5)
    kind.change(store)
    other.close()
    store.close()
    compare(kind, path, [100])
    compare(kind, moved, [1, 2, 3, 4, 5])


def the_lock_is_removed(kind: OwnedStore, path: Path) -> None:
    store = kind.open(path)
    kind.write(store, 1)
    (path / "LOCK").unlink()
    must_refuse_a_second_owner(kind, path)
    kind.write(store, 2)
    must_refuse_a_second_owner(kind, path)
    kind.change(store)
    store.close()
    compare(kind, path, [1, 2])
    kind.open(path).close()


def the_lock_is_replaced(kind: OwnedStore, path: Path) -> None:
    store = kind.open(path)
    kind.write(store, 1)
    (path / "LOCK").rename(path.with_name("taken"))
    (path / "LOCK").write_bytes(b"7")
    must_refuse_a_second_owner(kind, path)
    kind.write(store, 2)
    kind.change(store)
    must_refuse_a_second_owner(kind, path)
    store.close()
    compare(kind, path, [1, 2])


def the_directory_is_removed(kind: OwnedStore, path: Path) -> None:
    store = kind.open(path)
    kind.write(store, 1)
    shutil.rmtree(path)
    for step in (lambda: kind.write(store, 2), lambda: kind.change(store)):
        error = must_raise(NotOwnerError, step)
        assert "removed" in str(error), error
    with suppress(HoldfastError, OSError):
        store.close()
    assert not path.exists(), "the owner has made the directory again"
    store = kind.open(path)
    kind.write(store, 7)
    store.close()
    compare(kind, path, [7])


# Signals


def a_signal_handler_writes(kind: OwnedStore, path: Path) -> None:
    """It may interrupt a write of the same thread: then it is refused, and nothing waits."""
    store, numbers, written, refused = kind.open(path), count(1), list[int](), list[str]()

    def handler(*_: object) -> None:
        number = next(numbers)
        try:
            kind.write(store, number)
            written.append(number)
        except HoldfastError as error:
            refused.append(str(error))

    signal.signal(signal.SIGUSR1, handler)
    signal.alarm(LIMIT_S)
    stop = threading.Event()

    def disturb() -> None:
        while not stop.wait(0.001):
            os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=disturb, daemon=True)
    thread.start()
    while len(refused) < REENTRIES or len(written) < 100:
        number = next(numbers)
        kind.write(store, number)
        written.append(number)
    stop.set()
    thread.join()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    assert all("signal handler" in why for why in refused), refused
    store.close()
    compare(kind, path, sorted(written))


@contextmanager
def interrupted(after_s: float) -> Iterator[None]:
    """Ctrl-C comes once, some time after the block has begun, if it is not over before."""
    signal.setitimer(signal.ITIMER_REAL, after_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class _Beside:
    """A thread that writes while the main thread is interrupted."""

    def __init__(self, kind: OwnedStore, store: Any, numbers: "count[int]") -> None:
        self.written: list[int] = []
        self.tried: list[int] = []
        self._kind, self._store, self._numbers = kind, store, numbers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        with suppress(HoldfastError):  # poisoned by the interruption
            while not self._stop.is_set():
                number = next(self._numbers)
                self.tried.append(number)
                self._kind.write(self._store, number)
                self.written.append(number)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "a follower waits for a leader that was interrupted"


def ctrl_c_at_any_moment(kind: OwnedStore, path: Path) -> None:
    """In open, write, change, scan and close: no deadlock, no lock kept, nothing lost."""
    random, numbers = Random(13), count(1)
    written: set[int] = set()
    tried: set[int] = set()
    hits = 0

    def interrupt(*_: object) -> None:
        nonlocal hits
        hits += 1
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    began = time.monotonic()
    while hits < INTERRUPTS and time.monotonic() - began < LIMIT_S / 2:
        with suppress(KeyboardInterrupt), interrupted(random.uniform(1e-4, 5e-3)):
            kind.open(path).close()
        store = kind.open(path)
        beside = _Beside(kind, store, numbers)
        with suppress(KeyboardInterrupt, HoldfastError), interrupted(random.uniform(1e-4, 2e-2)):
            for number in islice(numbers, 100):  # a finalizer may swallow the interruption
                tried.add(number)
                kind.write(store, number, number + 10**6)
                written |= {number, number + 10**6}
                if number % 5 == 0:
                    kind.change(store)
                if number % 7 == 0:
                    kind.scan(store)
        beside.stop()
        written.update(beside.written)
        tried.update(beside.tried)
        with suppress(KeyboardInterrupt), interrupted(random.uniform(1e-5, 1e-3)):
            store.close()
        store.close()
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    assert hits >= INTERRUPTS / 4, f"only {hits} interruptions"
    kind.open(path).close()  # recovers
    found = set(kind.read(path))
    assert written <= found, f"lost: {sorted(written - found)}"
    allowed = written | tried | {number + 10**6 for number in tried}
    assert found <= allowed, f"invented: {sorted(found - allowed)}"


# What is in the place of a file


def _fifo(place: Path, outside: Path) -> None:
    os.mkfifo(place)


def _directory(place: Path, outside: Path) -> None:
    place.mkdir()


def _link(place: Path, outside: Path) -> None:
    place.symlink_to(outside)


def _device(place: Path, outside: Path) -> None:
    try:
        os.mknod(place, 0o600 | stat.S_IFCHR, os.makedev(1, 3))  # as /dev/null
    except PermissionError:  # a socket can be made by anyone, and is as special
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(os.path.relpath(place))


def something_else_in_the_place_of_each_file(kind: OwnedStore, path: Path) -> None:
    store = kind.open(path)
    for number in range(1, 6):
        kind.write(store, number)
        kind.change(store)
    sound = path.with_name("sound")
    shutil.copytree(path, sound)  # as a kill would leave it
    store.close()
    files = [file.relative_to(path) for file in sorted(path.rglob("*")) if file.is_file()]
    assert len(files) > 1
    signal.alarm(LIMIT_S)
    noticed = sum(
        _is_noticed(kind, path, name, make)
        for name in files
        for make in (_fifo, _directory, _link, _device)
    )
    assert noticed > len(files), "most of them must be noticed"


def _is_noticed(kind: OwnedStore, path: Path, name: Path, make: Callable[..., None]) -> bool:
    """Whether opening or reading says so; either way it ends at once and harms nothing outside."""
    trial, outside = path.with_name("trial"), path.with_name("outside")
    shutil.copytree(path, trial)
    (trial / name).rename(path.with_name("aside"))
    outside.write_bytes(b"nobody writes here")
    make(trial / name, outside)
    is_noticed = False
    try:
        kind.read(trial)
    except (HoldfastError, OSError):
        is_noticed = True
    try:
        kind.open(trial).close()
    except (HoldfastError, OSError):
        is_noticed = True
        place = trial / name
        if place.is_dir() and not place.is_symlink():
            place.rmdir()
        else:
            place.unlink()
        path.with_name("aside").rename(place)
        kind.open(trial).close()
        compare(kind, trial, [1, 2, 3, 4, 5])
    assert outside.read_bytes() == b"nobody writes here"
    shutil.rmtree(trial)
    path.with_name("aside").unlink(missing_ok=True)
    return is_noticed


def a_file_system_that_becomes_read_only(kind: OwnedStore, path: Path) -> None:
    """Needs a mount namespace of its own: `unshare --map-root-user --mount`."""
    path.mkdir()

    def mount(*arguments: str) -> int:
        command = ["mount", *arguments, str(path)]
        return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode

    assert mount("-t", "tmpfs", "none") == 0
    place = path / "store"
    store = kind.open(place)
    kind.write(store, 1)
    assert mount("-o", "remount,ro") != 0, "the kernel lets no one do that to an open owner"
    store.close()
    assert mount("-o", "remount,ro") == 0
    error = must_raise(OSError, lambda: kind.open(place))
    assert "Read-only" in str(error), error
    compare(kind, place, [1])
    assert mount("-o", "remount,rw") == 0
    store = kind.open(place)
    kind.write(store, 2)
    store.close()
    compare(kind, place, [1, 2])


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        knock,
        hold,
        a_forked_child_is_refused,
        a_child_reads_as_a_guest_and_owns_what_is_free,
        forks_among_writing_threads,
        a_child_that_outlives_its_parent_keeps_no_lock,
        multiprocessing_in_every_way,
        a_program_with_our_descriptors_keeps_no_lock,
        a_second_owner_is_refused_until_the_first_is_gone,
        the_directory_is_moved,
        the_lock_is_removed,
        the_lock_is_replaced,
        the_directory_is_removed,
        a_signal_handler_writes,
        ctrl_c_at_any_moment,
        something_else_in_the_place_of_each_file,
        a_file_system_that_becomes_read_only,
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("path", type=Path)
    options = parser.parse_args()
    faulthandler.dump_traceback_later(2 * LIMIT_S, exit=True)  # a deadlock says where it is
    SCENARIOS[options.scenario](KINDS[options.kind](), options.path.absolute())


if __name__ == "__main__":
    main()
