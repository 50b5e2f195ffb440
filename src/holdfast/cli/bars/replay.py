"""`holdfast bars replay`: print what the WAL files hold; with --apply, carry it out."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.opening import bar_owner, bar_reader
from holdfast.cli.options import ApplyOption, JsonOption, RootPath
from holdfast.cli.output import PLANNED, answer, answer_json, count_of, human_size, table

if TYPE_CHECKING:
    from holdfast.bars.status import WalStatus


def replay(
    root: RootPath,
    apply: ApplyOption = False,
    salvage: Annotated[
        bool,
        typer.Option("--salvage", help="With --apply: move damaged WAL files aside."),
    ] = False,
    commit: Annotated[
        list[int] | None,
        typer.Option(metavar="TGID", help="With --apply: commit this undecided group."),
    ] = None,
    abort: Annotated[
        list[int] | None,
        typer.Option(metavar="TGID", help="With --apply: abort this undecided group."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Plan the recovery of the WAL files of a store; --apply carries it out.

    Every WAL file is listed with its state, also those of MarketStore.  Without --apply it exits
    with 2 if one is damaged and with 3 if one has a torn tail.  Nothing is deleted before it is in
    the year files; .cut files keep the bytes that are cut out.
    """
    if (salvage or commit or abort) and not apply:
        raise ValueError("--salvage, --commit and --abort need --apply")
    with bar_reader(root) as reader:
        logs = reader.status().logs
    if not as_json:
        answer(_lines(root, logs))
    groups = sum(log.waiting for log in logs)
    undecided: tuple[int, ...] = tuple(tgid for log in logs for tgid in log.undecided)
    if apply:
        undecided = _apply(root, salvage, commit or (), abort or (), as_json=as_json)
    if as_json:
        about = {"path": root, "applied": apply, "groups": groups, "undecided": undecided}
        answer_json({**about, "logs": [asdict(log) for log in logs]})
    elif not apply:
        answer(PLANNED) if logs else None
    else:
        left = f"; {count_of(len(undecided), 'group')} undecided" if undecided else ""
        answer(f"done: {count_of(groups, 'group')} written to the year files{left}")
    raise typer.Exit(0 if apply else _exit_code(logs))


def _apply(
    root: str, salvage: bool, commit: Iterable[int], abort: Iterable[int], *, as_json: bool
) -> tuple[int, ...]:
    with bar_owner(root, as_json=as_json, salvage=salvage) as store:
        for tgid in commit:
            store.resolve(tgid, commit=True)
        for tgid in abort:
            store.resolve(tgid, commit=False)
        return store.undecided


def _exit_code(logs: "tuple[WalStatus, ...]") -> int:
    if any(log.damage for log in logs):
        return 2
    return 3 if any(log.torn for log in logs) else 0


def wal_table(logs: "tuple[WalStatus, ...]") -> str:
    """Return a line for each WAL file."""
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


def _lines(root: str, logs: "tuple[WalStatus, ...]") -> Iterator[str]:
    if not logs:
        yield f"{root}: no WAL files; all rows are in the year files"
        return
    yield wal_table(logs)
    for log in logs:
        yield from map(str, log.damage)
        if log.torn:
            yield str(log.torn)
        yield from (f"{log.name}: group {tgid} is undecided" for tgid in log.undecided)
    yield from (f"{log.name}: {log.action}" for log in logs)
