from random import Random
from typing import Any

import pytest

from holdfast.disk import OsFile
from holdfast.errors import CorruptError, HoldfastError, LockedError, PoisonedError
from holdfast.formats.state_file import Redo, encode_record, encode_redo
from holdfast.logs.file_log import StateFile
from holdfast.logs.file_log.state import read_state, redo_name
from holdfast.runtime import Runtime
from holdfast.testing import Fault, PowerLost, SimDisk

NAME = "raft.pers"
RUNTIME = Runtime(
    now_ns=lambda: 1_700_000_000 * 10**9, hostname=lambda: "host", process_id=lambda: 1
)


def opened(disk: SimDisk, **options: Any) -> StateFile:
    return StateFile(disk, runtime=RUNTIME, **options)


def step(state: StateFile, term: int) -> None:
    """One update; every fifth begins a new file."""
    changes = {"currentTerm": term, "votedFor": f"id{term}" * (term % 3)}
    state.rotate(changes) if term % 5 == 0 else state.update(changes)


def explore() -> int:
    """Cut the power, or kill, at every change; and again in recovery."""
    images, at = 0, 0
    while True:
        random, disk = Random(at), SimDisk()
        disk.posix.dies_at = at
        done = 0
        try:
            state = opened(disk)
            for term in range(1, 9):
                step(state, term)
                done = term
            state.close()
        except PowerLost:
            pass
        if disk.posix.operations < at:
            return images
        for _ in range(40):
            image = disk.after_power_cut(random)
            if random.random() < 0.4:
                image = recover_and_crash(image, random)
            found = read_state(image).get("currentTerm", 0)
            with opened(image) as state:
                assert state["currentTerm"] in (done, done + 1), at
                assert found == state["currentTerm"]
                term = state["currentTerm"]
                assert state["votedFor"] == (f"id{term}" * (term % 3) if term else None)
                state.update({"currentTerm": 100})
            assert opened(image)["currentTerm"] == 100
            images += 1
        at += 1


def recover_and_crash(disk: SimDisk, random: Random) -> SimDisk:
    disk.posix.operations, disk.posix.dies_at = 0, random.randrange(6)
    try:
        opened(disk)
    except PowerLost:
        return disk.after_power_cut(random)
    return disk.after_kill()


def test_no_crash_loses_or_invents_a_vote() -> None:
    assert explore() > 2000


@pytest.mark.parametrize("bug", ["no redo", "no sync", "roll beside the redo"])
def test_a_planted_bug_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if bug == "no redo":
        monkeypatch.setattr("holdfast.formats.state_file.decode_redo", lambda data: None)
    elif bug == "roll beside the redo":
        remove = SimDisk.remove
        monkeypatch.setattr(
            SimDisk,
            "remove",
            lambda self, *names: remove(self, *(n for n in names if n != redo_name(NAME))),
        )
    else:
        original = OsFile.write_at
        monkeypatch.setattr(
            OsFile, "write_at", lambda self, at, data, *, sync=False: original(self, at, data)
        )
    with pytest.raises((AssertionError, CorruptError)):
        explore()


def test_values_survive() -> None:
    disk = SimDisk()
    with opened(disk) as state:
        state.update({"currentTerm": 3, "peers": [["id1", "tcp://127.0.0.1:8047"]]})
    assert read_state(disk)["currentTerm"] == 3
    with opened(disk) as state:
        assert (state.values, state.recovered) == (read_state(disk), ())
    assert read_state(disk, "other.pers") == {}


def test_unknown_properties_and_second_owners_are_refused() -> None:
    disk = SimDisk()
    with opened(disk) as state:
        with pytest.raises(ValueError, match="unknown property 'term'"):
            state.update({"term": 1})
        with pytest.raises(ValueError, match="can count to"):
            state.update({"currentTerm": 2**53})
        with pytest.raises(LockedError):
            opened(disk)
        assert state["currentTerm"] == 0
    with pytest.raises(HoldfastError, match="closed"):
        state.update({})


def test_a_failed_update_poisons() -> None:
    disk = SimDisk()
    state = opened(disk)
    state.update({"currentTerm": 1})
    disk.posix.fault = Fault("sync eio", disk.posix.calls, always=True)
    with pytest.raises(OSError, match="Input/output"):
        state.update({"currentTerm": 2})
    disk.posix.fault = None
    with pytest.raises(PoisonedError):
        state.update({"currentTerm": 3})
    assert state["currentTerm"] == 1
    assert opened(disk.after_kill())["currentTerm"] in (1, 2)


def test_garbage_after_the_records_is_torn_and_kept() -> None:
    disk = SimDisk()
    records = encode_record({"currentTerm": 5})
    disk.create(NAME, records + b"\xc1\xff")
    with opened(disk) as state:
        assert (state["currentTerm"], state.will_roll) == (5, True)
        state.update({"votedFor": "id1"})
        assert state.values["currentTerm"] == 5
    old = [data for name, data in disk.files().items() if name.startswith(f"{NAME}-")]
    assert old == [records + b"\xc1\xff"]


