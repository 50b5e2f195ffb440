"""Copy a bar store while its owner goes on committing.  The page: docs/bars.md

Write-back pauses, so the year files do not change while they are copied.  Then, while no commit
runs, the groups that are not in the year files are taken: they become the log of the copy.  So the
copy has every group that was committed up to that moment, each once, and opens like a store whose
owner was killed then.

The copy is made in TARGET.copying-ID and synced.  It gets its name at the end.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass

from holdfast.bars.catalog import CATEGORIES, CATEGORY, STAGING
from holdfast.bars.commits import Commits
from holdfast.bars.recovery import recommitted
from holdfast.bars.wal import Wal, find_logs, log_name
from holdfast.disk import Disk
from holdfast.errors import ChangedError, ExistsError
from holdfast.formats import market_wal as fmt
from holdfast.staged import StagingArea

OnProgress = Callable[[int, int], None]
_CHUNK_SIZE = 2**20


@dataclass(frozen=True, slots=True)
class Backup:
    """The result of a backup."""

    path: str
    files: int
    size: int  # bytes that were copied; holes in year files are not
    groups: int  # in the log of the copy: its first owner writes them to the year files


@dataclass(frozen=True, slots=True)
class _Rest:
    """What is not in the year files, at one moment between two commits."""

    number: int  # of the log of the copy
    messages: bytes
    groups: int
    records: dict[str, bytes]  # of transactions: see holdfast.staged


def copy_store(
    disk: Disk, commits: Commits, parent: Disk, name: str, id: str, on_progress: OnProgress
) -> Backup:
    """Copy a store to a directory of `parent` that does not exist.  Write-back must be paused.

    Durable when this returns.  ExistsError if the directory exists.  If this fails, the copy keeps
    the name with the ID, without files where they could be removed.
    """
    making, made = f"{name}.copying-{id}", list[str]()
    _refuse_taken(parent, name)
    try:
        size = _copy_all(disk, parent, making, made, on_progress)
        rest = commits.queue.exclusively(lambda: _take_rest(disk, commits))
        size += _write_rest(parent, making, made, rest)
        if f"{making}/{CATEGORY}" not in made:  # a store of 0.1.0 that was never written
            parent.create(f"{making}/{CATEGORY}", CATEGORIES[0])
        with closing(parent.volume()) as volume:
            volume.sync()
        _name(parent, making, name)
    except BaseException:
        for one in made:
            with suppress(OSError):  # report the first error
                parent.remove(one)
        raise
    return Backup(f"{str(parent).rstrip('/')}/{name}", len(made), size, rest.groups)


def _refuse_taken(parent: Disk, name: str) -> None:
    with suppress(FileNotFoundError):
        if name in parent.list() or name in parent.directories():
            raise ExistsError(f"{parent}/{name} exists; name a new directory for the backup")


def _name(parent: Disk, making: str, name: str) -> None:
    try:
        parent.rename(making, name)
    except FileExistsError:
        why = f"{parent}/{name} was created meanwhile; name a new directory for the backup"
        raise ExistsError(why) from None


def _copy_all(
    disk: Disk, parent: Disk, making: str, made: list[str], on_progress: OnProgress
) -> int:
    """Copy all files except the logs and what tasks stage; return the bytes."""
    logs = {log.name for log in find_logs(disk)}
    names = [name for name in _files_below(disk, "") if name not in logs]
    size = 0
    for done, name in enumerate(names):
        on_progress(done, len(names))
        made.append(f"{making}/{name}")
        size += _copy_file(disk, name, parent, made[-1])
    on_progress(len(names), len(names))
    return size


def _files_below(disk: Disk, directory: str) -> Iterator[str]:
    above = f"{directory}/" if directory else ""
    for name in disk.directories(directory):
        if above or name != STAGING:
            yield from _files_below(disk, above + name)
    yield from (above + name for name in disk.list(directory))


def _copy_file(disk: Disk, name: str, parent: Disk, copy: str) -> int:
    copied = 0
    with closing(disk.open(name)) as old, closing(parent.make(copy)) as new:
        size = old.size()
        new.extend(size)
        for start, stop in old.extents(0, size):
            for offset in range(start, stop, _CHUNK_SIZE):
                new.write_at(offset, old.read_at(offset, min(_CHUNK_SIZE, stop - offset)))
            copied += stop - start
    return copied


def _take_rest(disk: Disk, commits: Commits) -> _Rest:
    """Take all committed and prepared groups that are not in the year files.

    No commit runs, so a commit of staged rows is complete if it has no intent.
    """
    commits.check()
    area = StagingArea(disk, STAGING, ".wal")
    if area.read_intent() is not None:
        raise ChangedError(f"staged rows are being committed to {disk}; make the backup after that")
    waiting, prepared = commits.pending.waiting(), commits.undecided.groups.values()
    intents = [fmt.rewrite(group, fmt.INTENDED) for group in prepared]
    number = commits.logs.next_ns()
    messages = recommitted(waiting, number) + b"".join(intents)
    groups = sum(not change.is_plan for change in waiting)
    return _Rest(number, messages, groups, dict(_records(disk)))


def _records(disk: Disk) -> Iterator[tuple[str, bytes]]:
    try:
        names = disk.list(STAGING)
    except FileNotFoundError:
        return
    for name in names:
        if name.startswith("txn-"):
            with closing(disk.open(f"{STAGING}/{name}")) as file:
                yield f"{STAGING}/{name}", file.read_at(0, file.size())


def _write_rest(parent: Disk, making: str, made: list[str], rest: _Rest) -> int:
    for name, data in rest.records.items():
        made.append(f"{making}/{name}")
        parent.create(made[-1], data)
    if rest.messages:
        made.append(f"{making}/{log_name(rest.number)}")
        Wal.create(parent, made[-1], 0, rest.messages).close()
    return len(rest.messages) + sum(map(len, rest.records.values()))
