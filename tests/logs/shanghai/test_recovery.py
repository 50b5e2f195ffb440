from random import Random

import pytest

from holdfast.errors import CorruptError, HoldfastError, UnsupportedError
from holdfast.formats import shanghai as fmt
from holdfast.logs.shanghai import ShanghaiLog, ShanghaiReader
from holdfast.testing import Fault, SimDisk
from holdfast.testing.log_contract import contents
from holdfast.testing.shanghai import ShanghaiSubject

EXPECTED = [b"%d" % (i + 1) for i in range(40)]


def open_log(disk: SimDisk) -> ShanghaiLog:
    return ShanghaiSubject().open(disk)


def write(disk: SimDisk, name: str, offset: int, data: bytes) -> None:
    file = disk.open(name, writable=True)
    file.write_at(offset, data, sync=True)
    file.close()


def without_mark(disk: SimDisk) -> None:
    disk.remove("metadata.json")


def test_a_torn_tail_is_cut_and_kept(disk: SimDisk) -> None:
    size = len(disk.files()["segment_00004.wal"])
    torn = bytes(fmt.encode_entries([b"torn away"])[0])[:-1]
    write(disk, "segment_00004.wal", size, torn)
    guest = ShanghaiReader(disk)
    assert (guest.last_index, guest.damage) == (40, ())
    found = guest.check("segment_00004.wal")
    assert found is not None
    assert found.torn
    log = open_log(disk)
    assert contents(log) == EXPECTED
    assert "torn write of 16 bytes" in log.recovered[0]
    assert disk.files()[f"segment_00004.wal.{size}.cut"] == torn
    assert log.append([b"41"]) == 41


def test_a_tail_that_was_cut_does_not_come_back(disk: SimDisk) -> None:
    """A write must not reach the disk before the cut: what was beyond it would follow it."""
    size = len(disk.files()["segment_00004.wal"])
    torn = bytearray(fmt.encode_entries([b"torn", b"whole"])[0])
    torn[8] ^= 1
    write(disk, "segment_00004.wal", size, bytes(torn))
    log = open_log(disk)
    log.append([b"next"])
    for seed in range(12):
        image = disk.after_power_cut(Random(seed))
        assert contents(open_log(image)) == [*EXPECTED, b"next"]


def test_unwritten_space_is_removed_without_ado(disk: SimDisk) -> None:
    size = len(disk.files()["segment_00004.wal"])
    write(disk, "segment_00004.wal", size, bytes(4096))
    log = open_log(disk)
    assert contents(log) == EXPECTED
    assert log.recovered == ("segment_00004.wal: 4096 bytes of unwritten space removed",)
    assert not [name for name in disk.files() if name.endswith(".cut")]


def test_the_same_cut_twice_is_kept_once_and_another_beside_it(disk: SimDisk) -> None:
    size = len(disk.files()["segment_00004.wal"])
    for tail in (b"torn one", b"torn one", b"torn two"):
        write(disk, "segment_00004.wal", size, tail)
        open_log(disk).close()
    cuts = {name: data for name, data in disk.files().items() if name.endswith(".cut")}
    assert cuts == {
        f"segment_00004.wal.{size}.cut": b"torn one",
        f"segment_00004.wal.{size}-2.cut": b"torn two",
    }


def test_damage_before_the_mark_is_not_called_torn(disk: SimDisk) -> None:
    """The log was closed: what is broken now was once whole, so nothing may be cut off."""
    before = disk.files()
    disk.flip("segment_00004.wal", 8 * (64 + 8))
    log = open_log(disk)
    assert [(d.first_index, d.last_index) for d in log.damage] == [(31, 31)]
    with pytest.raises(CorruptError, match=r"segment_00004.wal at byte 64: .*repaired"):
        log.append([b"41"])
    assert [log.read(i) for i in range(1, 41) if i != 31] == EXPECTED[:30] + EXPECTED[31:]
    with pytest.raises(CorruptError, match="entry 31: checksum mismatch"):
        log.read(31)
    after = disk.files()
    assert {n: len(d) for n, d in after.items()} == {n: len(d) for n, d in before.items()} | {
        "LOCK": 20
    }


