"""Two-phase writes: every step is a place to die, to stall, or to meet somebody else."""

from collections import Counter
from collections.abc import Callable
from random import Random
from uuid import UUID

import pytest

from holdfast.bucket import Bucket, MemoryBucket, Patience, Retirable, RetryingBucket, Sweepable
from holdfast.errors import CorruptError, UnavailableError
from holdfast.kv.cas import Record, TwoPhaseBucket
from holdfast.testing.bucket_contract import BucketContract
from holdfast.testing.sim_bucket import Call, Faults, SimBucket
from holdfast.testing.sim_records import SimRecords

NAME = "wal/00000000000000000001.sst"
FAR_FUTURE_MS = 1 << 60
MINE, THEIRS = b"mine " * 20, b"theirs " * 20


class TestTwoPhaseBucket(BucketContract):
    @pytest.fixture
    def bucket(self) -> Bucket:
        return TwoPhaseBucket(Careless(), SimRecords())


class Careless(MemoryBucket):
    """Ignores conditions without a word."""

    def put_if_absent(self, name: str, data: object, **_: object) -> None:
        super().delete(name)
        super().put_if_absent(name, data)  # type: ignore[arg-type]


class Died(BaseException):
    """Not an Exception: nothing may clean up after a death."""


class World:
    """A store that enforces nothing, its records, and any number of processes that use them."""

    def __init__(self, random: Random | None = None, faults: Faults | None = None) -> None:
        self.random = random or Random(0)
        self.bucket = SimBucket(self.random, faults, enforces=False)
        self.records = SimRecords(self.random, faults)
        self.calls: list[Call] = []
        self.at: int | None = None  # at this call
        self.happens: Callable[[], None] = self.die  # ... this happens first
        self.bucket.line.before_each = self.records.line.before_each = self.note

    def note(self, call: Call) -> None:
        self.calls.append(call)
        if self.at is not None and len(self.calls) > self.at:
            self.at = None
            self.happens()

    def die(self) -> None:
        raise Died

    def process(self) -> TwoPhaseBucket:
        slept = [0.0]
        patience = Patience(
            budget_ms=60_000,
            monotonic=lambda: slept[0],
            sleep=lambda pause: slept.__setitem__(0, slept[0] + pause),
            dice=self.random.random,
        )
        return TwoPhaseBucket(
            RetryingBucket(self.bucket, patience),
            self.records,
            patience=patience,
            new_id=lambda: UUID(int=self.random.getrandbits(128)),
        )

    def truth(self) -> dict[str, bytes]:
        everything = self.bucket.truth
        return {info.name: everything.get(info.name) for info in everything.list("")}

    def heal(self) -> None:
        """The network gets well, and all that was under way arrives."""
        for line in (self.bucket.line, self.records.line):
            line.faults = Faults()
            line.settle()


def verbs(world: World) -> list[str]:
    return [call.verb for call in world.calls]


STEPS = ["epoch", "put_if_absent", "insert", "copy", "commit", "delete"]


def test_a_write_takes_the_steps_of_the_design() -> None:
    world = World()
    bucket = world.process()
    bucket.put_if_absent(NAME, MINE)
    assert verbs(world) == STEPS
    source = world.calls[1].names[0]
    assert source.startswith(NAME + ".")
    assert [len(part) for part in source[len(NAME) + 1 :].split(".")] == [32, 8]
    assert world.truth() == {NAME: MINE}
    assert world.records.records[NAME] == Record(NAME, source, committed=True)
    bucket.put_if_absent("wal/2", MINE)
    assert verbs(world)[len(STEPS) :] == STEPS[1:]  # the epoch is known by now


Recovery = Callable[[World], None]


def recovered(world: World) -> None:
    world.process().recover()


def recovery_of_the_text(world: World) -> None:
    """As the design was first written: no destination, no record."""
    for record in world.records.uncommitted():
        here = world.truth()
        if record.destination in here and record.source in here:
            world.bucket.copy(record.source, record.destination)
            world.records.commit(record)
        else:
            del world.records.records[record.destination]


