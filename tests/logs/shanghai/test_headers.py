"""One flipped bit in a header: the right data or damage with its range, never anything else."""

import pytest

from holdfast.errors import CorruptError
from holdfast.formats import shanghai as fmt
from holdfast.logs.shanghai import ShanghaiLog, ShanghaiReader, placing
from holdfast.logs.shanghai.placing import Place
from holdfast.logs.verify import verify_log
from holdfast.testing import BrokenPromiseError, SimDisk
from holdfast.testing.harmed_files import Harmed
from holdfast.testing.repairs import Repairs, State, disk_of

FIELDS = {"magic": (0, 6), "version": (6, 8), "first": (32, 40), "last": (40, 48)}
OTHER_BITS = [*range(8 * 8, 32 * 8, 5), *range(48 * 8, 64 * 8, 5)]  # id, created_ms, reserved
BITS = [*OTHER_BITS, *(b for a, z in FIELDS.values() for b in range(8 * a, 8 * z))]


def flip_header(files: dict[str, bytes], name: str, bit: int) -> dict[str, bytes]:
    data = bytearray(files[name])
    data[bit // 8] ^= 1 << bit % 8
    return files | {name: bytes(data)}


@pytest.mark.parametrize("state", ["closed", "killed"])
@pytest.mark.parametrize("which", ["first", "middle", "last"])
def test_a_flipped_bit_is_damage_or_changes_nothing(which: str, state: State) -> None:
    """Readers, owners, verify, status and both plans of repair, and what they leave."""
    trials = Repairs("shanghai")
    written = trials.log(1, state)
    names = [*written.spans]
    name = names[{"first": 0, "middle": len(names) // 2, "last": -1}[which]]
    for bit in BITS:
        harmed = Harmed(flip_header(written.files, name, bit), touched={name})
        try:
            trials.judge(written, harmed)
        except Exception as error:
            error.add_note(f"bit {bit} of {name}, {state}")
            raise
    assert trials.counts["corrupt"] >= 192 - 16, "all but bits of ids and times, and of seals"
    assert not trials.counts["refused"]


def test_a_first_lsn_that_is_flipped_is_damage_with_its_range(disk: SimDisk) -> None:
    disk.flip("segment_00001.wal", 8 * 33)  # 2^48
    log = ShanghaiLog(disk)
    (damage,) = log.damage
    assert (damage.file, damage.first_index, damage.last_index) == ("segment_00001.wal", 1, 10)
    assert "first LSN is 281474976710657, but 1 by other segments" in damage.why
    assert (log.first_index, log.last_index, log.status().entries) == (11, 40, 30)
    with pytest.raises(CorruptError):
        log.append([b"x"])
    report = verify_log(disk)
    assert (report.verdict, report.entries) == ("corrupt", 30)


def test_a_last_lsn_that_is_flipped_gives_no_absurd_range(disk: SimDisk) -> None:
    for name in ("segment_00002.wal", "segment_00004.wal"):
        damaged = disk_of(disk.files())
        damaged.flip(name, 8 * 42 + 1)  # 2^41
        (damage,) = ShanghaiReader(damaged).damage
        assert damage.last_index <= 40


def test_a_flipped_version_of_a_marked_segment_is_damage(disk: SimDisk) -> None:
    disk.flip("segment_00002.wal", 8 * 7 + 1)  # version 3
    (damage,) = ShanghaiReader(disk).damage
    assert (damage.first_index, damage.last_index) == (11, 20)
    assert "version 3; it was 1" in damage.why


def test_a_copy_of_another_segment_is_not_read_under_its_name(disk: SimDisk) -> None:
    """It has as many entries, so that only its own header says that they are others."""
    files = disk.files()
    disk.create("segment_00002.wal", files["segment_00003.wal"], replace=True)
    with ShanghaiReader(disk) as reader:
        assert [reader.read(index) for index in (10, 21, 40)] == [b"10", b"21", b"40"]
        for index in range(11, 21):
            with pytest.raises(CorruptError):
                reader.read(index)


def believe_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    def place(self: placing._Placing) -> list[Place | None]:
        found = self._found
        return [
            Place(one, one.fields.first_lsn, self._next_first(at), 0, 1)
            if isinstance(one.header, fmt.Header)
            else None
            for at, one in enumerate(found)
        ]

    monkeypatch.setattr(placing._Placing, "place", place)


def test_headers_that_are_believed_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    believe_headers(monkeypatch)
    with pytest.raises(BrokenPromiseError):
        test_a_flipped_bit_is_damage_or_changes_nothing("first", "closed")
