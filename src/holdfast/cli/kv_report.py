"""`holdfast kv stats`, `manifest` and `verify`: what holdfast.reports.kv found, printed."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.console import (
    JsonOption,
    answer,
    answer_json,
    printable,
    progress,
    table,
)
from holdfast.cli.errors import AbsentError
from holdfast.cli.kv_bytes import json_bytes
from holdfast.cli.kv_opening import StoreUrl, bucket_to_read, shown
from holdfast.cli.sparking import MasterOption, spark_session
from holdfast.cli.units import count_of, human_duration, human_size, human_time

if TYPE_CHECKING:
    from holdfast.reports.kv import Amount, LevelReport, ManifestReport, SnapshotReport, StoreReport

SparkOption = Annotated[bool, typer.Option("--spark", help="Let Spark's workers do it.")]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
_KEY_SHOWN = 30


def stats(
    url: StoreUrl,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Answer with gauges that Prometheus reads.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say on one page what a store holds, and what waits to be compacted or collected.

    Rows are counted where they lie, deletions and rows that newer ones hide included; after
    `compact --everything` they are exact.
    """
    from holdfast.reports.kv import report_store

    if prometheus and as_json:
        raise ValueError("--prometheus and --json exclude each other")
    report = report_store(bucket_to_read(url))
    bare = shown(url)
    if as_json:
        answer_json({"url": bare, **asdict(report)})
    elif prometheus:
        from holdfast.reports import numbers_of, prometheus_text

        answer(prometheus_text(numbers_of(report), "holdfast_kv", store=bare).rstrip())
    else:
        facts = dict(_facts(bare, report))
        width = max(map(len, facts))
        answer("\n".join(f"{name:<{width}}  {value}" for name, value in facts.items()))


def verify(
    url: StoreUrl,
    spark: SparkOption = False,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Verify every checksum of all that the store and its snapshots need.

    Exits with 2 if something is damaged or missing. It writes nothing, and may run beside a live
    writer.
    """
    bucket = bucket_to_read(url)
    if spark:
        with spark_session(master, "scrubbing") as session:
            from holdfast.spark.jobs import scrub_kv

            report = scrub_kv(session, url)
    else:
        from holdfast.reports.kv import verify_store

        with progress(f"verifying {shown(url)}") as on_progress:
            report = verify_store(bucket, on_progress)
    if as_json:
        answer_json({**asdict(report), "sound": report.is_sound})
    else:
        for problem in report.problems:
            answer(f"{problem.name}: {problem.why}")
        what = f"{count_of(report.manifests, 'manifest')}, {count_of(report.ssts, 'SST')}"
        rows = f"{count_of(report.rows, 'row')}, {human_size(report.size)}"
        verdict = "clean" if report.is_sound else "corrupt"
        answer(f"{shown(url)}: {verdict} ({what}, {rows})")
    raise typer.Exit(0 if report.is_sound else 2)


@app.callback()
def manifest(context: typer.Context, url: StoreUrl) -> None:
    """Show the states of a store: epochs, levels, snapshots, jobs."""
    context.obj = url


@app.command()
def show(
    context: typer.Context,
    id: Annotated[
        int | None, typer.Option("--id", min=1, metavar="N", help="Not the current one, but this.")
    ] = None,
    ssts: Annotated[bool, typer.Option("--ssts", help="Tell of every SST.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a manifest says: the current one, or another that is still there."""
    from holdfast.reports.kv import report_manifest

    bucket = bucket_to_read(context.obj)
    try:
        report = report_manifest(bucket, id)
    except FileNotFoundError:
        advice = "`holdfast kv manifest URL list` tells which there are"
        raise AbsentError(f"no manifest {id}; {advice}") from None
    if as_json:
        answer_json(_document(report, ssts=ssts))
    else:
        answer("\n".join(_page(report, ssts=ssts)))


@app.command("list")
def list_(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the manifests that are still there, oldest first, and what keeps them."""
    from holdfast.reports.kv import list_manifests

    found = list_manifests(bucket_to_read(context.obj))
    if as_json:
        answer_json([asdict(each) for each in found])
    else:
        rows = [(m.id, m.state, human_size(m.size), human_time(m.modified_ms)) for m in found]
        answer(table(["ID", "STATE", "SIZE", "WRITTEN"], rows))


def snapshot_table(snapshots: "Sequence[SnapshotReport]") -> str:
    """One line for each."""
    rows = [(s.id, s.manifest_id, _expiry(s.expires_ms, s.expired)) for s in snapshots]
    return table(["SNAPSHOT", "MANIFEST", "EXPIRES"], rows)


def _expiry(expires_ms: int | None, expired: bool) -> str:
    if expires_ms is None:
        return "never"
    return f"{human_time(expires_ms)}{' (expired)' if expired else ''}"


def _facts(url: str, report: "StoreReport") -> Iterator[tuple[str, str]]:
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
        yield _indented(snapshot_table(report.snapshots))
    live = [job for job in report.jobs if not job.done]
    if live:
        yield "  jobs under way"
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
    """As JSON, where keys may be bytes that are no text."""
    document = asdict(report)
    for level in document["levels"]:
        level["sst_count"] = len(level["ssts"])
        for holder in [level, *level["ssts"]]:
            for name in ("first_key", "last_key"):
                holder |= json_bytes(name, holder.pop(name))
        if not ssts:
            del level["ssts"]
    return document
