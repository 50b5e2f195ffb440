"""`holdfast pysyncobj`: the way back for a node that lost its journal."""

from typing import Annotated

import typer

from holdfast.cli.options import ApplyOption, JsonOption
from holdfast.cli.output import PLANNED, answer, answer_json

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Bring back a node of PySyncObj."
)


@app.callback()
def pysyncobj() -> None:
    """Bring back a node of PySyncObj."""


@app.command()
def rejoin(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="The directory of the node's journal.")
    ],
    dump: Annotated[
        str | None,
        typer.Option(help="The node's dump, if it has its own name.  Default: PATH.dump."),
    ] = None,
    apply: ApplyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Plan the return of a node with a lost or damaged journal; --apply carries it out.

    Stop the node first.  Journal and dump are renamed, not deleted.  The node starts empty: it
    fetches everything from the other nodes, and votes only then.  For that, a majority of the
    cluster must be whole and run without it.
    """
    from holdfast.integrations.pysyncobj.rejoin import apply_rejoin, plan_rejoin

    plan = plan_rejoin(path, dump)
    if not as_json:
        answer([f"step {number}: {step}" for number, step in enumerate(plan.steps, 1)])
    if apply:
        apply_rejoin(plan)
    if as_json:
        answer_json({"path": plan.directory, "applied": apply, "steps": plan.steps})
    else:
        answer("done; start the node" if apply else PLANNED)
