"""Files that tasks stage for one owner to commit, and the transactions that were committed.

    JOB.PARTITION.ATTEMPT.ENDING   what one attempt of one task has made durable
    intent.json                    the commit under way
    txn-DIGEST.json                the last version that each application has committed

The stores carry out the commits: see holdfast.logs.staging and holdfast.bars.staging.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from holdfast import runtime
from holdfast.disk import Disk
from holdfast.errors import CorruptError
from holdfast.side_files import read_side_file, write_side_file

_JOB = re.compile(r"[A-Za-z0-9-]{1,80}")
_STALE_MS = 24 * 3_600_000
_FIELDS = {"app": str, "version": int}
_ADVICE = (
    "its application commits nothing until the file is restored, or removed; if it is removed, a "
    "repeated batch is written twice"
)


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
    """Return a name for the files of one job.  It contains the application and the time."""
    owner = _digest(transaction.app) if transaction else "none"
    return f"{owner}-{now_ms()}-{new_id().hex}"


class StagingArea:
    """A directory of a store that only commits look at."""

    def __init__(self, disk: Disk, directory: str, ending: str) -> None:
        self._disk, self._directory, self._ending = disk, directory, ending
        self.intent = f"{directory}/intent.json"

    def new_name(self, job: str, partition: int, new_id: Callable[[], UUID]) -> str:
        """Return a name for a file that no other attempt has."""
        if not _JOB.fullmatch(job):
            raise ValueError(f"invalid job name {job!r}; new_job creates one")
        return f"{self._directory}/{job}.{partition}.{new_id().hex}{self._ending}"

    def files(self) -> list[str]:
        """Return the names of all staged files."""
        try:
            names = self._disk.list(self._directory)
        except FileNotFoundError:
            return []
        return [f"{self._directory}/{name}" for name in names if name.endswith(self._ending)]

    def remove(self, names: Iterable[str]) -> None:
        """Remove those of these files that exist."""
        here = set(self.files())
        if present := sorted(name for name in names if name in here):
            self._disk.remove(*present)

    def sweep(
        self,
        job: str,
        *,
        needed: Collection[str] = (),
        now_ms: Callable[[], int] = runtime.now_ms,
    ) -> list[str]:
        """Remove orphans and return their names.

        Orphans are files of failed attempts of this job, of previous jobs of its application, and
        files that no owner has committed for a day.
        """
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
        """Return the last version that this application has committed; -1 for none."""
        record = self._read_record(self.transaction_path(app))
        return -1 if record is None else record.version

    def damaged_records(self) -> list[CorruptError]:
        """Return what is wrong with the records of transactions."""
        try:
            names = self._disk.list(self._directory)
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            if name.startswith("txn-") and name.endswith(".json"):
                try:
                    self._read_record(f"{self._directory}/{name}")
                except CorruptError as error:
                    found.append(error)
        return found

    def has_committed(self, transaction: Transaction | None) -> bool:
        return (
            transaction is not None
            and self.committed_version(transaction.app) >= transaction.version
        )

    def write_intent(self, note: dict[str, Any], *, replace: bool = False) -> None:
        """Write the intent of a commit.  It is durable when this returns."""
        self._disk.create(self.intent, json.dumps(note).encode(), replace=replace)

    def read_intent(self) -> dict[str, Any] | None:
        return self._read(self.intent)

    def finish(self, transaction: Transaction | None, files: Iterable[str]) -> None:
        """Record the transaction, then remove the intent and the staged files."""
        if transaction is not None:
            path = self.transaction_path(transaction.app)
            write_side_file(self._disk, path, asdict(transaction))
        self._disk.remove(self.intent)
        self.remove(files)

    def transaction_path(self, app: str) -> str:
        return f"{self._directory}/txn-{_digest(app)}.json"

    def _read_record(self, path: str) -> Transaction | None:
        value = read_side_file(self._disk, path, _FIELDS, _ADVICE)
        if value is None:
            return None
        record = Transaction(**value)
        if self.transaction_path(record.app) != path:
            why = f"the record of another application, {record.app!r}; {_ADVICE}"
            raise CorruptError(path, 0, why)
        return record

    def _read(self, path: str) -> dict[str, Any] | None:
        try:
            with closing(self._disk.open(path)) as file:
                value = json.loads(bytes(file.map()))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise CorruptError(path, 0, f"not JSON: {error}") from error
        if not isinstance(value, dict):
            raise CorruptError(path, 0, "not a JSON object")
        return value


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
