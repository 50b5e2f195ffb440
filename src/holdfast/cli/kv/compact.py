"""`holdfast kv compact`, `gc` and `repair`: maintenance, if the writer does not do it."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.opening import kv_admin
from holdfast.cli.options import (
    ApplyOption,
    CasOption,
    JsonOption,
    MasterOption,
    SparkOption,
    StoreUrl,
    parse_duration_ms,
)
from holdfast.cli.output import PLANNED, answer, answer_json, count_of, human_size, progress, table
from holdfast.cli.sparking import spark_session

if TYPE_CHECKING:
    from holdfast.kv.gc import GcPlan, GcReport

_WHAT = {
    "manifest": "manifests that no snapshot needs",
    "manifest_other": "foreign files among the manifests",
    "wal": "SSTs of the WAL that are compacted",
    "wal_other": "foreign files in the WAL",
    "level": "SSTs that no manifest needs",
}


def compact(
    url: StoreUrl,
    everything: Annotated[
        bool,
        typer.Option(
            "--everything", help="Merge everything into one run, without deleted and replaced rows."
        ),
    ] = False,
    spark: SparkOption = False,
    master: MasterOption = None,
    cas: CasOption = None,
    as_json: JsonOption = False,
) -> None:
    """Merge the SSTs of the WAL into levels, and levels into fewer runs.

    Writers and readers are not disturbed, and see the same rows. Another compactor is fenced. The
    merged SSTs are garbage then: see `gc`.
    """
    admin = kv_admin(url, cas)
    if spark:
        with spark_session(master, "compacting") as session:
            from holdfast.spark.jobs import compact as run

            done = run(session, url, everything=everything, cas=cas)
    else:
        with progress("compacting") as on_progress:
            done = admin.compact(everything=everything, on_progress=on_progress)
    if not done.steps:
        text = "nothing to compact" + ("" if everything else "; --everything makes one run")
    else:
        read = f"{count_of(done.rows_read, 'row')}, {human_size(done.bytes_read)}"
        written = f"{count_of(done.rows_written, 'row')}, {human_size(done.bytes_written)}"
        text = f"{count_of(done.steps, 'compaction')}: read {read}; wrote {written}"
    answer(text, done, as_json=as_json)


def gc(
    url: StoreUrl,
    apply: ApplyOption = False,
    clock_skew: Annotated[
        int,
        typer.Option(
            parser=parse_duration_ms,
            metavar="DURATION",
            help="The largest difference of clocks: a snapshot is kept this long after its expiry.",
        ),
    ] = "1h",  # type: ignore[assignment]  # parsed by the option
    cas: CasOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan the deletion of objects that no state needs; --apply deletes them.

    It may run beside writers, readers and compactors. Objects younger than the gc-min-age of the
    store stay. If a manifest that decides is damaged, nothing is deleted, and the exit code is 2.
    """
    from holdfast.kv import GcOptions

    options = GcOptions(clock_skew_max_ms=clock_skew)
    # A plan writes nothing, not even to test the bucket.
    admin = kv_admin(url, cas, read_only=not (apply or cas))
    if apply:
        with progress("deleting", unit="objects") as on_progress:
            report = admin.gc(options, on_progress)
        _print_deleted(report, as_json=as_json)
    else:
        _print_plan(admin.plan_gc(options), as_json=as_json)


def repair(
    url: StoreUrl, apply: ApplyOption = False, cas: CasOption = None, as_json: JsonOption = False
) -> None:
    """Plan to finish two-phase writes that a crash left unfinished; --apply finishes them.

    Every other command with --cas finishes them first. A bucket with create-if-absent has nothing
    to repair.
    """
    from holdfast.doors import repair_kv

    if cas is None or cas == "native":
        kv_admin(url, read_only=True)
    names = repair_kv(url, cas=cas, apply=apply)
    lines = [f"unfinished: {name}" for name in names]
    if names:
        lines.append(f"finished {count_of(len(names), 'write')}" if apply else PLANNED)
    elif cas is None or cas == "native":
        lines.append("nothing to repair: this bucket has no two-phase writes")
    else:
        lines.append("no write was unfinished")
    document = {"applied": apply and bool(names), "unfinished": names}
    answer(lines, document, as_json=as_json)


def _print_plan(plan: "GcPlan", *, as_json: bool) -> None:
    if as_json:
        garbage = [asdict(each) for each in plan.garbage]
        answer_json(
            {
                "applied": False,
                "manifest_id": plan.manifest_id,
                "garbage": garbage,
                "young_count": plan.young_count,
                "expired_snapshots": len(plan.expired_snapshots),
                "expired_jobs": len(plan.expired_jobs),
            }
        )
        return
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for each in plan.garbage:
        counts[each.rule] = counts.get(each.rule, 0) + 1
        sizes[each.rule] = sizes.get(each.rule, 0) + each.size
    _print_counts(counts, sizes)
    expired = _expired(len(plan.expired_snapshots), len(plan.expired_jobs))
    what = f"{count_of(len(plan.garbage), 'object')}, {human_size(sum(sizes.values()))}"
    answer(f"would delete {what}{expired}; {plan.young_count:,} more when they are older")
    answer(PLANNED)


def _print_deleted(report: "GcReport", *, as_json: bool) -> None:
    if as_json:
        answer_json({"applied": True, **asdict(report)})
        return
    _print_counts(report.counts, report.sizes)
    expired = _expired(report.expired_snapshots, report.expired_jobs)
    what = f"{count_of(report.count, 'object')}, {human_size(sum(report.sizes.values()))}"
    answer(f"deleted {what}{expired}; {report.young_count:,} more when they are older")


def _print_counts(counts: dict[str, int], sizes: dict[str, int]) -> None:
    rows = [
        (_WHAT[rule], counts[rule], human_size(sizes[rule])) for rule in _WHAT if rule in counts
    ]
    if rows:
        answer(table(["WHAT", "OBJECTS", "SIZE"], rows))


def _expired(snapshots: int, jobs: int) -> str:
    parts = [(snapshots, "expired snapshot"), (jobs, "expired job")]
    return "".join(f", {count_of(count, what)}" for count, what in parts if count)
