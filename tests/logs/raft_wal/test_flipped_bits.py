"""One bit of the meta store changes: the right entries are served, or the damage is named."""

import tarfile
from collections.abc import Callable, Iterator
from functools import cache

import pytest
from tests.logs.raft_wal.conftest import ARCHIVE

from holdfast.errors import CorruptError, HoldfastError
from holdfast.formats import bolt
from holdfast.formats.raft_entry import RaftEntry, encode_entry
from holdfast.logs.log import Damage
from holdfast.logs.raft_wal import RAFT_CODEC, RaftWal, RaftWalReader, arrow, reader
from holdfast.logs.raft_wal.meta_store import META_STORE
from holdfast.logs.raft_wal.recovery import Survey
from holdfast.logs.raft_wal.repair import plan_repair
from holdfast.logs.raft_wal.scanning import scan_file
from holdfast.logs.raft_wal.view import Active, Sealed
from holdfast.logs.verify import verify_log
from holdfast.logs.view import View
from holdfast.testing.sim_disk import SimDisk

Files = dict[str, bytes]
Entries = dict[int, bytes]


@cache
def golden_files(name: str) -> Files:
    """A directory that the Go program wrote."""
    with tarfile.open(ARCHIVE) as archive:
        members = [m for m in archive if m.isfile() and m.name.startswith(f"{name}/")]
        found = [(m.name.split("/")[1], archive.extractfile(m)) for m in members]
        return {name: file.read() for name, file in found if file is not None}


@cache
def our_files() -> Files:
    """Three sealed segments and the active one, and stable keys."""
    disk = SimDisk()
    with RaftWal(disk, codec=RAFT_CODEC, segment_size_max=300, segment_fill_ms=None) as wal:
        wal.set_uint64(b"CurrentTerm", 7)
        for index in range(1, 20):
            wal.store_logs([RaftEntry(index, 1, data=b"entry %d" % index)])
        wal.truncate_head(3)
    return disk.files()


def disk_of(files: Files) -> SimDisk:
    disk = SimDisk()
    for name, data in files.items():
        disk.create(name, data)
    return disk


def used_bits(store: bytes) -> Iterator[int]:
    """Both meta pages, and every page that the newest transaction uses, as far as it is used."""
    image = bolt.decode(store)
    assert isinstance(image, bolt.Image)
    places = [(at, at + 80) for at in (0, image.page_size)]
    for page in sorted(image.used):
        begin = page * image.page_size
        used = len(store[begin : begin + image.page_size].rstrip(b"\0"))
        places.append((begin, begin + used + 8))
    for begin, stop in places:
        yield from range(8 * begin, 8 * stop)


def flipped(files: Files, bit: int) -> Files:
    store = bytearray(files[META_STORE])
    store[bit // 8] ^= 1 << bit % 8
    return {**files, META_STORE: bytes(store)}


def shown(log: RaftWal | RaftWalReader, reported: list[Damage]) -> Entries:
    batches = log.scan(on_damage=reported.append)
    rows = [zip(b["index"].to_pylist(), b["payload"].to_pylist(), strict=True) for b in batches]
    return {index: payload for row in rows for index, payload in row}


def recorded(files: Files) -> Entries:
    """All entries that the segments hold, those of a truncated head too."""
    found = {}
    for name, data in files.items():
        if name.endswith(".wal"):
            scan, _ = scan_file(disk_of({name: data}).open(name), len(data))
            for i, (at, length) in enumerate(zip(scan.starts, scan.lengths, strict=True)):
                found[int(name[:20]) + i] = data[int(at) + 8 : int(at) + 8 + int(length)]
    return found


def check_log(log: RaftWal | RaftWalReader, known: Entries, bit: int) -> None:
    reported: list[Damage] = []
    found = shown(log, reported)
    assert found.items() <= known.items(), f"bit {bit}: entries under wrong indexes"
    if not log.damage and not reported:
        # MinIndex says what was truncated, and a Go program keeps no second copy of it.
        wanted = {i: entry for i, entry in known.items() if i >= log.first_index}
        assert found == wanted, f"bit {bit}: entries are missing unnoticed"
        assert log.first_index <= 12, "the head can only be truncated in the first segment"
    for index in (log.first_index, log.last_index):
        if index > 0:
            try:
                assert log.read(index) == known[index], f"bit {bit}: entry {index} is another"
            except HoldfastError:
                assert index not in found


def open_and_check(
    opened: Callable[[SimDisk], RaftWal | RaftWalReader], files: Files, known: Entries, bit: int
) -> bool:
    """Check what is served; return whether the log is sound."""
    try:
        with opened(disk_of(files)) as log:
            check_log(log, known, bit)
            return not log.damage
    except HoldfastError as error:
        assert META_STORE in str(error), f"bit {bit}: {error}"
        return False


def sweep_readers(files: Files, stride: int = 1) -> None:
    known = recorded(files)
    for bit in list(used_bits(files[META_STORE]))[::stride]:
        open_and_check(RaftWalReader, flipped(files, bit), known, bit)


def test_every_bit_of_a_store_of_the_go_program() -> None:
    sweep_readers(golden_files("c3_single_batch_over_limit"))


@pytest.mark.parametrize("name", ["c_three_sealed_tail", "d1_head_mid_segment", "ours"])
def test_all_who_look_at_a_flipped_bit_agree(name: str) -> None:
    files = our_files() if name == "ours" else golden_files(name)
    known = recorded(files)
    for bit in list(used_bits(files[META_STORE]))[::61]:
        hurt = flipped(files, bit)
        is_sound = open_and_check(RaftWalReader, hurt, known, bit)
        open_and_check(RaftWal, hurt, known, bit)
        assert bool(plan_repair(disk_of(hurt)).damage) == (not is_clean(hurt)), f"bit {bit}"
        assert is_sound or not is_clean(hurt), f"bit {bit}: verify finds nothing"
        if is_sound:
            RaftWalReader(disk_of(hurt)).status()


def is_clean(files: Files) -> bool:
    try:
        return verify_log(disk_of(files), pause=lambda _: None).verdict == "clean"
    except HoldfastError:
        return False


def change(files: Files, old: bytes, new: bytes) -> Files:
    """Change bytes of the newest record; older ones are on pages that are not used any more."""
    assert len(old) == len(new)
    store = files[META_STORE]
    at = next(bit // 8 for bit in used_bits(store) if store[bit // 8 :].startswith(old))
    return {**files, META_STORE: store[:at] + new + store[at + len(new) :]}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"MaxIndex", b"LaxIndex"),
        (b"MinIndex", b"LinIndex"),
        (b'"MaxIndex":12', b'"MaxIndex":10'),
        (b'"BaseIndex":13', b'"BaseIndex":15'),
        (b"IndexStart", b"IndexStarv"),
        (b"SealTime", b"SealTimd"),
        (b'"CreateTime":"2', b'"CreateTime":"0'),
        (b"Segments", b"Segmentr"),
        (b'"ID":1', b'"ID":0'),
    ],
)
def test_a_record_that_contradicts_itself_or_the_files_is_named(old: bytes, new: bytes) -> None:
    files = golden_files("c_three_sealed_tail")
    hurt = change(files, old, new)
    known = recorded(files)
    assert hurt != files
    for opened in (RaftWalReader, RaftWal):
        assert not open_and_check(opened, hurt, known, 0) or new.startswith(b'"Create')
    assert is_clean(hurt) == (not plan_repair(disk_of(hurt)).damage)


