"""Owners that are forked: the child is refused, keeps no lock, and does not disturb its parent."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from holdfast.errors import LockedError, NotOwnerError
from holdfast.testing.owners.stores import KINDS, OwnedStore
from holdfast.testing.owners.tools import LIMIT_S, compare, in_fork, must_raise

FORKS = 20


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
        os.write(writable, b"%020d" % os.getpid())  # its copies are closed: fork has returned
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
    for _ in ("the parent", "the child"):
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
    command = [sys.executable, "-c", "print(flush=True); input()"]
    sleeper = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False
    )
    assert sleeper.stdout is not None
    sleeper.stdout.readline()  # it runs: what closes on exec is closed
    store.close()
    try:
        store = kind.open(path)
        kind.write(store, 2)
        store.close()
    finally:
        sleeper.kill()
        sleeper.wait()
    compare(kind, path, [1, 2])
