from collections.abc import Callable

import pytest

from holdfast.formats.manifest import BASE_STEP, EPOCH_MAX, checks
from holdfast.formats.manifest.manifest_pb2 import Manifest, SstInfo

ID = bytes(16)


def sound() -> Manifest:
    """A message that holds all rules: two SSTs in L0, two in a run, one of everything else."""
    message = Manifest(
        writer_epoch=4,
        compactor_epoch=2,
        wal_gc_boundary=5,
        wal_id_last_compacted=6,
        wal_id_last_seen=9,
        max_parallel_writes=3,
        next_sst_base=2 * BASE_STEP,
        leveled_ssts=[SstInfo(id=BASE_STEP + i, first_key=b"%d" % i) for i in (3, 1, 2, 5)],
    )
    message.sorted_runs.add(id=1, sst_count=2)
    message.snapshots.add(id=ID, manifest_id=1)
    message.jobs.add(id=ID, base=BASE_STEP)
    message.transactions.add(query_id="q", batch_id=0)
    return message


BREAKS: dict[str, Callable[[Manifest], object]] = {
    "an epoch above": lambda m: setattr(m, "writer_epoch", EPOCH_MAX + 1),
    f"an epoch above {EPOCH_MAX}": lambda m: setattr(m, "compactor_epoch", 2**64 - 1),
    "0 parallel writes": lambda m: setattr(m, "max_parallel_writes", 0),
    "100000 parallel writes": lambda m: setattr(m, "max_parallel_writes", 100_000),
    "WAL ids out of order": lambda m: setattr(m, "wal_id_last_seen", 5),
    "WAL ids out of order: gc": lambda m: setattr(m, "wal_gc_boundary", 7),
    "not a multiple": lambda m: setattr(m, "next_sst_base", 2 * BASE_STEP + 1),
    "base 0 is not a multiple": lambda m: setattr(m, "next_sst_base", 0),
    "no job was given": lambda m: setattr(m.leveled_ssts[0], "id", 2 * BASE_STEP),
    "that no job was given": lambda m: setattr(m.leveled_ssts[0], "id", 0),
    "an SST id twice": lambda m: setattr(m.leveled_ssts[0], "id", BASE_STEP + 5),
    "runs of 5 SSTs": lambda m: setattr(m.sorted_runs[0], "sst_count", 5),
    "or of none": lambda m: setattr(m.sorted_runs[0], "sst_count", 0),
    "a run twice": lambda m: m.sorted_runs.add(id=1, sst_count=1),
    "a snapshot of manifest 0": lambda m: m.snapshots.add(id=b"x" * 16),
    "a snapshot twice": lambda m: m.snapshots.add(id=ID, manifest_id=7),
    "a snapshot id that": lambda m: setattr(m.snapshots[0], "id", b"short"),
    "a base that was never given": lambda m: setattr(m.jobs[0], "base", 2 * BASE_STEP),
    "base that was never given": lambda m: setattr(m.jobs[0], "base", BASE_STEP + 1),
    "a base of a job twice": lambda m: m.jobs.add(id=b"x" * 16, base=BASE_STEP),
    "a job id that": lambda m: setattr(m.jobs[0], "id", b""),
    "a query twice": lambda m: m.transactions.add(query_id="q", batch_id=8),
    "a transaction of no query": lambda m: m.transactions.add(batch_id=8),
}


def test_what_holds_all_rules_has_no_flaw() -> None:
    assert checks.flaw(sound(), checks.sst_ids(sound())) is None
    assert checks.sst_ids(sound()).tolist() == [BASE_STEP + i for i in (3, 1, 2, 5)]


@pytest.mark.parametrize("why", BREAKS)
def test_every_broken_rule_is_named(why: str) -> None:
    message = sound()
    BREAKS[why](message)
    assert why in (checks.flaw(message, checks.sst_ids(message)) or "")