def test_a_file_cut_short_is_not_taken_for_a_shorter_log(disk: SimDisk) -> None:
    file = disk.open("segment_00004.wal", writable=True)
    file.resize(64 + 10 * 5)
    file.sync()
    log = open_log(disk)
    assert "the file ends too early" in log.damage[0].why
    assert (log.damage[0].first_index, log.damage[0].last_index) == (36, 40)


def no_marked_entry_is_cut() -> None:
    """Damage any one entry of a log that was closed, the last one too: none is called torn."""
    for number in range(1, 4):
        for change in ("flipped", "cut off"):
            disk = SimDisk()
            with open_log(disk) as log:
                log.append([b"one", b"two", b"three"])
            name, size = "segment_00001.wal", fmt.HEADER_SIZE
            ends = [size := size + 8 + len(payload) for payload in (b"one", b"two", b"three")]
            file = disk.open(name, writable=True)
            if change == "flipped":
                file.write_at(ends[number - 1] - 1, b"?", sync=True)
            else:
                file.resize(ends[number - 1] - 1)
            file.close()
            before = disk.files()[name]
            for opened in (ShanghaiReader(disk), open_log(disk)):
                found = [(one.torn, one.first_index, one.last_index) for one in opened.damage]
                last = number if change == "flipped" else 3  # the mark confirms what follows
                assert found == [(False, number, last)]
                opened.close()
            assert disk.files()[name] == before, "recovery has changed what is damaged"


def test_no_marked_entry_is_cut() -> None:
    no_marked_entry_is_cut()


def no_seal_is_believed_whose_sync_failed() -> None:
    """The cache shows a seal that never reached the disk; it must be there when two more follow."""
    failed = 0
    for at in range(60):
        disk = SimDisk()
        with open_log(disk) as log:
            log.append([b"one"])
        log = open_log(disk)
        log.append([b"two"])
        disk.posix.fault = Fault("sync eio", disk.posix.calls + at)
        try:
            log.rotate()
        except (OSError, HoldfastError):
            failed += 1
        disk.posix.fault = None
        disk = disk.after_kill()
        log = open_log(disk)
        log.append([b"three"])
        log.rotate()
        for seed in range(4):
            with open_log(disk.after_power_cut(Random(seed))) as found:
                assert found.damage == ()
                assert contents(found) == [b"one", b"two", b"three"]
    assert failed > 1


def test_no_seal_is_believed_whose_sync_failed() -> None:
    no_seal_is_believed_whose_sync_failed()


def test_damage_in_a_sealed_segment_is_reported_and_the_rest_read(disk: SimDisk) -> None:
    disk.flip("segment_00002.wal", 8 * (64 + 4 * 10 + 8))
    log = open_log(disk)
    assert log.damage == ()  # headers agree; the checksum tells when it is read
    with pytest.raises(CorruptError, match=r"segment_00002\.wal at byte 104: entry 15"):
        log.read(15)
    rows = []
    with pytest.raises(CorruptError, match="entry 15: checksum mismatch"):
        for batch in log.scan():
            rows += batch.column("payload").to_pylist()
    assert rows == EXPECTED[:14]
    assert [log.read(i) for i in (14, 16, 40)] == [b"14", b"16", b"40"]
    damage = log.check("segment_00002.wal")
    assert damage is not None
    assert (damage.offset, damage.first_index, damage.last_index) == (104, 15, 15)


def test_a_corrupt_header_does_not_hide_the_other_segments(disk: SimDisk) -> None:
    write(disk, "segment_00002.wal", 0, b"GARBAGE!")
    log = open_log(disk)
    assert log.damage[0].file == "segment_00002.wal"
    assert "magic" in log.damage[0].why
    with pytest.raises(CorruptError, match=r"segment_00002\.wal"):
        log.read(15)
    assert [log.read(i) for i in (10, 31, 40)] == [b"10", b"31", b"40"]
    with pytest.raises(CorruptError):
        log.append([b"x"])


