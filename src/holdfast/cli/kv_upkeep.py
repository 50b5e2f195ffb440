"""`holdfast kv compact`, `gc` and `recover`: upkeep, for stores whose writer does not do it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.console import JsonOption, answer, answer_json, progress, table
from holdfast.cli.kv_opening import (
    CasOption,
    StoreUrl,
    bucket_to_read,
    bucket_to_write,
    require_two_phase,
)
from holdfast.cli.kv_report import SparkOption
from holdfast.cli.sparking import MasterOption, spark_session
from holdfast.cli.units import count_of, human_size, parse_duration_ms

if TYPE_CHECKING:
    from holdfast.bucket import Bucket
    from holdfast.kv.gc import GcPlan, GcReport
    from holdfast.kv.tasks import Merged, Task
    from holdfast.spark.jobs import CompactReport

_WHAT = {
    "manifest": "manifests that no snapshot needs",
    "manifest_other": "strange files among the manifests",
    "wal": "SSTs of the WAL that are compacted",
    "wal_other": "strange files in the WAL",
    "level": "SSTs that no manifest needs",
}


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction in this process did."""

    steps: int
    tasks: int
    rows_read: int
    bytes_read: int
    rows_written: int
    bytes_written: int


def compact(
    url: StoreUrl,
    everything: Annotated[
        bool,
        typer.Option(
            "--everything", help="All of it into one run, without what is hidden or deleted."
        ),
    ] = False,
    spark: SparkOption = False,
    master: MasterOption = None,
    cas: CasOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move what was written from the WAL into levels, and levels into fewer runs, until quiet.

    Writers and readers go on meanwhile, and see the same rows before and after. A compactor that
    runs elsewhere is fenced. The SSTs that were merged are garbage then: see `gc`.
    """
    bucket = bucket_to_write(url, cas)
    if spark:
        with spark_session(master, "compacting") as session:
            from holdfast.spark.jobs import compact as run

            done: Compacted | CompactReport = run(session, url, everything=everything, cas=cas)
    else:
        done = _compact_here(bucket, everything=everything)
    if as_json:
        answer_json(asdict(done))
    elif not done.steps:
        answer("nothing to compact" + ("" if everything else "; --everything makes one run"))
    else:
        read = f"{count_of(done.rows_read, 'row')}, {human_size(done.bytes_read)}"
        written = f"{count_of(done.rows_written, 'row')}, {human_size(done.bytes_written)}"
        answer(f"{count_of(done.steps, 'compaction')}: read {read}; wrote {written}")


def gc(
    url: StoreUrl,
    apply: Annotated[bool, typer.Option("--apply", help="Delete it.")] = False,
    clock_skew: Annotated[
        int,
        typer.Option(
            parser=parse_duration_ms,
            metavar="DURATION",
            help="How far clocks may differ: snapshots are kept for so long after their expiry.",
        ),
    ] = "1h",  # type: ignore[assignment]  # parsed like what a person types
    cas: CasOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the objects that nobody needs any more; with --apply, delete them.

    It may run beside writers, readers and compactors. What is younger than the store's
    gc-min-age stays. If a manifest that decides cannot be read, nothing is deleted, and the exit
    code is 2.
    """
    from holdfast.kv.gc import GarbageCollector, GcOptions

    options = GcOptions(clock_skew_max_ms=clock_skew)
    # A look writes nothing, not even to try the bucket.
    bucket = bucket_to_write(url, cas) if apply or cas else bucket_to_read(url)
    collector = GarbageCollector(bucket, options=options)
    if apply:
        with progress("deleting", unit="objects") as on_progress:
            report = collector.collect(on_progress)
        _tell_deleted(report, as_json=as_json)
    else:
        _tell_plan(collector.plan(), as_json=as_json)


def recover(url: StoreUrl, cas: CasOption = None, as_json: JsonOption = False) -> None:
    """Finish two-phase writes that a crash left unfinished.

    Every command with --cas does it first; this one says what there was. A bucket that enforces
    create-if-absent by itself has nothing to recover.
    """
    from holdfast.kv.cas import open_and_recover

    if cas is None or cas == "native":
        bucket_to_write(url, None)  # refuses if its writers use records
        told = "nothing to recover: creates are all or nothing in this bucket"
        count = 0
    else:
        require_two_phase(url)
        count = open_and_recover(url, cas)[1]
        told = f"finished {count_of(count, 'write')}" if count else "nothing was unfinished"
    if as_json:
        answer_json({"finished": count, "two_phase": cas not in (None, "native")})
    else:
        answer(told)


def _compact_here(bucket: "Bucket", *, everything: bool) -> Compacted:
    from holdfast.kv.compaction import Compactor
    from holdfast.kv.tasks import merge_task

    merges: list[tuple[Task, Merged]] = []
    with progress("compacting") as on_progress:

        def merge(tasks: "Sequence[Task]") -> "list[Merged]":
            done, total = 0, sum(map(_size, tasks))
            for task in tasks:
                on_progress(done, total)
                merges.append((task, merge_task(bucket, task)))
                done += _size(task)
            on_progress(done, total)
            return [merged for _, merged in merges[-len(tasks) :]] if tasks else []

        compactor = Compactor(bucket, merge=merge)
        steps = compactor.compact_everything() if everything else compactor.run_until_quiet()
    ssts = [sst.info for _, merged in merges for sst in merged.ssts]
    return Compacted(
        steps=steps,
        tasks=len(merges),
        rows_read=sum(merged.row_count for _, merged in merges),
        bytes_read=sum(_size(task) for task, _ in merges),
        rows_written=sum(info.row_count for info in ssts),
        bytes_written=sum(info.size for info in ssts),
    )


def _size(task: "Task") -> int:
    return sum(sst.size for run in task.sources for sst in run)


def _tell_plan(plan: "GcPlan", *, as_json: bool) -> None:
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
    _tell_counts(counts, sizes)
    expired = _expired(len(plan.expired_snapshots), len(plan.expired_jobs))
    what = f"{count_of(len(plan.garbage), 'object')}, {human_size(sum(sizes.values()))}"
    answer(f"would delete {what}{expired}; {plan.young_count:,} more when they are older")
    answer("nothing was changed; --apply does it")


def _tell_deleted(report: "GcReport", *, as_json: bool) -> None:
    if as_json:
        answer_json({"applied": True, **asdict(report)})
        return
    _tell_counts(report.counts, report.sizes)
    expired = _expired(report.expired_snapshots, report.expired_jobs)
    what = f"{count_of(report.count, 'object')}, {human_size(sum(report.sizes.values()))}"
    answer(f"deleted {what}{expired}; {report.young_count:,} more when they are older")


def _tell_counts(counts: dict[str, int], sizes: dict[str, int]) -> None:
    rows = [
        (_WHAT[rule], counts[rule], human_size(sizes[rule])) for rule in _WHAT if rule in counts
    ]
    if rows:
        answer(table(["WHAT", "OBJECTS", "SIZE"], rows))


def _expired(snapshots: int, jobs: int) -> str:
    parts = [(snapshots, "expired snapshot"), (jobs, "expired job")]
    return "".join(f", {count_of(count, what)}" for count, what in parts if count)
