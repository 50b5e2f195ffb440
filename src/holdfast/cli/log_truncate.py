"""`holdfast log truncate`: the oldest or the newest entries of a log, removed by index."""

from typing import Annotated, Protocol, runtime_checkable

import typer

from holdfast.cli.console import JsonOption, LogPath, answer, answer_json
from holdfast.cli.opening import owner_of
from holdfast.cli.units import count_of, human_span
from holdfast.errors import HoldfastError, OutOfRangeError, UnsupportedError


@runtime_checkable
class HeadTruncatable(Protocol):
    """A log whose oldest entries can be removed, to any index."""

    def truncate_head(self, first: int) -> None: ...


@runtime_checkable
class TailTruncatable(Protocol):
    """A log whose newest entries can be removed, to any index."""

    def truncate_tail(self, last: int) -> None: ...


def truncate(
    path: LogPath,
    before: Annotated[
        int | None, typer.Option(metavar="INDEX", help="Remove all entries before this one.")
    ] = None,
    after: Annotated[
        int | None, typer.Option(metavar="INDEX", help="Remove all entries after this one.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be removed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove the oldest or the newest entries, durably and for good.

    Nothing is removed that a registered replica still needs, or already has and the log would
    no longer have. raft-wal logs lose entries at either end, FileLogs the newest ones; every
    log loses whole segments by `compact`, by index, age and size.
    """
    if (before is None) == (after is None):
        raise ValueError("say what is to go: --before or --after, one of the two")
    with owner_of(path, as_json=as_json) as log:
        first, last = log.first_index, log.last_index
        kept = _kept(first, last, before, after)
        _hear_replicas(path, kept)
        if before is not None:
            if not isinstance(log, HeadTruncatable):
                raise _unsupported(path, "oldest", "`holdfast log compact` removes whole segments")
            if not dry_run:
                log.truncate_head(kept[0])
        else:
            if not isinstance(log, TailTruncatable):
                raise _unsupported(path, "newest", "what is acknowledged stays")
            if not dry_run:
                log.truncate_tail(kept[1])
    removed = (last + 1 - first) - (kept[1] + 1 - kept[0])
    if as_json:
        after_all = {"first_index": kept[0], "last_index": kept[1]}
        answer_json({"path": path, "dry_run": dry_run, "removed": removed, **after_all})
        return
    verb, then = ("would remove", "would hold") if dry_run else ("removed", "holds")
    what = human_span(*kept) if kept[0] <= kept[1] else "nothing"
    answer(f"{verb} {count_of(removed, 'entry')}; the log {then} {what}")


def _unsupported(path: str, end: str, instead: str) -> UnsupportedError:
    return UnsupportedError(f"{path}: this format cannot remove its {end} entries; {instead}")


def _kept(first: int, last: int, before: int | None, after: int | None) -> tuple[int, int]:
    """First and last index of what stays."""
    if before is not None and before > last + 1:
        raise OutOfRangeError(f"there is nothing right before {before}: the log ends at {last}")
    if after is not None and after < first - 1:
        raise OutOfRangeError(f"there is nothing right after {after}: the log begins at {first}")
    return max(first, before or first), last if after is None else min(last, after)


def _hear_replicas(path: str, kept: tuple[int, int]) -> None:
    from holdfast.disk import OsDisk
    from holdfast.logs.replicas import Replicas

    for replica in Replicas(OsDisk(path)).list():
        if not kept[0] - 1 <= replica.acknowledged <= kept[1]:
            raise HoldfastError(
                f"replica {replica.name} has acknowledged {replica.acknowledged} and could not "
                f"follow a log of {kept[0]}..{kept[1]}; nothing was removed"
            )
