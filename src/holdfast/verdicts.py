"""The verdict on a store on a disk, its owner, and its .cut files."""

import os
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from holdfast.disk import OsDisk

Verdict = Literal["clean", "torn tail", "unreadable", "corrupt"]  # the gravest last
EXIT_CODES: dict[str, int] = {"clean": 0, "torn tail": 3, "unreadable": 5, "corrupt": 2}
_GRAVITY: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True, slots=True)
class CutFile:
    """Bytes that recovery or repair took out of a store and kept."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that signed the lock last, and whether it still holds the lock."""

    pid: int
    alive: bool


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of these verdicts; clean if there are none."""
    return max(verdicts, key=_GRAVITY.index, default="clean")


def find_owner(disk: OsDisk, locked_file: str | None = None) -> Owner | None:
    """Return the owner of a store, without taking its lock; None if it never had one.

    Other programs do not use this lock: they hold `locked_file`.
    """
    signed = _find_signature(disk)
    if locked_file is None or (signed is not None and signed.alive):
        return signed
    with suppress(FileNotFoundError):
        if holder := disk.lock_holder(locked_file):
            return Owner(int(holder), alive=True)
    return signed


def _find_signature(disk: OsDisk) -> Owner | None:
    try:
        file = disk.open("LOCK")
    except FileNotFoundError:
        return None
    with closing(file):
        text = file.read_at(0, 20).decode("ascii", "replace").strip()
    if not text.isdecimal():
        return None
    return Owner(int(text), _has_open(int(text), Path(disk.path, "LOCK")))


def _has_open(pid: int, lock: Path) -> bool:
    """Return whether the process has the file open: another one may have its pid by now."""
    try:
        links = list(Path(f"/proc/{pid}/fd").iterdir())
    except PermissionError:
        return True  # another user's process: it exists, and that is all we may know
    except (FileNotFoundError, ProcessLookupError):
        return False
    try:
        wanted = lock.stat()
    except FileNotFoundError:
        return False
    for link in links:
        with suppress(OSError):  # closed since we listed it
            if os.path.samestat(link.stat(), wanted):
                return True
    return False
