"""`holdfast bars replay`: first what the logs of a store say, then, if asked, the deed."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.bars_opening import RootPath, find_root, tell_mended
from holdfast.cli.console import JsonOption, answer, answer_json, table
from holdfast.cli.units import count_of, human_size

if TYPE_CHECKING:
    from holdfast.reports.bar_logs import WalReport


def replay(
    root: RootPath,
    apply: Annotated[bool, typer.Option("--apply", help="Carry it out.")] = False,
    salvage: Annotated[
        bool,
        typer.Option("--salvage", help="With --apply: keep damaged logs aside, and go on."),
    ] = False,
    commit: Annotated[
        list[int] | None,
        typer.Option(metavar="TGID", help="With --apply: commit a group that is undecided."),
    ] = None,
    abort: Annotated[
        list[int] | None,
        typer.Option(metavar="TGID", help="With --apply: abort a group that is undecided."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what the logs of a store hold and what the next owner will do; --apply does it.

    Every log is told with its state, MarketStore's own too.  Without --apply it exits with 2 if a
    log is damaged and with 3 if one has a torn tail.  Nothing is deleted that is not in the year
    files: bytes that are taken out are kept in .cut files.
    """
    from holdfast.reports.bar_logs import find_wals

    find_root(root)
    if (salvage or commit or abort) and not apply:
        raise ValueError("--salvage, --commit and --abort come with --apply")
    logs = find_wals(root)
    if not as_json:
        answer(_told(root, logs))
    groups = sum(log.waiting for log in logs)
    undecided: tuple[int, ...] = tuple(tgid for log in logs for tgid in log.undecided)
    if apply:
        undecided = _apply(root, salvage, commit or (), abort or (), as_json=as_json)
    if as_json:
        about = {"path": root, "applied": apply, "groups": groups, "undecided": undecided}
        answer_json({**about, "logs": [asdict(log) for log in logs]})
    elif apply:
        left = f"; {count_of(len(undecided), 'group')} undecided" if undecided else ""
        answer(f"done: {count_of(groups, 'group')} written to the year files{left}")
    raise typer.Exit(0 if apply else _exit_code(logs))


def _apply(
    root: str, salvage: bool, commit: Iterable[int], abort: Iterable[int], *, as_json: bool
) -> tuple[int, ...]:
    from holdfast.bars import BarStore
    from holdfast.errors import CorruptError

    with BarStore(find_root(root), salvage=salvage) as store:
        tell_mended(store, root, as_json=as_json)
        if store.damage:
            first = store.damage[0]
            raise CorruptError(first.file, first.offset, first.why)
        for tgid in commit:
            store.resolve(tgid, commit=True)
        for tgid in abort:
            store.resolve(tgid, commit=False)
        return store.undecided


def _exit_code(logs: "tuple[WalReport, ...]") -> int:
    if any(log.damage for log in logs):
        return 2
    return 3 if any(log.torn for log in logs) else 0


def wal_table(logs: "tuple[WalReport, ...]") -> str:
    """A line for each log, and below what is wrong with it."""
    rows = [
        (
            log.name,
            log.dialect,
            log.state,
            log.committed,
            log.waiting,
            len(log.undecided),
            human_size(log.size),
        )
        for log in logs
    ]
    titles = ["LOG", "DIALECT", "STATE", "GROUPS", "WAITING", "UNDECIDED", "SIZE"]
    return table(titles, rows)


def _told(root: str, logs: "tuple[WalReport, ...]") -> str:
    if not logs:
        return f"{root}: no logs; all is in the year files"
    lines = [wal_table(logs)]
    for log in logs:
        lines += [f"{damage}" for damage in log.damage]
        lines += [f"{log.torn}"] if log.torn else []
        lines += [f"{log.name}: group {tgid} is undecided" for tgid in log.undecided]
    lines += [f"{log.name}: {log.action}" for log in logs]
    return "\n".join(lines)
