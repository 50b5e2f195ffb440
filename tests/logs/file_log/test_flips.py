"""One changed bit in a snapshot, a state file or a head: right data, or damage.

Never another exception, never a log that looks empty, never an index that is used twice.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

import pytest

from holdfast.errors import HoldfastError
from holdfast.logs.file_log import FileEntry, FileLogReader, recovery
from holdfast.logs.file_log.repair import plan_repair
from holdfast.logs.retention import Retention
from holdfast.logs.verify import verify_log
from holdfast.testing import PowerLost, SimDisk
from holdfast.testing.file_log import FileLogSubject

ENTRIES = {index: b"%d" % index for index in range(6, 15)}  # those that the log shows
STATE = {"currentTerm": 8, "votedFor": "b"}
NAMES = [f"log/00000/00/00/{index:014x}.rlog" for index in (4, 8, 12)]


@pytest.fixture(scope="module", params=["closed", "killed"])
def files(request: pytest.FixtureRequest) -> dict[str, bytes]:
    """A log of entries 6..14 in the files 4..7, 8..11 and 12..14, after a snapshot of entry 5."""
    disk = SimDisk()
    log = FileLogSubject().open(disk)
    log.append([b"%d" % index for index in range(1, 8)])
    log.create_snapshot(2, b"two")
    log.create_snapshot(5, b"five")
    log.trim(Retention(before=4))
    log.append([b"%d" % index for index in range(8, 15)])
    log.state.update({"currentTerm": 7, "votedFor": "a"})
    log.state.update(STATE)
    if request.param == "closed":
        log.close()
    return (disk if request.param == "closed" else disk.after_kill()).files()


def flipped(files: dict[str, bytes], name: str, bits: Iterable[int]) -> Iterator[SimDisk]:
    for bit in bits:
        disk = SimDisk()
        for each, data in files.items():
            disk.create(each, data)
        disk.flip(name, bit)
        yield disk


def judge(disk: SimDisk) -> None:
    try:
        with FileLogReader(disk) as guest:
            found = {
                row["index"]: row["payload"]
                for batch in guest.scan(on_damage=lambda damage: None)
                for row in batch.to_pylist()
            }
            assert found.items() >= ENTRIES.items() or guest.damage
            assert all(payload == b"%d" % index for index, payload in found.items())
            is_clean = not guest.damage
    except HoldfastError:
        with pytest.raises(HoldfastError):
            FileLogSubject().open(disk)
        return
    with FileLogSubject().open(disk) as log:
        assert bool(log.damage) is not is_clean
        if is_clean:
            assert log.append([b"15"]) == 15
        else:
            with pytest.raises(HoldfastError):
                log.append([b"15"])


def every_flip(files: dict[str, bytes], name: str, step: int = 1) -> None:
    """Flip the bits of a head.  A slot may point to another possible end: nothing shows it."""
    data = files[name]
    bits = [*range(0, 8 * len(data), step)]
    if name.endswith(".rlog"):
        slots = range(8 * 24, 8 * data.index(b"META"))
        bits = [bit for bit in bits[: 8 * data.index(b"ITMZ") + 64] if bit not in slots]
    for disk in flipped(files, name, bits):
        judge(disk)


@pytest.mark.parametrize("name", ["snap", *NAMES])
def test_every_bit_of_a_head_counts(files: dict[str, bytes], name: str) -> None:
    every_flip(files, name)


@pytest.mark.parametrize("name", ["raft.pers", "raft.pers.tmp-0-redo"])
def test_every_bit_of_a_state_file_counts(files: dict[str, bytes], name: str) -> None:
    for disk in flipped(files, name, range(8 * len(files[name]))):
        try:
            with FileLogReader(disk) as guest:
                found = guest.read_state()
        except HoldfastError:
            with FileLogSubject().open(disk) as log, pytest.raises(HoldfastError):
                _ = log.state
        else:
            assert found.items() >= STATE.items()
            with FileLogSubject().open(disk) as log:
                assert log.state.values == found


def test_a_snapshot_index_that_is_believed_is_noticed(
    files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plant the bug: without this, the test before would prove nothing."""
    monkeypatch.setattr(recovery, "judge_snapshot", lambda disk, names, snapshot, mark: snapshot)
    with pytest.raises(AssertionError):
        every_flip(files, "snap")


@pytest.mark.parametrize("index", [7, 14, 131_077])
def test_a_changed_index_of_a_snapshot_is_repaired(files: dict[str, bytes], index: int) -> None:
    disk = SimDisk()
    for name, data in files.items():
        disk.create(name, data)
    disk.open("snap", writable=True).write_at(12, index.to_bytes(8, "little"), sync=True)
    with FileLogReader(disk) as guest:
        (found,) = guest.damage
        assert found.why == f"it is of entry {index}, but the log had one of entry 5"
        assert guest.read(6) == b"6"
    assert verify_log(disk, pause=lambda ms: None).verdict == "corrupt"
    assert plan_repair(disk).damage == (found,)


def test_a_snapshot_that_an_owner_has_just_installed_is_believed() -> None:
    """At every moment of it, for a guest and after a kill."""
    seen = set[int]()
    for dies_at in range(100):
        disk = SimDisk()
        log = FileLogSubject().open(disk)
        log.append([b"%d" % index for index in range(1, 15)])
        log.create_snapshot(5, b"five")
        disk.posix.operations, disk.posix.dies_at = 0, dies_at
        with suppress(PowerLost):
            log.create_snapshot(9, b"nine")
        is_done = disk.posix.operations < dies_at
        disk = disk.after_kill()
        with FileLogReader(disk) as guest:
            assert guest.damage == ()
            seen.add(guest.first_index)
        with FileLogSubject().open(disk) as log:
            assert (log.damage, log.append([b"15"])) == ((), 15)
        if is_done:
            assert seen == {6, 10}
            return
    raise AssertionError("the install never ended")


def test_the_term_of_a_snapshot_is_compared_with_the_next_entry() -> None:
    disk = SimDisk()
    with FileLogSubject().open(disk) as log:
        log.append_entries([FileEntry(3, b"x") for _ in range(8)])
        log.create_snapshot(3, b"")
        log.trim(Retention(before=4))
    with FileLogReader(disk) as guest:
        assert (guest.damage, guest.term_at(3)) == ((), 3)
    disk.open("snap", writable=True).write_at(20, b"\x07", sync=True)
    with FileLogReader(disk) as guest:
        assert [d.why for d in guest.damage] == ["it is of term 7, but entry 4 of term 3"]