def test_a_missing_segment_is_reported_with_its_lsns(disk: SimDisk) -> None:
    disk.remove("segment_00002.wal")
    log = open_log(disk)
    damage = log.damage[0]
    assert (damage.file, damage.first_index, damage.last_index) == ("segment_00002.wal", 11, 20)
    assert "missing" in damage.why
    with pytest.raises(CorruptError, match="entry 15: missing"):
        log.read(15)
    with pytest.raises(CorruptError, match="entry 11: missing"):
        list(log.scan(5, 35))
    assert [log.read(i) for i in (10, 21)] == [b"10", b"21"]


def test_the_last_segment_or_all_of_them_missing_is_noticed_by_the_mark(disk: SimDisk) -> None:
    disk.remove("segment_00004.wal")
    log = open_log(disk)
    assert (log.damage[0].first_index, log.damage[0].last_index) == (31, 40)
    log.close()
    for number in (1, 2, 3):
        disk.remove(f"segment_0000{number}.wal")
    log = open_log(disk)
    assert "missing, with all segments" in log.damage[0].why
    assert (log.first_index, log.last_index) == (1, 0)


def test_another_version_is_refused_and_untouched(disk: SimDisk) -> None:
    write(disk, "segment_00004.wal", 6, b"\0\2")
    for opener in (open_log, ShanghaiReader):
        with pytest.raises(UnsupportedError, match=r"segment_00004.wal: .* version 2"):
            opener(disk)


def test_metadata_is_only_a_cache(disk: SimDisk) -> None:
    for content in (b"", b"{}", b"garbage", b"[1]", b'{"complete": {"name": 1}}', b"\xff" * 99):
        disk.create("metadata.json", content, replace=True)
        log = open_log(disk)
        assert contents(log) == EXPECTED
        log.close()
    without_mark(disk)
    log = open_log(disk)
    assert contents(log) == EXPECTED
    assert "metadata.json" in disk.files()


@pytest.mark.parametrize("last_lsn", [0, 7, 2**64 - 1])
def test_a_torn_seal_is_finished(disk: SimDisk, last_lsn: int) -> None:
    write(disk, "segment_00003.wal", fmt.LAST_LSN_OFFSET, fmt.encode_last_lsn(last_lsn))
    guest = ShanghaiReader(disk)
    assert contents(guest) == EXPECTED
    log = open_log(disk)
    assert log.recovered == ("segment_00003.wal: sealed at LSN 30",)
    header = fmt.decode_header(disk.files()["segment_00003.wal"])
    assert isinstance(header, fmt.Header)
    assert header.last_lsn == 30
    log.rotate()  # from now on a wrong seal would be damage
    for seed in range(12):
        assert open_log(disk.after_power_cut(Random(seed))).damage == ()


def test_a_writer_that_sealed_before_it_made_the_next_is_understood(disk: SimDisk) -> None:
    """The order of the text: a crash between the two leaves a sealed segment as the last."""
    without_mark(disk)
    write(disk, "segment_00004.wal", fmt.LAST_LSN_OFFSET, fmt.encode_last_lsn(40))
    log = open_log(disk)
    assert log.recovered == ("segment_00005.wal: created after the sealed segment_00004.wal",)
    assert contents(log) == EXPECTED
    assert log.append([b"41"]) == 41


def test_a_wrong_seal_further_back_is_damage(disk: SimDisk) -> None:
    write(disk, "segment_00001.wal", fmt.LAST_LSN_OFFSET, fmt.encode_last_lsn(9))
    log = open_log(disk)
    assert "last LSN 9, but segment_00002.wal begins at 11" in log.damage[0].why


def test_strangers_in_the_directory_are_left_alone(disk: SimDisk) -> None:
    strangers = {"segment_5.wal": b"x", "segment_000005.wal": b"y", "notes.txt": b"z"}
    for name, data in strangers.items():
        disk.create(name, data)
    assert contents(open_log(disk)) == EXPECTED
    assert strangers.items() <= disk.files().items()
