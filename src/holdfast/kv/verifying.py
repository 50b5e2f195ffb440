"""Whether a store is whole: every manifest that counts, every SST that it needs, every checksum.

Nothing is written, and live owners may go on.  An SST that is checked stays for as long as its
manifest is active; if that ends meanwhile, a missing one is no loss, and `judge` finds that out.

    plan = plan_verify(bucket, runtime)         manifests, and what they need
    verify_sst(bucket, need, runtime)           one SST, in any process: a Checked
    judge(bucket, plan, checked, runtime)       what is wrong: a KvReport
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.bucket.bucket import Bucket
from holdfast.errors import CorruptError, UnsupportedError
from holdfast.formats.manifest import Manifest
from holdfast.formats.sst import Kind
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.names import WAL, id_of, level_name, manifest_name, wal_name
from holdfast.kv.snapshots import active_ids
from holdfast.kv.tables import Cache, Table
from holdfast.runtime import Runtime

_HEADS_SIZE = 64 << 20


@dataclass(frozen=True, slots=True)
class Need:
    """An SST that a manifest needs; of the WAL's, what is in it is not known beforehand."""

    name: str
    size: int
    head_offset: int | None = None
    row_count: int | None = None
    first_key: bytes = b""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with an object."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found in an SST."""

    name: str
    size: int
    row_count: int = 0
    why: str = ""  # nothing, if it is sound


@dataclass(frozen=True, slots=True)
class VerifyPlan:
    """What to check, and what is known to be wrong already."""

    manifest_ids: tuple[int, ...]
    needs: tuple[Need, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class KvReport:
    """The verdict.  Rows are counted in every SST, also those that newer ones hide."""

    manifests: int
    ssts: int
    rows: int
    size: int
    problems: tuple[Problem, ...]

    @property
    def is_sound(self) -> bool:
        return not self.problems


def plan_verify(bucket: Bucket, runtime: Runtime) -> VerifyPlan:
    """Read all active manifests; FileNotFoundError if there is no store."""
    found, problems = _active(bucket, runtime)
    needs: dict[str, Need] = {}
    for manifest in found.values():
        for sst in [*manifest.l0, *(sst for run in manifest.runs for sst in run)]:
            name = level_name(sst.id)
            needs[name] = Need(name, sst.size, sst.filter_offset, sst.row_count, sst.first_key)
    sizes = {info.name: info.size for info in bucket.list(WAL)}
    for name in sorted({name for manifest in found.values() for name in _wal(manifest, sizes)}):
        if name in sizes:
            needs[name] = Need(name, sizes[name])
        else:
            problems.append(Problem(name, "missing, and the rows in it are in no level"))
    return VerifyPlan(tuple(sorted(found)), tuple(needs.values()), tuple(problems))


def verify_sst(bucket: Bucket, need: Need, runtime: Runtime) -> Checked:
    """Read it all, a few blocks at a time."""
    table = Table(bucket, Cache(_HEADS_SIZE, runtime), need.name, need.size, need.head_offset)
    try:
        count = _count(table)
        _compare(table, need, count)
    except FileNotFoundError:
        return Checked(need.name, 0, why="missing")
    except (CorruptError, UnsupportedError) as error:
        return Checked(need.name, need.size, why=str(error))
    return Checked(need.name, need.size, count)


def judge(
    bucket: Bucket, plan: VerifyPlan, checked: Sequence[Checked], runtime: Runtime
) -> KvReport:
    """All problems, but for what nobody needs any more."""
    bad = [Problem(each.name, each.why) for each in checked if each.why]
    if bad:
        still = {need.name for need in plan_verify(bucket, runtime).needs}
        bad = [problem for problem in bad if problem.name in still]
    return KvReport(
        len(plan.manifest_ids),
        len(checked),
        sum(each.row_count for each in checked),
        sum(each.size for each in checked),
        (*plan.problems, *bad),
    )


def _active(bucket: Bucket, runtime: Runtime) -> tuple[dict[int, Manifest], list[Problem]]:
    store = ManifestStore(bucket, runtime)
    current = store.latest()
    if current is None:
        raise FileNotFoundError("no store here: it has no manifest")
    found, problems = {current[0]: current[1]}, []
    for manifest_id in sorted(active_ids(*current, runtime.now_ms()) - found.keys()):
        try:
            found[manifest_id] = store.get(manifest_id)
        except FileNotFoundError:
            problems.append(Problem(manifest_name(manifest_id), "missing; a snapshot names it"))
        except (CorruptError, UnsupportedError) as error:
            problems.append(Problem(manifest_name(manifest_id), str(error)))
    return found, problems


def _wal(manifest: Manifest, there: Iterable[str]) -> set[str]:
    """What a manifest needs of the WAL: up to what was seen, and all that has come since."""
    first = manifest.wal_id_last_compacted + 1
    seen = {wal_name(wal_id) for wal_id in range(first, manifest.wal_id_last_seen + 1)}
    return seen | {name for name in there if (id_of(name) or 0) >= first}


def _count(table: Table) -> int:
    """The rows, every block of which was verified; CorruptError if keys do not rise."""
    count, last = 0, b""
    for rows in table.scan(b"", None):
        first: bytes = rows.keys[0].as_py()
        if not rows.is_sorted() or (count and first <= last):
            raise CorruptError(table.name, 0, "keys do not rise")
        last = rows.keys[-1].as_py()
        count += len(rows)
    return count


def _compare(table: Table, need: Need, count: int) -> None:
    """That the SST is what its footer and its manifest say."""
    info = table.info
    if count != info.row_count:
        raise CorruptError(table.name, 0, f"{count} rows, not {info.row_count}")
    if need.row_count is None:
        if info.kind is not Kind.WAL:
            raise CorruptError(table.name, 0, "an SST of the levels in the WAL")
    elif (need.row_count, need.first_key) != (info.row_count, info.first_key):
        raise CorruptError(table.name, 0, "not the SST that the manifest names")