def test_nothing_of_a_contradictory_record_is_served() -> None:
    hurt = change(golden_files("c_three_sealed_tail"), b"MaxIndex", b"LaxIndex")
    for opened in (RaftWalReader, RaftWal):
        with opened(disk_of(hurt)) as log:
            assert META_STORE in log.damage[0].file
            for index in (log.first_index, 13, 45):
                with pytest.raises(CorruptError, match=META_STORE):
                    log.read(index)
            with pytest.raises(CorruptError, match=META_STORE):
                list(log.scan())
    plan = plan_repair(disk_of(hurt))
    assert (plan.kept, plan.lost) == ((1, 45), ())


def test_a_day_that_does_not_exist_is_not_a_time() -> None:
    files = golden_files("c_three_sealed_tail")
    date = files[META_STORE].split(b'"CreateTime":"')[1][:10]
    with pytest.raises(CorruptError, match=r"2026-02-31.* as a time"):
        RaftWalReader(disk_of(change(files, date, b"2026-02-31")))


def test_a_raft_entry_with_another_index_is_damage() -> None:
    """Its checksum matches: another program, or a wrong file, has put it there."""
    disk = SimDisk()
    with RaftWal(disk, codec=RAFT_CODEC) as wal:
        for index in range(1, 4):
            wal.store_logs([RaftEntry(index, 1, data=b"x")])
        wal._write_group([other := wal._encode([encode_entry(RaftEntry(4))])])
        other.payloads = [encode_entry(RaftEntry(9, 1, data=b"y"))]
        other.lengths = [len(other.payloads[0])]
        wal._write_group([other])
        reported: list[Damage] = []
        found = shown(wal, reported)
        assert sorted(found) == [1, 2, 3, 4]
        assert [(one.first_index, one.last_index) for one in reported] == [(5, 5)]
        with pytest.raises(CorruptError, match="entries 5 to 5 hold other indexes"):
            list(wal.scan())


# Planted bugs


def serve_contradictions(patch: pytest.MonkeyPatch) -> None:
    def view_of(segments: tuple[Sealed | Active, ...], found: Survey) -> View[Sealed | Active]:
        return View(segments, tuple(found.damage), {})

    patch.setattr(reader, "view_of", view_of)


def compare_no_index(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(arrow, "other_indexes", lambda *_: [])


def test_a_planted_bug_is_found_by_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    serve_contradictions(monkeypatch)
    compare_no_index(monkeypatch)
    with pytest.raises((AssertionError, IndexError)):
        sweep_readers(golden_files("c_three_sealed_tail"), 40)


def test_a_planted_bug_yields_other_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    compare_no_index(monkeypatch)
    with pytest.raises(AssertionError):
        test_a_raft_entry_with_another_index_is_damage()
