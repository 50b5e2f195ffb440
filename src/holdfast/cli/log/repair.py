"""`holdfast log repair`: print the plan; with --apply, carry it out."""

from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import typer

from holdfast.cli.opening import find_log
from holdfast.cli.options import ApplyOption, JsonOption, LogPath
from holdfast.cli.output import PLANNED, answer, answer_json, human_span, progress


class Keep(StrEnum):
    """Which side of the damage stays."""

    before = "before"
    after = "after"


def repair(
    path: LogPath,
    keep: Annotated[
        Keep, typer.Option(help="Which entries stay: those before the damage, or those after it.")
    ] = Keep.before,
    apply: ApplyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Plan the repair of a damaged log; --apply carries it out.

    The plan names the entries that would be lost.  If there are none on the side to keep, those on
    the other side are kept.  Damaged positions of replicas, transaction records and origin files
    are set aside.  Nothing is deleted: .cut files beside the log keep what is cut out.  Without
    --apply it exits with 2 if the log is damaged and with 3 if its tail is torn.
    """
    from holdfast.doors.logs import apply_repair, plan_repair

    find_log(path)
    with progress(f"reading {path}") as on_progress:
        plan = plan_repair(path, keep=keep.value, on_progress=on_progress)
    applied = apply and plan.is_needed
    if not as_json:
        answer(_lines(path, plan))
    if applied:
        with progress(f"repairing {path}") as on_progress:
            apply_repair(path, plan, on_progress=on_progress)
    if as_json:
        answer_json({"path": path, "applied": applied, **_document(plan)})
    elif plan.is_needed:
        done = f"done; {path} now holds {human_span(*plan.kept)}"
        answer(done if applied else PLANNED)
    raise typer.Exit(0 if applied else _exit_code(plan))


def _lines(path: str, plan: Any) -> Iterator[str]:
    if not plan.is_needed:
        yield f"{path}: nothing to repair; it holds {human_span(*plan.kept)}"
        return
    yield from (f"damage: {damage}" for damage in (*plan.damage, *plan.side_files))
    steps = [step["text"] for step in _steps(plan)]
    if any(damage.torn for damage in plan.damage):
        steps.append("recover the torn end as any owner does; keep what is cut off in a .cut file")
    yield from (f"step {number}: {step}" for number, step in enumerate(steps, 1))
    yield f"kept: {human_span(*plan.kept)}"
    yield f"lost: {_lost(plan)}"


def _steps(plan: Any) -> list[dict[str, Any]]:
    """Return the steps for the entries, then those for the side files."""
    steps = [{"text": str(step), **asdict(step)} for step in plan.steps]
    names = dict.fromkeys(damage.file for damage in plan.side_files)
    return steps + [{"text": f"rename {name} to a .cut file", "file": name} for name in names]


def _lost(plan: Any) -> str:
    lost = [human_span(first, last) for first, last in plan.lost]
    lost += [f"the entries of {name}, of unknown indexes" for name in plan.unknown]
    return ", ".join(lost) or "nothing that was acknowledged"


def _document(plan: Any) -> dict[str, Any]:
    return {**asdict(plan), "steps": _steps(plan), "lossless": plan.lossless}


def _exit_code(plan: Any) -> int:
    if not plan.is_needed:
        return 0
    is_torn = not plan.side_files and all(damage.torn for damage in plan.damage)
    return 3 if is_torn else 2
