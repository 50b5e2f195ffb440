"""`holdfast log repair`: first the plan, then, if asked, the deed."""

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import typer

from holdfast.cli.console import JsonOption, LogPath, answer, answer_json
from holdfast.cli.opening import find_log
from holdfast.cli.units import human_span


class Keep(StrEnum):
    """Which side of the damage stays."""

    before = "before"
    after = "after"


def repair(
    path: LogPath,
    keep: Annotated[
        Keep, typer.Option(help="Which entries stay: those before the damage, or those after it.")
    ] = Keep.before,
    apply: Annotated[bool, typer.Option("--apply", help="Carry the plan out.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Plan how to make a damaged log whole; --apply does it.

    The plan says what would be lost.  Nothing is deleted: bytes that are taken out are kept in
    .cut files beside the log.  Without --apply it exits with 2 if the log is damaged and with 3 if
    its tail is torn.
    """
    disk, format = find_log(path)
    if as_json and apply and not yes:
        raise ValueError("--json cannot ask: confirm with --yes")
    plan = format.plan_repair(disk, keep=keep.value)
    apply = apply and bool(plan.damage)
    if not as_json:
        answer(_told(path, plan))
    if apply:
        if not yes:
            typer.confirm("Carry it out?", abort=True, err=True)
        format.apply_repair(disk, plan)
    if as_json:
        answer_json({"path": path, "applied": apply, **_document(plan)})
    elif apply:
        answer(f"done; {path} now holds {human_span(*plan.kept)}")
    raise typer.Exit(0 if apply else _exit_code(plan))


def _told(path: str, plan: Any) -> str:
    if not plan.damage:
        return f"{path}: nothing to repair; it holds {human_span(*plan.kept)}"
    steps = [str(step) for step in plan.steps]
    if any(damage.torn for damage in plan.damage):
        steps.append("cut off the torn tail and keep it aside, as any owner would")
    return "\n".join(
        [
            *(f"damage: {damage}" for damage in plan.damage),
            *(f"step {number}: {step}" for number, step in enumerate(steps, 1)),
            f"kept: {human_span(*plan.kept)}",
            f"lost: {_lost(plan)}",
        ]
    )


def _lost(plan: Any) -> str:
    lost = [human_span(first, last) for first, last in plan.lost]
    lost += [f"what {name} held, of indexes unknown" for name in plan.unknown]
    return ", ".join(lost) or "nothing that was acknowledged"


def _document(plan: Any) -> dict[str, Any]:
    steps = [{"text": str(step), **asdict(step)} for step in plan.steps]
    return {**asdict(plan), "steps": steps, "lossless": plan.lossless}


def _exit_code(plan: Any) -> int:
    if not plan.damage:
        return 0
    return 3 if all(damage.torn for damage in plan.damage) else 2
