"""`holdfast kv inspect`, `manifest` and `verify`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.errors import AbsentError
from holdfast.cli.opening import kv_admin, without_query
from holdfast.cli.options import JsonOption, MasterOption, PrometheusOption, SparkOption, StoreUrl
from holdfast.cli.output import (
    answer,
    answer_rows,
    count_of,
    human_duration,
    human_size,
    human_time,
    json_bytes,
    page,
    printable,
    table,
)
from holdfast.cli.sparking import spark_session
from holdfast.cli.verifying import verify_all

if TYPE_CHECKING:
    from holdfast.kv.status import Amount, KvStatus, LevelReport, ManifestReport, SnapshotReport
    from holdfast.kv.verify import KvReport

app = typer.Typer(no_args_is_help=True, invoke_without_command=True, rich_markup_mode=None)
_KEY_SHOWN = 30


def inspect(
    url: StoreUrl, prometheus: PrometheusOption = False, as_json: JsonOption = False
) -> None:
    """Show a status summary of a store.

    Its rows, levels and snapshots, and what waits for compaction or garbage collection. Deleted
    and replaced rows are counted too; after `compact --everything` the count is exact.
    """
    from holdfast.metrics import numbers_of, prometheus_text

    if prometheus and as_json:
        raise ValueError("--prometheus and --json exclude each other")
    report = kv_admin(url, read_only=True).status()
    bare = without_query(url)
    if prometheus:
        answer(prometheus_text(numbers_of(report), "holdfast_kv", store=bare).rstrip())
    else:
        answer(page(dict(_facts(bare, report))), {"url": bare, **asdict(report)}, as_json=as_json)


def verify(
    url: StoreUrl,
    spark: SparkOption = False,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Verify every checksum of all objects that the store and its snapshots need.

    Exits with 2 if an object is damaged or missing, with 5 if one cannot be read. It writes
    nothing, and may run beside a live writer.
    """

    def find(_: str) -> None:
        kv_admin(url, read_only=True)

    def check(_: str, on_progress: Callable[[int, int], None]) -> "KvReport":
        if not spark:
            return kv_admin(url, read_only=True).verify(on_progress)
        with spark_session(master, "scrubbing") as session:
            from holdfast.spark.jobs import scrub_kv

            return scrub_kv(session, url)

    bare = without_query(url)
    verify_all([bare], find, check, lambda report: _verdict(bare, report), as_json=as_json)


def _verdict(url: str, report: "KvReport") -> str:
    problems = [f"{one.name}: {one.why}" for one in (*report.problems, *report.unreadable)]
    what = f"{count_of(report.manifests, 'manifest')}, {count_of(report.ssts, 'SST')}"
    rows = f"{count_of(report.rows, 'row')}, {human_size(report.size)}"
    return "\n".join([*problems, f"{url}: {report.verdict} ({what}, {rows})"])


@app.callback()
def manifest(context: typer.Context, url: StoreUrl) -> None:
    """Show the manifests of a store: epochs, levels, snapshots, jobs.

    Without a command it shows the current manifest, as `show` does.
    """
    context.obj = url
    if context.invoked_subcommand is None:
        show(context)


