"""Guests of every format read beside a busy owner in another process, and never fail for it.

HOLDFAST_BESIDE_SECONDS says for how long, of all formats at once; 30 by default.
HOLDFAST_BESIDE_DIRECTORY says where; by default in memory, where no owner waits for a disk.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tests.beside.payloads import COUNTER, Counter

from holdfast.doors import create_bars, create_log

ROOT = Path(__file__).parents[1]
MEMORY = Path("/dev/shm")
SECONDS = float(os.environ.get("HOLDFAST_BESIDE_SECONDS", "30"))
KINDS = ("shanghai", "raft-wal", "file-log", "bars")
_GRACE_S = 60


def _start(role: str, kind: str, path: Path, seconds: float) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", f"tests.beside.{role}", kind, str(path), str(seconds)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that its children end with it
    )


def _end(process: "subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _finish(process: "subprocess.Popen[str]", until: float) -> tuple[str, str]:
    try:
        return process.communicate(timeout=max(1.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        _end(process)
        return "", "it did not end"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    chosen = os.environ.get("HOLDFAST_BESIDE_DIRECTORY")
    parent = Path(chosen) if chosen else MEMORY if os.access(MEMORY, os.W_OK) else tmp_path
    with TemporaryDirectory(dir=parent, prefix="holdfast-beside-") as path:
        yield Path(path)


def test_a_guest_beside_a_live_owner_never_fails(directory: Path) -> None:
    owners, guests = {}, {}
    limit_s = 4 * SECONDS + _GRACE_S  # guests on a busy machine take their time
    until = time.monotonic() + limit_s
    try:
        for kind in KINDS:
            path = directory / kind / "store"
            path.parent.mkdir()
            Counter(path.parent / COUNTER)
            made = create_bars(path) if kind == "bars" else create_log(path, format=kind)
            made.close()
            owners[kind] = _start("owner", kind, path, limit_s)
            guests[kind] = _start("guests", kind, path, SECONDS)
        failures, found = [], dict[str, Any]()
        for kind, process in guests.items():
            answer, complaints = _finish(process, until)
            if not answer:
                failures.append(f"{kind}: the guests ended with {process.returncode}: {complaints}")
                continue
            found[kind] = json.loads(answer)
            failures += found[kind]["failures"]
            if owners[kind].poll() is not None:
                failures.append(f"{kind}: the owner ended: {owners[kind].communicate()[1]}")
        print(json.dumps(found, indent=1))
        assert not failures, "\n".join(failures)
    finally:
        for process in (*owners.values(), *guests.values()):
            _end(process)
