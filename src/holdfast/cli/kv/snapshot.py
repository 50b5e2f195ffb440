"""`holdfast kv snapshot`: states that stay readable until they expire or are dropped."""

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from holdfast.cli.errors import AbsentError
from holdfast.cli.kv.inspect import SNAPSHOT_TITLES, snapshot_rows
from holdfast.cli.opening import find_snapshot, kv_admin
from holdfast.cli.options import ApplyOption, CasOption, JsonOption, StoreUrl, parse_duration_ms
from holdfast.cli.output import PLANNED, answer, answer_rows, human_time

if TYPE_CHECKING:
    from holdfast.kv.status import SnapshotReport

app = typer.Typer(no_args_is_help=True, invoke_without_command=True, rich_markup_mode=None)

TtlOption = Annotated[
    int | None,
    typer.Option(
        "--ttl",
        parser=parse_duration_ms,
        metavar="DURATION",
        help="Time until the snapshot expires: 30m, 12h, 7d.",
    ),
]
ForeverOption = Annotated[bool, typer.Option("--forever", help="The snapshot never expires.")]
Id = Annotated[UUID, typer.Argument(metavar="ID", help="The snapshot's id.")]


@app.callback()
def snapshot(context: typer.Context, url: StoreUrl) -> None:
    """Create, extend, list and drop the snapshots of a store.

    Running writers and readers hold snapshots of their own, which are listed too. Without a command
    it lists them, as `list` does.
    """
    context.obj = url
    if context.invoked_subcommand is None:
        list_(context)


@app.command()
def create(
    context: typer.Context,
    ttl: TtlOption = None,
    forever: ForeverOption = False,
    at: Annotated[
        int | None,
        typer.Option("--at", min=1, metavar="ID", help="The manifest. Default: the newest state."),
    ] = None,
    cas: CasOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a snapshot of the newest state, or of a manifest that is still needed.

    It expires after 1h, unless --ttl or --forever is given.
    """
    ttl_ms = _ttl_ms(ttl, forever) if ttl is not None or forever else 3_600_000
    made = kv_admin(context.obj, cas).create_snapshot(ttl_ms, at=at)
    _print(made, "keeps", as_json=as_json)


@app.command()
def extend(
    context: typer.Context,
    id: Id,
    ttl: TtlOption = None,
    forever: ForeverOption = False,
    cas: CasOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set a new expiry of a snapshot, later or earlier, counted from now."""
    ttl_ms = _ttl_ms(ttl, forever)
    admin = kv_admin(context.obj, cas)
    try:
        made = admin.extend_snapshot(id, ttl_ms)
    except KeyError as error:
        raise AbsentError(str(error.args[0])) from None
    _print(made, "now keeps", as_json=as_json)


@app.command("list")
def list_(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the snapshots, also expired ones, which `gc` drops."""
    found = kv_admin(context.obj, read_only=True).snapshots()
    answer_rows(SNAPSHOT_TITLES, snapshot_rows(found), found, as_json=as_json)


@app.command()
def drop(
    context: typer.Context,
    ids: Annotated[list[UUID], typer.Argument(metavar="ID", help="The snapshots' ids.")],
    apply: ApplyOption = False,
    cas: CasOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan the removal of snapshots; --apply removes them.

    What only these snapshots need is garbage then.
    """
    admin = kv_admin(context.obj, cas, read_only=not apply)
    manifests = [find_snapshot(admin, id).manifest_id for id in ids]
    if apply:
        admin.drop_snapshots(*ids)
    verb = "dropped" if apply else "would drop"
    lines = [
        f"{verb} {id}, which keeps manifest {manifest}"
        for id, manifest in zip(ids, manifests, strict=True)
    ]
    document = {"applied": apply, "dropped": [str(id) for id in ids]}
    answer(lines if apply else [*lines, PLANNED], document, as_json=as_json)


def _ttl_ms(ttl_ms: int | None, forever: bool) -> int | None:
    if forever == (ttl_ms is not None):
        raise ValueError("pass either --ttl DURATION or --forever")
    return ttl_ms


def _print(made: "SnapshotReport", verb: str, *, as_json: bool) -> None:
    until = f"until {human_time(made.expires_ms)}" if made.expires_ms else "until it is dropped"
    answer(f"{made.id} {verb} manifest {made.manifest_id} {until}", made, as_json=as_json)
