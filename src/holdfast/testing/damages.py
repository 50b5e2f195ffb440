"""Files that are deleted, emptied, zeroed or flipped, after a kill or after a clean close.

Each is done to a copy of a real store.  Then a reader, and the next owner, open a copy, and what
they show is compared with what the writer had acknowledged:

    noticed     damage or an error is reported; or nothing is missing and nothing is different
    fewer       rows are missing, and nothing reports it as damage
    changed     a row is not what was written

LIMITS says what each format can and cannot notice.  What is not in it must be noticed.
"""

import posixpath
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from random import Random

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.ownership import LOCK
from holdfast.testing.explorer import BrokenPromiseError
from holdfast.testing.kills import KillRounds, Rows

NOTICED, FEWER, CHANGED = OUTCOMES = "noticed", "fewer", "changed"  # the gravest last
KILLED, CLOSED = "killed", "closed"


def _flip(data: bytes, random: Random) -> bytes:
    """Flip one bit near a byte that is not zero: most zeros are space, not data."""
    flipped = bytearray(data)
    written = np.flatnonzero(np.frombuffer(data, np.uint8)).tolist()
    if data:
        at = random.choice(written or [0]) + random.randrange(8)
        flipped[min(at, len(data) - 1)] ^= 1 << random.randrange(8)
    return bytes(flipped)


# What becomes of the bytes of a file; None: it is deleted.
WAYS: dict[str, Callable[[bytes, Random], bytes | None]] = {
    "deleted": lambda data, random: None,
    "emptied": lambda data, random: b"",
    "zeroed": lambda data, random: bytes(len(data)),
    "flipped": _flip,
}


@dataclass(frozen=True, slots=True)
class Limit:
    """What a format does not notice: the gravest outcome that is allowed for some files."""

    format: str
    files: str  # a pattern
    outcome: str
    place: str = ""  # only the "first" or the "last" of these files
    state: str = ""  # only after a kill, or only after a clean close
    ways: tuple[str, ...] = tuple(WAYS)
    is_rare: bool = False  # only if the kill came at one moment

    def covers(self, format: str, name: str, places: set[str], state: str, way: str) -> bool:
        return (
            self.format == format
            and fnmatch(name, self.files)
            and (not self.place or self.place in places)
            and self.state in ("", state)
            and way in self.ways
        )


# fmt: off
LIMITS = (
    # The format has no checksums.
    Limit("file-log", "log/*.rlog", CHANGED, ways=("flipped",)),
    # No manifest has seen it yet.
    Limit("kv", "wal/*", FEWER, "last", KILLED, ways=("deleted",)),
    # Groups that are not in the year files yet; the end of the log is whatever is valid.
    Limit("bars", "WALFile.*", FEWER),
    # A missing log may have recorded that ticks of the next one are in the year files.
    Limit("bars", "WALFile.*", CHANGED, "", KILLED, ways=("deleted", "emptied"), is_rare=True),
    # Year files have no checksums, and no list names them.
    Limit("bars", "*.bin", FEWER, ways=("deleted",)),
    Limit("bars", "*.bin", CHANGED, ways=("flipped",)),
)
# fmt: on


def places(name: str, names: Iterable[str]) -> set[str]:
    """Return whether a file is the first or last of its directory and kind, or both."""
    kind = posixpath.dirname(name), posixpath.splitext(name)[1]
    alike = sorted(n for n in names if (posixpath.dirname(n), posixpath.splitext(n)[1]) == kind)
    return {place for place, at in (("first", 0), ("last", -1)) if alike[at] == name}


def allowed(format: str, name: str, names: Iterable[str], state: str, way: str) -> str:
    """Return the gravest outcome that the format allows for this file, of these."""
    where = places(name, names)
    return max(
        (row.outcome for row in LIMITS if row.covers(format, name, where, state, way)),
        key=OUTCOMES.index,
        default=NOTICED,
    )


class Damages:
    """Damage copies of one store, and count in `outcomes` what came of it."""

    def __init__(self, rounds: KillRounds, random: Random, outcomes: dict[str, int]) -> None:
        self._rounds, self._random, self._outcomes = rounds, random, outcomes

    def one(self, state: str) -> None:
        """Damage one file in one way.  BrokenPromiseError if what comes of it is not allowed."""
        root, random = self._rounds.path, self._random
        names = sorted(
            str(file.relative_to(root))
            for file in root.rglob("*")
            if file.is_file() and file.name != LOCK and file.suffix != ".cut"
        )
        seed = random.getrandbits(32)
        self.damage(state, random.choice(names), random.choice(list(WAYS)), seed)

    def damage(self, state: str, name: str, way: str, seed: int) -> str:
        """Do it to a copy; return the outcome, or raise BrokenPromiseError if it is not allowed."""
        promises, rounds = self._rounds.promises, self._rounds
        must, may = rounds.rows(1, promises.acknowledged), rounds.rows(1, promises.in_flight)
        found = [self._outcome(name, way, seed, must, may, owner=owner) for owner in (False, True)]
        outcome = max(found, key=OUTCOMES.index)
        self._outcomes[outcome] += 1
        if OUTCOMES.index(outcome) > OUTCOMES.index(self.allowed(state, name, way)):
            kind = "invented" if outcome == CHANGED else "lost"
            what = f"{name} was {way} (seed {seed}) in a {state} store: {outcome}, not noticed"
            raise BrokenPromiseError(kind, what)
        return outcome

    def allowed(self, state: str, name: str, way: str) -> str:
        """Return the gravest outcome that the format allows for this file."""
        return allowed(self._rounds.format, name, self.names_beside(name), state, way)

    def names_beside(self, name: str) -> list[str]:
        """Return the names of the files in the directory of a file."""
        root = self._rounds.path
        return [str(other.relative_to(root)) for other in (root / name).parent.iterdir()]

    def _outcome(
        self, name: str, way: str, seed: int, must: Rows, may: Rows, *, owner: bool
    ) -> str:
        root = self._rounds.path
        copy = Path(shutil.copytree(root, root.with_name("damaged")))
        try:
            damaged = WAYS[way]((copy / name).read_bytes(), Random(seed))
            if damaged is None:
                (copy / name).unlink()
            else:
                (copy / name).write_bytes(damaged)
            _, rows = self._rounds.contents(copy, owner=owner)
        except (HoldfastError, OSError):
            return NOTICED
        except Exception as error:
            what = f"{name} was {way} (seed {seed}): {error!r} instead of an error of ours"
            raise BrokenPromiseError("broken", what) from error
        finally:
            shutil.rmtree(copy)
        if any(may.get(key) != value for key, value in rows.items()):
            return CHANGED
        return FEWER if must.keys() - rows.keys() else NOTICED
