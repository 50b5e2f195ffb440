import pytest

from holdfast.errors import CorruptError
from holdfast.formats.manifest import BASE_STEP, Manifest, Run, SstInfo

SSTS = [SstInfo(id=i + 1, first_key=key) for i, key in enumerate([b"?", b"b", b"d", b"f", b"?"])]


def test_the_first_manifest_is_of_an_empty_store() -> None:
    first = Manifest.create(created_ms=17, gc_min_age_ms=60_000, max_parallel_writes=4)
    assert (first.created_ms, first.gc_min_age_ms, first.max_parallel_writes) == (17, 60_000, 4)
    assert (first.writer_epoch, first.compactor_epoch, first.last_seq) == (0, 0, 0)
    assert (first.wal_id_last_compacted, first.wal_id_last_seen) == (0, 0)
    assert (first.wal_gc_boundary, first.manifest_gc_boundary) == (0, 0)
    assert (list(first.l0), first.runs, first.next_sst_base) == ([], (), BASE_STEP)
    assert first.unique_id == b""
    with pytest.raises(ValueError, match="0 parallel writes"):
        Manifest.create(created_ms=17, gc_min_age_ms=0, max_parallel_writes=0)


def test_a_run_finds_by_key() -> None:
    run = Run(7, SSTS, 1, 4)
    found = [run.find(key) for key in (b"a", b"b", b"c", b"d", b"z")]
    assert found == [-1, 0, 0, 1, 2]
    assert (len(run), run[0].id, run[-1].id) == (3, 2, 4)
    with pytest.raises(IndexError):
        run[3]


@pytest.mark.parametrize(
    ("start", "stop", "ids"),
    [
        (None, None, [2, 3, 4]),
        (None, b"b", []),
        (b"c", b"d", [2]),
        (b"d", b"d\0", [3]),
        (b"e", None, [3, 4]),
        (b"a", b"g", [2, 3, 4]),
        (b"g", b"a", []),
    ],
)
def test_a_run_finds_ranges(start: bytes | None, stop: bytes | None, ids: list[int]) -> None:
    assert [sst.id for sst in Run(7, SSTS, 1, 4).range(start, stop)] == ids


def test_a_run_out_of_order_is_never_searched() -> None:
    with pytest.raises(CorruptError, match="first keys of run 7 do not rise"):
        Run(7, SSTS, 2, 5).find(b"b")
