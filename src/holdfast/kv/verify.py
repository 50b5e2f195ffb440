"""Verify a store: every active manifest, every SST that it needs, every checksum.

Nothing is written, and a live writer is not disturbed.  An SST stays as long as its manifest is
active.  If the manifest is dropped meanwhile, a missing SST is not a loss; `judge` reads the
manifests again.

    verify_store(bucket)                        all of it: a KvReport
    plan = plan_verify(bucket, runtime)         manifests, and what they need
    verify_sst(bucket, need, runtime)           one SST, in any process: a Checked
    judge(bucket, plan, checked, runtime)       what is wrong: a KvReport
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.bucket.bucket import Bucket
from holdfast.errors import CorruptError, UnavailableError, UnsupportedError
from holdfast.formats.manifest import Manifest
from holdfast.formats.sst import Kind
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.names import WAL, id_of, manifest_name, wal_name
from holdfast.kv.plans import SourceSst, source_of
from holdfast.kv.snapshots import active_ids
from holdfast.kv.tables import Cache, Table
from holdfast.kv.tasks import check_identity, table_of
from holdfast.runtime import Runtime
from holdfast.verdicts import Verdict

Progress: TypeAlias = Callable[[int, int], None]

_HEADS_SIZE = 64 << 20


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of an object."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found in an SST."""

    name: str
    size: int
    row_count: int = 0
    why: str = ""  # empty if it is sound
    is_read: bool = True  # False: it could not be read to its end, so nothing is known of it


@dataclass(frozen=True, slots=True)
class VerifyPlan:
    """What to verify, and the problems that are known already."""

    manifest_ids: tuple[int, ...]
    needs: tuple[SourceSst, ...]
    problems: tuple[Problem, ...]
    unreadable: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class KvReport:
    """The verdict.  Rows are counted in every SST, also those that newer ones hide."""

    verdict: Verdict
    manifests: int
    ssts: int
    rows: int
    size: int
    problems: tuple[Problem, ...]  # objects that are damaged or missing
    unreadable: tuple[Problem, ...]  # objects that could not be judged


def verify_store(
    bucket: Bucket,
    on_progress: Progress = lambda done, total: None,
    runtime: Runtime | None = None,
) -> KvReport:
    """Read all that the active manifests need and check every checksum.  Writes nothing.

    `on_progress` is called with the bytes done, and the bytes in all.
    """
    runtime = runtime or Runtime()
    plan = plan_verify(bucket, runtime)
    done, total, checked = 0, sum(need.size for need in plan.needs), []
    for need in plan.needs:
        on_progress(done, total)
        checked.append(verify_sst(bucket, need, runtime))
        done += need.size
    on_progress(done, total)
    return judge(bucket, plan, checked, runtime)


def plan_verify(bucket: Bucket, runtime: Runtime) -> VerifyPlan:
    """Read all active manifests; NotFoundError without a store."""
    found, problems, unreadable = _active(bucket, runtime)
    needs: dict[str, SourceSst] = {}
    for manifest in found.values():
        for sst in [*manifest.l0, *(sst for run in manifest.runs for sst in run)]:
            need = source_of(sst.id, sst)
            needs[need.name] = need
    sizes = {info.name: info.size for info in bucket.list(WAL)}
    for name in sorted({name for manifest in found.values() for name in _wal(manifest, sizes)}):
        if name in sizes:
            needs[name] = SourceSst(name, sizes[name])
        else:
            problems.append(Problem(name, "missing, and no level has its rows"))
    ids = tuple(sorted(found))
    return VerifyPlan(ids, tuple(needs.values()), tuple(problems), tuple(unreadable))


def verify_sst(bucket: Bucket, need: SourceSst, runtime: Runtime) -> Checked:
    """Verify one SST, a few blocks at a time."""
    table = table_of(bucket, Cache(_HEADS_SIZE, runtime), need)
    try:
        count = _count(table)
        _compare(table, need, count)
    except FileNotFoundError:
        return Checked(need.name, 0, why="missing")
    except (CorruptError, UnsupportedError) as error:
        return Checked(need.name, need.size, why=str(error))
    except (OSError, UnavailableError) as error:
        return Checked(need.name, 0, why=str(error), is_read=False)
    return Checked(need.name, need.size, count)


def judge(
    bucket: Bucket, plan: VerifyPlan, checked: Sequence[Checked], runtime: Runtime
) -> KvReport:
    """Return all problems, except those of objects that no manifest needs now."""
    bad = [each for each in checked if each.why]
    if bad:
        still = {need.name for need in plan_verify(bucket, runtime).needs}
        bad = [each for each in bad if each.name in still]
    found = [(each.is_read, Problem(each.name, each.why)) for each in bad]
    problems = (*plan.problems, *(problem for is_read, problem in found if is_read))
    unreadable = (*plan.unreadable, *(problem for is_read, problem in found if not is_read))
    return KvReport(
        "corrupt" if problems else "unreadable" if unreadable else "clean",
        len(plan.manifest_ids),
        len(checked),
        sum(each.row_count for each in checked),
        sum(each.size for each in checked),
        problems,
        unreadable,
    )


def _active(
    bucket: Bucket, runtime: Runtime
) -> tuple[dict[int, Manifest], list[Problem], list[Problem]]:
    """Return the active manifests, the damaged or missing ones, and the unreadable ones."""
    store = ManifestStore(bucket, runtime)
    current = store.current()
    found, problems, unreadable = {current[0]: current[1]}, [], []
    for manifest_id in sorted(active_ids(*current, runtime.now_ms()) - found.keys()):
        name = manifest_name(manifest_id)
        try:
            found[manifest_id] = store.get(manifest_id)
        except FileNotFoundError:
            problems.append(Problem(name, "missing; a snapshot names it"))
        except (CorruptError, UnsupportedError) as error:
            problems.append(Problem(name, str(error)))
        except (OSError, UnavailableError) as error:
            unreadable.append(Problem(name, str(error)))
    return found, problems, unreadable


def _wal(manifest: Manifest, there: Iterable[str]) -> set[str]:
    """Return the SSTs of the WAL that a manifest needs: those recorded, and all later ones."""
    first = manifest.wal_id_last_compacted + 1
    seen = {wal_name(wal_id) for wal_id in range(first, manifest.wal_id_last_seen + 1)}
    return seen | {name for name in there if (id_of(name) or 0) >= first}


def _count(table: Table) -> int:
    """Count the rows, with every block verified; CorruptError if keys do not rise."""
    count, last = 0, b""
    for rows in table.scan(b"", None):
        first: bytes = rows.keys[0].as_py()
        if not rows.is_sorted() or (count and first <= last):
            raise CorruptError(table.name, 0, "keys do not rise")
        last = rows.keys[-1].as_py()
        count += len(rows)
    return count


def _compare(table: Table, need: SourceSst, count: int) -> None:
    """Raise CorruptError unless the SST agrees with its footer and its manifest."""
    info = table.info
    if count != info.row_count:
        raise CorruptError(table.name, 0, f"{count} rows, not {info.row_count}")
    if need.row_count is None and info.kind is not Kind.WAL:
        raise CorruptError(table.name, 0, "an SST of the levels in the WAL")
    check_identity(need, table)
