"""Where tasks put what one owner will commit, and which transactions were committed.

    JOB.PARTITION.ATTEMPT.ENDING   what one attempt of one task has made durable
    intent.json                    the commit under way
    txn-DIGEST.json                the last version that each application has committed

What a commit does is the store's affair: see holdfast.logs.staging and holdfast.bars.staging.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from holdfast import runtime
from holdfast.disk import Disk
from holdfast.errors import CorruptError

_JOB = re.compile(r"[A-Za-z0-9-]{1,80}")
_STALE_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Transaction:
    """Versions of one application are committed in rising order, each at most once."""

    app: str
    version: int


def new_job(
    transaction: Transaction | None = None,
    *,
    now_ms: Callable[[], int] = runtime.now_ms,
    new_id: Callable[[], UUID] = runtime.new_id,
) -> str:
    """A name for all that one job stages.  It tells whose and how old a forgotten file is."""
    owner = _digest(transaction.app) if transaction else "none"
    return f"{owner}-{now_ms()}-{new_id().hex}"


class StagingArea:
    """A directory of a store that only commits look at."""

    def __init__(self, disk: Disk, directory: str, ending: str) -> None:
        self._disk, self._directory, self._ending = disk, directory, ending
        self.intent = f"{directory}/intent.json"

    def new_name(self, job: str, partition: int, new_id: Callable[[], UUID]) -> str:
        """For a file that no other attempt has."""
        if not _JOB.fullmatch(job):
            raise ValueError(f"{job!r} is no job name; new_job makes one")
        return f"{self._directory}/{job}.{partition}.{new_id().hex}{self._ending}"

    def files(self) -> list[str]:
        """All that is staged, wanted or not."""
        try:
            names = self._disk.list(self._directory)
        except FileNotFoundError:
            return []
        return [f"{self._directory}/{name}" for name in names if name.endswith(self._ending)]

    def remove(self, names: Iterable[str]) -> None:
        """Remove those of these files that are there."""
        here = set(self.files())
        if gone := sorted(name for name in names if name in here):
            self._disk.remove(*gone)

    def sweep(
        self,
        job: str,
        *,
        needed: Collection[str] = (),
        now_ms: Callable[[], int] = runtime.now_ms,
    ) -> list[str]:
        """Remove what failed attempts of this job left, earlier jobs of its application, and what
        nobody has committed for a day; return the names."""
        owner = job.partition("-")[0]
        swept = []
        for name in self.files():
            whose, made_ms, *_ = (*name.removeprefix(f"{self._directory}/").split("-"), "")
            stale = made_ms.isdigit() and now_ms() - int(made_ms) > _STALE_MS
            mine = name.startswith(f"{self._directory}/{job}.") or (whose == owner != "none")
            if name not in needed and (mine or stale):
                swept.append(name)
        self.remove(swept)
        return swept

    def committed_version(self, app: str) -> int:
        """The last version that this application has committed; -1 for none."""
        path = self.transaction_path(app)
        value = self._read(path)
        if value is None:
            return -1
        try:
            return int(value["version"])
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptError(path, 0, f"not a transaction's record: {error!r}") from error

    def has_committed(self, transaction: Transaction | None) -> bool:
        return (
            transaction is not None
            and self.committed_version(transaction.app) >= transaction.version
        )

    def write_intent(self, note: dict[str, Any], *, replace: bool = False) -> None:
        """Durable when it returns."""
        self._disk.create(self.intent, json.dumps(note).encode(), replace=replace)

    def read_intent(self) -> dict[str, Any] | None:
        return self._read(self.intent)

    def finish(self, transaction: Transaction | None, files: Iterable[str]) -> None:
        """All is in the store: record the transaction, then the commit is over, then clean up."""
        if transaction is not None:
            record = json.dumps(asdict(transaction)).encode()
            self._disk.create(self.transaction_path(transaction.app), record, replace=True)
        self._disk.remove(self.intent)
        self.remove(files)

    def transaction_path(self, app: str) -> str:
        return f"{self._directory}/txn-{_digest(app)}.json"

    def _read(self, path: str) -> dict[str, Any] | None:
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            return None
        try:
            value = json.loads(bytes(file.map()))
        except ValueError as error:
            raise CorruptError(path, 0, f"not JSON: {error}") from error
        finally:
            file.close()
        if not isinstance(value, dict):
            raise CorruptError(path, 0, "not a JSON object")
        return value


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
