from random import Random
from typing import Any

import pytest

from holdfast.disk import OsFile
from holdfast.errors import CorruptError, HoldfastError, LockedError, PoisonedError
from holdfast.formats.state_file import Redo, encode_record, encode_redo
from holdfast.logs.file_log import StateFile
from holdfast.logs.file_log.history import Stamps
from holdfast.logs.file_log.state import read_state, redo_name
from holdfast.testing import Fault, PowerLost, SimDisk

NAME = "raft.pers"


def opened(disk: SimDisk, **options: Any) -> StateFile:
    return StateFile(disk, stamps=Stamps(lambda: 1_700_000_000_000, "host", 1), **options)


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


@pytest.mark.parametrize("bug", ["no redo", "no sync"])
def test_a_planted_bug_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if bug == "no redo":
        monkeypatch.setattr("holdfast.formats.state_file.decode_redo", lambda data: None)
    else:
        original = OsFile.write_at
        monkeypatch.setattr(
            OsFile, "write_at", lambda self, at, data, *, sync=False: original(self, at, data)
        )
    with pytest.raises((AssertionError, CorruptError)):
        explore()


def test_values_survive_and_the_redo_file_goes() -> None:
    disk = SimDisk()
    with opened(disk) as state:
        state.update({"currentTerm": 3, "peers": [["id1", "tcp://127.0.0.1:8047"]]})
        assert redo_name(NAME) in disk.files()
    assert redo_name(NAME) not in disk.files()
    assert read_state(disk) == opened(disk).values
    assert read_state(disk, "other.pers") == {}


def test_refuses_what_it_does_not_know() -> None:
    disk = SimDisk()
    with opened(disk) as state:
        with pytest.raises(ValueError, match="no property 'term'"):
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
    disk.posix.fault = Fault("sync eio", disk.posix.calls, for_ever=True)
    with pytest.raises(OSError, match="Input/output"):
        state.update({"currentTerm": 2})
    disk.posix.fault = None
    with pytest.raises(PoisonedError):
        state.update({"currentTerm": 3})
    assert state["currentTerm"] == 1
    assert opened(disk.after_kill())["currentTerm"] in (1, 2)


def test_garbage_behind_the_records_is_torn_and_kept() -> None:
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
def test_records_behind_damage_are_never_dropped_in_silence(damage: bytes) -> None:
    disk = SimDisk()
    record = encode_record({"currentTerm": 6})
    disk.create(NAME, encode_record({"currentTerm": 5}) + damage + record + record)
    for look in (read_state, opened):
        with pytest.raises(CorruptError, match="records are behind"):
            look(disk)


def test_a_redo_of_another_file_means_nothing() -> None:
    disk = SimDisk()
    data = encode_record({"currentTerm": 5, "votedFor": None})
    disk.create(NAME, data)
    redo = Redo(4, 1234, encode_record({"currentTerm": 9}) * 20)
    disk.create(redo_name(NAME), encode_redo(redo))
    with opened(disk) as state:
        assert (state["currentTerm"], state.mended) == (5, ())
    assert disk.files()[NAME] == data