@app.command()
def show(
    context: typer.Context,
    id: Annotated[
        int | None,
        typer.Option("--id", min=1, metavar="N", help="The manifest. Default: the current one."),
    ] = None,
    ssts: Annotated[bool, typer.Option("--ssts", help="List every SST.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show one manifest."""
    admin = kv_admin(context.obj, read_only=True)
    try:
        report = admin.manifest(id)
    except FileNotFoundError:
        advice = "`holdfast kv manifest URL list` lists the manifests"
        raise AbsentError(f"no manifest {id}; {advice}") from None
    answer(_page(report, ssts=ssts), _document(report, ssts=ssts), as_json=as_json)


@app.command("list")
def list_(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the manifests, oldest first, and what keeps each of them."""
    found = kv_admin(context.obj, read_only=True).manifests()
    rows = [(m.id, m.state, human_size(m.size), human_time(m.modified_ms)) for m in found]
    answer_rows(["ID", "STATE", "SIZE", "WRITTEN"], rows, found, as_json=as_json)


SNAPSHOT_TITLES = ["SNAPSHOT", "MANIFEST", "EXPIRES"]


def snapshot_rows(snapshots: "Sequence[SnapshotReport]") -> list[tuple[object, ...]]:
    return [(s.id, s.manifest_id, _expiry(s.expires_ms, s.expired)) for s in snapshots]


def _expiry(expires_ms: int | None, expired: bool) -> str:
    if expires_ms is None:
        return "never"
    return f"{human_time(expires_ms)}{' (expired)' if expired else ''}"


def _facts(url: str, report: "KvStatus") -> Iterator[tuple[str, str]]:
    yield "store", url
    yield "created", human_time(report.created_ms)
    yield "manifest", f"{report.manifest_id} ({_amount(report.manifests)} in all)"
    yield "epochs", f"writer {report.writer_epoch}, compactor {report.compactor_epoch}"
    yield "rows", f"{report.everything.rows:,}"
    fences = count_of(report.wal_fences, "fence")
    yield "WAL", f"{_amount(report.wal, 'SST')}, {report.wal.rows:,} rows, {fences}"
    yield "L0", f"{_amount(report.l0, 'SST')}, {report.l0.rows:,} rows"
    runs = f"{count_of(report.run_count, 'run')} of {_amount(report.runs, 'SST')}"
    yield "runs", f"{runs}, {report.runs.rows:,} rows"
    expired = f", {report.snapshots_expired} expired" if report.snapshots_expired else ""
    yield "snapshots", f"{report.snapshots}{expired}"
    yield "jobs", str(report.jobs or "none")
    yield "streams", str(report.transactions or "none")
    yield "bucket", _amount(report.everything)
    young = f"{report.garbage_young:,} more younger than {human_duration(report.gc_min_age_ms)}"
    yield "garbage", f"{_amount(report.garbage)}; {young}"


def _amount(amount: "Amount", thing: str = "object") -> str:
    return f"{count_of(amount.objects, thing)}, {human_size(amount.bytes)}"


def _page(report: "ManifestReport", *, ssts: bool) -> Iterator[str]:
    yield f"manifest {report.id}"
    yield f"  writer epoch {report.writer_epoch}, compactor epoch {report.compactor_epoch}"
    compacted, seen = report.wal_id_last_compacted, report.wal_id_last_seen
    yield f"  WAL compacted up to {compacted}, seen up to {seen}"
    yield f"  sequence numbers in levels up to {report.last_seq}"
    yield f"  levels, newest first{'' if report.levels else ': none'}"
    if report.levels:
        yield _indented(_level_table(report.levels, ssts=ssts))
    if report.snapshots:
        yield "  snapshots"
        yield _indented(table(SNAPSHOT_TITLES, snapshot_rows(report.snapshots)))
    live = [job for job in report.jobs if not job.done]
    if live:
        yield "  running jobs"
        rows = [(job.id, job.kind, human_time(job.started_ms)) for job in live]
        yield _indented(table(["JOB", "KIND", "STARTED"], rows))
    if report.transactions:
        yield "  streams"
        yield _indented(table(["QUERY", "LAST BATCH"], list(report.transactions.items())))


def _level_table(levels: "Sequence[LevelReport]", *, ssts: bool) -> str:
    rows: list[tuple[object, ...]] = []
    for level in levels:
        name = f"{level.kind} {level.id}"
        rows.append(
            (name, len(level.ssts), level.rows, human_size(level.size),
             _key(level.first_key), _key(level.last_key))
        )  # fmt: skip
        rows += [
            (f"  sst {sst.id}", 1, sst.rows, human_size(sst.size), _key(sst.first_key),
             _key(sst.last_key) if sst.last_key else "")
            for sst in level.ssts if ssts
        ]  # fmt: skip
    return table(["LEVEL", "SSTS", "ROWS", "SIZE", "FIRST KEY", "LAST KEY"], rows)


def _key(key: bytes) -> str:
    text = printable(key)
    return text if len(text) <= _KEY_SHOWN else f"{text[:_KEY_SHOWN]}..."


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _document(report: "ManifestReport", *, ssts: bool) -> dict[str, Any]:
    """Return the report for JSON, where keys may be bytes that are not text."""
    document = asdict(report)
    for level in document["levels"]:
        level["sst_count"] = len(level["ssts"])
        for holder in [level, *level["ssts"]]:
            for name in ("first_key", "last_key"):
                holder |= json_bytes(name, holder.pop(name))
        if not ssts:
            del level["ssts"]
    return document