@pytest.mark.parametrize("damage", [b"\xc1", b"\x05", b"\xdb\0\0\4\0"])
def test_records_after_damage_are_never_dropped_silently(damage: bytes) -> None:
    disk = SimDisk()
    record = encode_record({"currentTerm": 6})
    disk.create(NAME, encode_record({"currentTerm": 5}) + damage + record + record)
    for look in (read_state, opened):
        with pytest.raises(CorruptError, match="records follow"):
            look(disk)


def test_a_redo_of_0_1_0_that_is_about_another_file_is_ignored() -> None:
    disk = SimDisk()
    data = encode_record({"currentTerm": 5, "votedFor": None})
    disk.create(NAME, data)
    redo = Redo(4, 1234, encode_record({"currentTerm": 9}) * 20, binds=False)
    disk.create(redo_name(NAME), encode_redo(redo))
    with opened(disk) as state:
        assert (state["currentTerm"], state.recovered) == (5, ())
    assert disk.files()[NAME] == data


# After a clean close, and after a kill

CLOSE = pytest.mark.parametrize("ends", ["closed", "killed", "opened again", "rolled"])


def written(ends: str) -> tuple[SimDisk, dict[str, Any]]:
    """A state with two votes, and how its owner ended."""
    disk = SimDisk()
    state = opened(disk)
    state.update({"currentTerm": 7, "votedFor": "id1"})
    state.update({"currentTerm": 8, "votedFor": "id2"})
    if ends == "rolled":
        state.rotate({"votedFor": "id3"})
    values = state.values
    if ends == "killed":
        return disk.after_kill(), values
    state.close()
    if ends == "opened again":
        opened(disk).close()
    return disk, values


def never_goes_back(disk: SimDisk, values: dict[str, Any]) -> bool:
    """Return whether the state is whole; if not, every look at it must refuse it."""
    try:
        found = read_state(disk)
    except CorruptError:
        with pytest.raises(CorruptError, match="raft"):
            opened(disk)
        return False
    assert found == values
    with opened(disk) as state:
        assert state.values == values
    return True


@CLOSE
def test_a_shortened_state_is_restored_or_refused(ends: str) -> None:
    data = written(ends)[0].files()[NAME]
    for size in range(len(data)):
        for rest in (b"", bytes(len(data) - size)):
            disk, values = written(ends)
            disk.create(NAME, data[:size] + rest, replace=True)
            never_goes_back(disk, values)
    disk, values = written("closed")
    disk.create(NAME, disk.files()[NAME][:-1], replace=True)
    assert never_goes_back(disk, values)  # the last record is in the redo file too


@CLOSE
def test_a_flipped_bit_is_restored_or_refused(ends: str) -> None:
    data = written(ends)[0].files()[NAME]
    for bit in range(8 * len(data)):
        disk, values = written(ends)
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        disk.create(NAME, bytes(flipped), replace=True)
        never_goes_back(disk, values)


@CLOSE
def test_a_missing_state_is_not_a_new_one(ends: str) -> None:
    disk, values = written(ends)
    disk.remove(NAME)
    with pytest.raises(CorruptError, match="or remove this server"):
        opened(disk)
    assert not never_goes_back(disk, values)


@pytest.mark.parametrize("rolls", [False, True])
@pytest.mark.parametrize("ends", ["closed", "killed"])
def test_an_older_copy_is_restored_or_refused(ends: str, rolls: bool) -> None:
    disk, copies = SimDisk(), []
    state = opened(disk)
    for term in range(1, 7):
        copies.append(disk.files()[NAME])
        changes = {"currentTerm": term, "votedFor": f"id{term}"}
        state.rotate(changes) if rolls and term % 3 == 0 else state.update(changes)
    values = state.values
    if ends == "killed":
        disk = disk.after_kill()
    else:
        state.close()
    restored = 0
    for copy in copies:
        image = SimDisk()
        for name, data in disk.files().items():
            image.create(name, copy if name == NAME else data)
        restored += never_goes_back(image, values)
    assert restored >= 1  # a copy without the last record, which the redo file has


def test_a_flipped_redo_loses_nothing() -> None:
    disk, values = written("closed")
    redo = disk.files()[redo_name(NAME)]
    for at in range(len(redo)):
        disk.create(redo_name(NAME), redo[:at] + b"\xa5" + redo[at + 1 :], replace=True)
        assert never_goes_back(disk, values)


def test_a_state_of_0_1_0_cannot_go_back_after_its_first_open() -> None:
    disk = SimDisk()
    records = encode_record({"currentTerm": 5}) + encode_record({"votedFor": "id1"})
    disk.create(NAME, records)
    opened(disk).close()
    disk.create(NAME, records[:-1], replace=True)
    with pytest.raises(CorruptError, match=f"held {len(records)} bytes"):
        opened(disk)


def test_records_of_another_program_count() -> None:
    disk, values = written("closed")
    more = encode_record({"currentTerm": 9})
    disk.create(NAME, disk.files()[NAME] + more, replace=True)
    assert never_goes_back(disk, {**values, "currentTerm": 9})
    # The other program removes the redo file; what it then leaves torn was never acknowledged.
    disk.remove(redo_name(NAME))
    disk.create(NAME, disk.files()[NAME][:-1], replace=True)
    with opened(disk) as state:
        assert (state.values, state.will_roll) == (values, True)
        assert "ignored a torn record" in state.recovered[0]
