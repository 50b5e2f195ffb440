"""This process, other processes, and this machine."""

import os
import socket
import sys
import time
from pathlib import Path


def hostname() -> str:
    """Return the name of this machine."""
    return socket.gethostname()


def process_id() -> int:
    """Return the id of this process."""
    return os.getpid()


def open_files_max() -> int:
    """Return how many files this process may have open."""
    import resource  # which other systems do not have

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 20 if limit == resource.RLIM_INFINITY else limit


def was_running(pid: int, at_ns: int) -> bool:
    """Return whether the process that had this id at that time is still running.

    Ids are used again: a process that started later is another one.
    """
    started_ns = process_started_ns(pid)
    return started_ns is not None and started_ns <= at_ns


def program() -> str:
    """Return the name of the program that runs here."""
    return (Path(sys.argv[0]).name if sys.argv else "") or "python"


def process_mark(pid: int) -> str | None:
    """Return what distinguishes this process from all others; None if it does not run here.

    It begins with the boot id and the process namespace: elsewhere the id means another process.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = Path("/proc/self/ns/pid").readlink()
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (OSError, ValueError):
        return None
    return None if fields[0] in (b"Z", b"X") else f"{boot} {space} {int(fields[19])}"


def process_started_ns(pid: int) -> int | None:
    """Return when this process started; None if it does not exist or is a zombie."""
    if pid <= 0:
        return None
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[0] in (b"Z", b"X"):
        return None
    ticks_ns = int(fields[19]) * 10**9 // os.sysconf("SC_CLK_TCK")
    booted_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return booted_ns + ticks_ns