def die_at_every_step(recover: Recovery) -> int:
    """The record is the point of no return: with it the write is there, without it it is not."""
    finished = 0
    for at in range(len(STEPS)):
        world = World()
        world.at = at
        with pytest.raises(Died):
            world.process().put_if_absent(NAME, MINE)
        decided = bool(world.records.records)
        assert decided == (at > STEPS.index("insert"))
        recover(world)
        heir = world.process()
        if decided:
            finished += 1
            assert heir.get(NAME) == MINE, f"lost after {STEPS[at - 1]}"
            with pytest.raises(FileExistsError):
                heir.put_if_absent(NAME, THEIRS)
            assert heir.get(NAME) == MINE
        else:
            heir.put_if_absent(NAME, THEIRS)
            assert heir.get(NAME) == THEIRS
        heir.sweep(FAR_FUTURE_MS)
        assert list(world.truth()) == [NAME]
        assert heir.recover() == 0
    return finished


def test_a_write_is_lost_before_its_record_and_never_after() -> None:
    assert die_at_every_step(recovered) == 3


def test_the_recovery_of_the_text_is_caught() -> None:
    with pytest.raises((AssertionError, FileNotFoundError)):
        die_at_every_step(recovery_of_the_text)


def test_recovery_may_die_too_at_every_step() -> None:
    died = 0
    for first in range(3, len(STEPS)):
        for second in range(4):
            world = World()
            world.at = first
            with pytest.raises(Died):
                world.process().put_if_absent(NAME, MINE)
            world.at = len(world.calls) + second
            try:
                world.process().recover()
            except Died:
                died += 1
            world.at = None
            world.process().recover()
            assert world.process().get(NAME) == MINE
            assert world.records.uncommitted() == []
    assert died > 6


def test_a_record_whose_temporary_vanished_is_damage() -> None:
    world = World()
    world.records.insert(NAME, f"{NAME}.gone", 0)
    with pytest.raises(CorruptError, match="is missing"):
        world.process().recover()
    assert world.records.uncommitted() != []
    world.bucket.put_if_absent(NAME, MINE)  # its copy was made, and then the temporary removed
    assert world.process().recover() == 1
    assert world.records.uncommitted() == []


def test_a_retry_after_an_unknown_outcome_finds_its_own_write() -> None:
    world = World()
    world.at = STEPS.index("copy")
    world.happens = lambda: setattr(world.bucket.line, "faults", Faults(refused=1.0))
    with pytest.raises(UnavailableError):
        world.process().put_if_absent(NAME, MINE)
    world.heal()
    world.process().put_if_absent(NAME, MINE)
    with pytest.raises(FileExistsError):
        world.process().put_if_absent(NAME, THEIRS)
    assert world.truth() == {NAME: MINE}


# Somebody else is faster, at every step


def lose(world: World) -> None:
    with pytest.raises(FileExistsError):
        world.process().put_if_absent(NAME, THEIRS)


def overtaken(world: World) -> None:
    """A rival writes the same name, and may win or not."""
    try:
        world.process().put_if_absent(NAME, THEIRS)
    except FileExistsError:
        return
    world.calls.append(Call("rival won", ()))


def stall_at_every_step(happens: Callable[[World], None]) -> Counter[str]:
    """A writer stalls before each of its steps while something else happens from end to end."""
    outcomes: Counter[str] = Counter()
    for at in range(len(STEPS)):
        world = World()
        world.at, world.happens = at, lambda world=world: happens(world)  # type: ignore[misc]
        try:
            world.process().put_if_absent(NAME, MINE)
            outcome = "won"
        except FileExistsError:
            outcome = "lost"
        rival_won = Call("rival won", ()) in world.calls
        assert rival_won == (outcome == "lost")
        heir = world.process()
        assert heir.get(NAME) == (THEIRS if rival_won else MINE)
        assert [info.name for info in heir.list("")] == [NAME]
        assert heir.recover() == 0
        heir.sweep(FAR_FUTURE_MS)
        assert list(world.truth()) == [NAME]
        outcomes[outcome] += 1
    return outcomes


def test_a_stalled_winner_is_helped() -> None:
    world = World()
    world.at = STEPS.index("copy")
    with pytest.raises(Died):
        world.process().put_if_absent(NAME, MINE)
    assert NAME not in world.truth()
    lose(world)  # by now the winner's object can be read
    assert world.process().get(NAME) == MINE
    assert list(world.truth()) == [NAME]


def test_one_writer_wins_if_another_overtakes_a_stalled_one() -> None:
    assert stall_at_every_step(overtaken) == {"won": 3, "lost": 3}


def test_a_stalled_writer_survives_a_sweep_of_everything() -> None:
    assert stall_at_every_step(lambda world: _sweep(world)) == {"won": 6}


def test_a_stalled_writer_survives_recovery_by_others() -> None:
    assert stall_at_every_step(recovered) == {"won": 6}


