from random import Random

import pytest

from holdfast.formats.manifest import (
    BASE_STEP,
    JobKind,
    Manifest,
    SstInfo,
    decode_manifest,
    describe,
    encode_manifest,
)
from holdfast.formats.sst import Rows, SstWriter

ID = bytes(16)
FIRST = Manifest.create(created_ms=1, gc_min_age_ms=60_000)


def sst(number: int, first: bytes, last: bytes) -> SstInfo:
    return SstInfo(id=BASE_STEP + number, first_key=first, last_key=last)


def with_base() -> Manifest:
    draft = FIRST.edit()
    assert draft.add_job(ID, JobKind.COMPACTION, started_ms=1, expires_ms=2) == BASE_STEP
    return draft.freeze()


def shape(manifest: Manifest) -> tuple[list[int], dict[int, list[int]]]:
    runs = {run.id: [found.id - BASE_STEP for found in run] for run in manifest.runs}
    return [found.id - BASE_STEP for found in manifest.l0], runs


def test_a_draft_changes_nothing_but_itself() -> None:
    base = with_base()
    draft = base.edit()
    draft.message.writer_epoch += 1
    draft.add_l0(sst(1, b"a", b"z"))
    assert (base.writer_epoch, len(base.l0), len(base.sst_ids)) == (0, 0, 0)
    after = draft.freeze()
    assert (after.writer_epoch, shape(after)) == (1, ([1], {}))
    assert after != base
    assert base == with_base()


def test_random_moves_do_what_lists_would_do() -> None:
    """SST number n holds the keys from n to n, so that any numbers make a run, in order."""
    for seed in range(60):
        random, manifest = Random(seed), with_base()
        l0: list[int] = []
        runs: list[tuple[int, list[int]]] = []
        unused = list(range(1, 200))
        random.shuffle(unused)
        for step in range(12):
            draft = manifest.edit()
            kind = random.randrange(4)
            new = sorted(unused.pop() for _ in range(random.randrange(1, 5)))
            ssts = [sst(n, b"%03d" % n, b"%03d+" % n) for n in new]
            if kind == 0:
                draft.add_l0(ssts[0])
                l0.insert(0, new[0])
            elif kind == 1:
                at = random.randint(0, len(runs))
                draft.add_run(step, ssts, at)
                runs.insert(at, (step, new))
            elif kind == 2 and runs:
                run_id, numbers = random.choice(runs)
                draft.extend_run(run_id, ssts)
                numbers[:] = sorted([*numbers, *new])
            elif kind == 3:
                there = [*l0, *(n for _, numbers in runs for n in numbers)]
                gone = set(random.sample(there, random.randint(0, len(there))))
                draft.remove_ssts([BASE_STEP + n for n in gone])
                l0 = [n for n in l0 if n not in gone]
                left = [(id, [n for n in numbers if n not in gone]) for id, numbers in runs]
                runs = [(id, numbers) for id, numbers in left if numbers]
            manifest = decode_manifest(encode_manifest(draft.freeze(), ID))
            assert shape(manifest) == (l0, dict(runs))
            assert [run.id for run in manifest.runs] == [id for id, _ in runs]
            for run in manifest.runs:
                assert [run.find(b"%03d" % n) for n in dict(runs)[run.id]] == list(range(len(run)))


def test_a_run_keeps_the_last_key_of_its_last_sst_only() -> None:
    draft = with_base().edit()
    draft.add_run(1, [sst(1, b"a", b"c"), sst(2, b"d", b"f")])
    manifest = draft.freeze()
    assert [found.last_key for found in manifest.runs[0]] == [b"", b"f"]
    draft = manifest.edit()
    draft.extend_run(1, [sst(3, b"Z", b"Z"), sst(4, b"g", b"h")])
    assert [found.last_key for found in draft.freeze().runs[0]] == [b"", b"", b"", b"h"]


@pytest.mark.parametrize(
    ("first", "last"), [(b"b", b"b"), (b"a", b"d"), (b"g", b"z"), (b"h", b"h"), (b"", b"z")]
)
def test_overlapping_ssts_never_enter_a_run(first: bytes, last: bytes) -> None:
    draft = with_base().edit()
    draft.add_run(1, [sst(1, b"b", b"c"), sst(2, b"d", b"h")])
    with pytest.raises(ValueError, match="not in order, or overlap"):
        draft.extend_run(1, [sst(3, first, last)])
    with pytest.raises(ValueError, match="not in order, or overlap"):
        draft.add_run(2, [sst(3, b"x", b"y"), sst(4, b"a", b"b")])


def test_wrong_moves_are_refused() -> None:
    draft = with_base().edit()
    with pytest.raises(ValueError, match="1 of 1 SSTs are not in the manifest"):
        draft.remove_ssts([BASE_STEP + 1])
    with pytest.raises(ValueError, match="without SSTs"):
        draft.add_run(1, [])
    draft.message.leveled_ssts.add(id=BASE_STEP + 1)
    with pytest.raises(ValueError, match="without the methods of the draft"):
        draft.freeze()


@pytest.mark.parametrize("field", ["writer_epoch", "compactor_epoch"])
def test_an_epoch_rises_by_one_and_never_falls(field: str) -> None:
    draft = FIRST.edit()
    setattr(draft.message, field, 1)
    one = draft.freeze()
    for wrong in (0, 3, 2**64 - 1):
        draft = one.edit()
        setattr(draft.message, field, wrong)
        with pytest.raises(ValueError, match=f"epoch {wrong} after 1"):
            draft.freeze()


def test_broken_rules_are_the_callers_mistake() -> None:
    draft = FIRST.edit()
    draft.add_snapshot(b"short", 1, 0)
    with pytest.raises(ValueError, match="invalid manifest: a snapshot id"):
        draft.freeze()


def test_snapshots_jobs_and_transactions_come_and_go() -> None:
    draft = with_base().edit()
    draft.add_snapshot(ID, manifest_id=3, expire_time_s=99)
    second = draft.add_job(b"j" * 16, JobKind.BULK_LOAD, started_ms=5, expires_ms=6)
    draft.set_transaction("query", 7)
    draft.set_transaction("query", 8)
    manifest = draft.freeze()
    assert second == 2 * BASE_STEP
    assert manifest.next_sst_base == 3 * BASE_STEP
    assert [(found.id, found.manifest_id) for found in manifest.snapshots] == [(ID, 3)]
    assert [job.base for job in manifest.jobs] == [BASE_STEP, second]
    assert [(found.query_id, found.batch_id) for found in manifest.transactions] == [("query", 8)]
    draft = manifest.edit()
    assert draft.drop_snapshot(ID)
    assert draft.drop_job(ID)
    assert not draft.drop_snapshot(ID)
    assert not draft.drop_job(ID)
    manifest = draft.freeze()
    assert not manifest.snapshots
    assert [job.id for job in manifest.jobs] == [b"j" * 16]


def test_an_sst_is_described_from_its_footer() -> None:
    writer = SstWriter(writer_epoch=1, unique_id=ID)
    writer.add(Rows.from_pairs([(b"a", b"1", 5), (b"b", None, 9)]))
    data, info = writer.finish()
    found = describe(BASE_STEP + 1, info)
    assert (found.first_key, found.last_key, found.size) == (b"a", b"b", len(data))
    assert (found.row_count, found.max_seq) == (2, 9)
    assert found.block_meta_offset + found.block_meta_len == info.size - 98
