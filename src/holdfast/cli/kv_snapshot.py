"""`holdfast kv snapshot`: states that stay readable, until a time or until they are dropped."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from holdfast.cli.console import JsonOption, answer, answer_json
from holdfast.cli.errors import AbsentError
from holdfast.cli.kv_opening import (
    CasOption,
    StoreUrl,
    bucket_to_read,
    bucket_to_write,
    find_snapshot,
)
from holdfast.cli.kv_report import snapshot_table
from holdfast.cli.units import count_of, human_time, parse_duration_ms

if TYPE_CHECKING:
    from holdfast.bucket import Bucket
    from holdfast.kv.snapshots import Snapshot, Snapshots

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

TtlOption = Annotated[
    int | None,
    typer.Option(
        "--ttl", parser=parse_duration_ms, metavar="DURATION", help="How long: 30m, 12h, 7d."
    ),
]
ForeverOption = Annotated[bool, typer.Option("--forever", help="Until it is dropped.")]
Id = Annotated[UUID, typer.Argument(metavar="ID", help="The snapshot's id.")]


@app.callback()
def snapshot(context: typer.Context, url: StoreUrl) -> None:
    """Keep states of a store readable.

    Writers and readers that run hold snapshots of their own, which are listed too.
    """
    context.obj = url


@app.command()
def create(
    context: typer.Context,
    ttl: TtlOption = None,
    forever: ForeverOption = False,
    at: Annotated[
        int | None,
        typer.Option("--at", min=1, metavar="ID", help="Of this manifest, not the newest state."),
    ] = None,
    cas: CasOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep a state: all that is durable now, or that of a manifest that is still needed.

    For an hour, unless said otherwise.
    """
    from holdfast.kv.scans import pinned
    from holdfast.runtime import Runtime

    ttl_s = _ttl_s(ttl, forever) if ttl is not None or forever else 3600.0
    bucket = bucket_to_write(context.obj, cas)
    if at is None:
        made = pinned(bucket, Runtime(), ttl_s)
    else:
        made = _snapshots(bucket).create(ttl_s, manifest_id=at)
    _tell(made, "keeps", as_json=as_json)


@app.command()
def extend(
    context: typer.Context,
    id: Id,
    ttl: TtlOption = None,
    forever: ForeverOption = False,
    cas: CasOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a snapshot last so long from now; it may also be made shorter."""
    ttl_s = _ttl_s(ttl, forever)
    bucket = bucket_to_write(context.obj, cas)
    try:
        made = _snapshots(bucket).extend(id, ttl_s)
    except KeyError as error:
        raise AbsentError(str(error.args[0])) from None
    _tell(made, "now keeps", as_json=as_json)


@app.command("list")
def list_(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the snapshots, expired ones too: those are dropped by the garbage collector."""
    from holdfast.reports.kv import report_snapshot
    from holdfast.runtime import Runtime

    now_ms = Runtime().now_ms()
    bucket = bucket_to_read(context.obj)
    found = [report_snapshot(each, now_ms) for each in _snapshots(bucket).list()]
    if as_json:
        answer_json([asdict(each) for each in found])
    else:
        answer(snapshot_table(found))


@app.command()
def drop(
    context: typer.Context,
    ids: Annotated[list[UUID], typer.Argument(metavar="ID", help="The snapshots' ids.")],
    cas: CasOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let go of snapshots; what only they kept is garbage from now on."""
    bucket = bucket_to_write(context.obj, cas)
    for id in ids:
        find_snapshot(bucket, id)
    _snapshots(bucket).drop(*ids)
    if as_json:
        answer_json({"dropped": [str(id) for id in ids]})
    else:
        answer(f"dropped {count_of(len(ids), 'snapshot')}")


def _snapshots(bucket: "Bucket") -> "Snapshots":
    from holdfast.kv.manifests import ManifestStore
    from holdfast.kv.snapshots import Snapshots
    from holdfast.runtime import Runtime

    runtime = Runtime()
    return Snapshots(ManifestStore(bucket, runtime), runtime)


def _ttl_s(ttl_ms: int | None, forever: bool) -> float | None:
    if forever == (ttl_ms is not None):
        raise ValueError("say how long: either --ttl DURATION or --forever")
    return None if ttl_ms is None else ttl_ms / 1000


def _tell(made: "Snapshot", verb: str, *, as_json: bool) -> None:
    from holdfast.reports.kv import report_snapshot
    from holdfast.runtime import Runtime

    if as_json:
        answer_json(asdict(report_snapshot(made, Runtime().now_ms())))
        return
    until = f"until {human_time(made.expires_s * 1000)}" if made.expires_s else "for ever"
    answer(f"{made.id} {verb} manifest {made.manifest_id} {until}")