def _sweep(world: World) -> None:
    world.process().sweep(FAR_FUTURE_MS)


def test_a_sweep_that_does_not_end_the_epoch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimRecords, "begin_sweep", lambda self: self.epochs)
    with pytest.raises((AssertionError, CorruptError)):
        stall_at_every_step(_sweep)


def test_a_loser_that_does_not_help_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = TwoPhaseBucket._finish
    winners: set[TwoPhaseBucket] = set()

    def finish(self: TwoPhaseBucket, record: Record) -> None:
        if not winners:
            winners.add(self)
        if self in winners:
            real(self, record)

    monkeypatch.setattr(TwoPhaseBucket, "_finish", finish)
    with pytest.raises(FileNotFoundError):
        test_a_stalled_winner_is_helped()


# Forgetting


def test_a_retired_slot_never_reopens() -> None:
    world = World()
    bucket = world.process()
    assert isinstance(bucket, Retirable)
    assert isinstance(bucket, Sweepable)
    for number in range(1, 6):
        bucket.put_if_absent(f"wal/{number:020}.sst", b"%d" % number)
    bucket.delete(f"wal/{2:020}.sst")
    with pytest.raises(FileExistsError):  # deleted is not free
        bucket.put_if_absent(f"wal/{2:020}.sst", MINE)
    bucket.retire("wal", f"wal/{3:020}.sst")
    assert sorted(world.records.records) == [f"wal/{n:020}.sst" for n in (4, 5)]
    bucket.delete(*(f"wal/{number:020}.sst" for number in range(1, 4)))
    for number in range(1, 4):
        with pytest.raises(FileExistsError):
            bucket.put_if_absent(f"wal/{number:020}.sst", MINE)
    assert [info.name for info in bucket.list("")] == [f"wal/{n:020}.sst" for n in (4, 5)]
    assert len(world.truth()) == 2
    for prefix, boundary in [("wal", "manifest/1"), ("wal", "wal/deep/1"), ("wal", "wal")]:
        with pytest.raises(ValueError, match="not in directory"):
            bucket.retire(prefix, boundary)


def test_what_is_deleted_is_not_brought_back() -> None:
    world = World()
    world.at = STEPS.index("commit")
    with pytest.raises(Died):
        world.process().put_if_absent(NAME, MINE)
    world.process().delete(NAME)
    assert world.process().recover() == 0
    assert world.truth() == {}


def test_temporaries_are_hidden_and_no_name_for_objects() -> None:
    world = World()
    world.at = STEPS.index("insert")
    with pytest.raises(Died):
        world.process().put_if_absent(NAME, MINE)
    [temporary] = world.truth()
    assert world.process().list("") == []
    with pytest.raises(ValueError, match="temporary"):
        world.process().put_if_absent(temporary, MINE)
    stamped = world.bucket.truth.list("")[0].modified_ms
    assert world.process().sweep(stamped) == 0
    assert world.process().sweep(stamped + 1) == 1
    assert world.truth() == {}


def test_writers_on_a_bad_line_agree() -> None:
    """Answers lost, late, refused; one winner per name, and what was acknowledged stays."""
    fired: Counter[str] = Counter()
    acknowledged = 0
    faults = Faults(refused=0.1, unsent=0.03, lost_answer=0.1, late=0.05)
    for seed in range(400):
        random = Random(f"bad line/{seed}")
        world = World(random, faults)
        writers = [world.process() for _ in range(3)]
        owed: dict[str, bytes] = {}
        for step in range(12):
            writer, name = random.choice(writers), f"wal/{random.randrange(4)}"
            data = b"%d by %d" % (step, seed)
            world.at = len(world.calls) + random.randrange(20)  # a death, perhaps
            try:
                writer.put_if_absent(name, data)
                assert name not in owed
                owed[name] = data
            except (Died, UnavailableError, FileExistsError):
                pass
            world.at = None
            if random.random() < 0.1:
                writer.recover() if random.random() < 0.5 else writer.sweep(FAR_FUTURE_MS)
        fired += world.bucket.fired + world.records.fired
        world.heal()
        heir = world.process()
        heir.recover()
        assert {name: heir.get(name) for name in owed} == owed, f"seed {seed}"
        heir.sweep(FAR_FUTURE_MS)
        assert set(world.truth()) == set(world.records.records)
        acknowledged += len(owed)
    assert acknowledged > 200
    for fault in ("refused", "unsent", "lost answer", "late", "arrived late"):
        assert fired[fault] > 50, fault
