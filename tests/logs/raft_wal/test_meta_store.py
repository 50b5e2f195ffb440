"""The meta store keeps what it has acknowledged, whatever happens to the disk."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import pytest

from holdfast.disk import OsDisk
from holdfast.errors import CorruptError, DiskFullError, HoldfastError, LockedError, PoisonedError
from holdfast.formats import bolt
from holdfast.formats.raft_meta import SegmentMeta, State, encode_state
from holdfast.logs.raft_wal.meta_store import META_STORE, MetaStore, RaftOwnership
from holdfast.testing.sim_disk import Fault, PowerLost, SimDisk

Contents = tuple[State | None, dict[bytes, bytes]]
NOTHING: Contents = (None, {})


def state_of(count: int) -> State:
    segments = (SegmentMeta(i, 1 + 10 * i, 1 + 10 * i, size_limit=4096) for i in range(count))
    return State(count, tuple(segments))


def contents(store: MetaStore) -> Contents:
    return store.load(), store.stable


# What it keeps


def test_a_new_store_is_empty_and_can_be_read() -> None:
    disk = SimDisk()
    with MetaStore(disk) as store:
        assert contents(store) == NOTHING
        assert store.get(b"x") is None
        assert store.get_uint64(b"x") == 0
    assert sorted(disk.files()) == ["LOCK", META_STORE]
    assert len(disk.files()[META_STORE]) == 32768


def test_segments_and_keys_survive_reopening() -> None:
    disk = SimDisk()
    for count in (1, 6, 30, 150, 2):
        with MetaStore(disk) as store:
            store.commit(state_of(count))
            store.set(b"count", b"%d" % count)
            store.set(b"empty", b"")
            assert contents(store) == (state_of(count), {b"count": b"%d" % count, b"empty": b""})
        with MetaStore(disk) as store:
            assert contents(store) == (state_of(count), {b"count": b"%d" % count, b"empty": b""})
    with MetaStore(disk) as store:
        store.set(b"count", None)
        store.set(b"never there", None)
        assert store.stable == {b"empty": b""}


def test_each_change_is_one_transaction_of_two_syncs() -> None:
    disk = SimDisk()
    store = MetaStore(disk)
    txid, calls = store.txid, disk.posix.calls
    store.set(b"a", b"b")
    assert store.txid == txid + 1
    assert disk.posix.calls - calls == 6  # two pages, sync, meta page, sync, its twin


def test_numbers_are_little_endian() -> None:
    store = MetaStore(SimDisk())
    store.set_uint64(b"n", 2**64 - 2)
    assert store.get(b"n") == b"\xfe" + b"\xff" * 7
    assert store.get_uint64(b"n") == 2**64 - 2
    store.set(b"n", b"")
    assert store.get_uint64(b"n") == 0
    store.set(b"n", b"short")
    with pytest.raises(ValueError, match="5 bytes; a uint64 has 8"):
        store.get_uint64(b"n")
    for wrong in (-1, 2**64):
        with pytest.raises(ValueError, match="not a uint64"):
            store.set_uint64(b"n", wrong)


def test_keys_are_what_bbolt_takes() -> None:
    store = MetaStore(SimDisk())
    for key in (b"", b"k" * 32769):
        with pytest.raises(ValueError, match="a key takes 1 to 32768 bytes"):
            store.set(key, b"x")
    store.set(b"k" * 32768, b"x")
    assert store.get(b"k" * 32768) == b"x"


def test_foreign_buckets_are_not_changed() -> None:
    disk, inner = SimDisk(), bolt.Bucket({b"in": bolt.Bucket({b"k": b"v"})}, 7)
    disk.create(
        META_STORE, bolt.encode({b"wal-meta": bolt.Bucket({}), b"stable": inner, b"x": inner})
    )
    with MetaStore(disk) as store:
        store.set(b"a", b"b")
        assert store.get(b"in") is None
        with pytest.raises(ValueError, match="is a bucket"):
            store.set(b"in", b"x")
    image = bolt.decode(disk.files()[META_STORE])
    assert isinstance(image, bolt.Image)
    assert image.buckets[b"x"] == inner
    assert image.buckets[b"stable"] == bolt.Bucket({**inner.items, b"a": b"b"}, 7)


# Whose it is


def test_one_owner_by_either_lock() -> None:
    disk = SimDisk()
    store = MetaStore(disk)
    with pytest.raises(LockedError, match="owned by process"):
        MetaStore(disk)
    store.close()
    bbolt = disk.lock(META_STORE)
    before = disk.files()
    with pytest.raises(LockedError, match="owned by process"):
        MetaStore(disk)
    assert disk.files() == before
    bbolt.release()
    ours = disk.lock()
    with pytest.raises(LockedError, match="owned by process"):
        MetaStore(disk)
    ours.release()
    MetaStore(disk).close()


def test_the_holder_of_the_file_is_named(tmp_path: Path) -> None:
    MetaStore(OsDisk(tmp_path)).close()
    before = (tmp_path / META_STORE).read_bytes()
    code = (
        "import sys; from holdfast.disk import OsDisk;"
        "lock = OsDisk(sys.argv[1]).lock(sys.argv[2]); print('held', flush=True); sys.stdin.read()"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path), META_STORE]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockedError, match=rf"owned by process ({holder.pid}|unknown);"):
            MetaStore(OsDisk(tmp_path))
        holder.kill()
    assert (tmp_path / META_STORE).read_bytes() == before
    MetaStore(OsDisk(tmp_path)).close()


def test_a_closed_store_refuses_changes() -> None:
    store = MetaStore(SimDisk())
    store.set(b"a", b"b")
    store.close()
    store.close()
    with pytest.raises(PoisonedError, match="closed"):
        store.set(b"a", b"c")


def test_a_reader_follows_and_changes_nothing() -> None:
    disk = SimDisk()
    assert contents(MetaStore(disk, read_only=True)) == NOTHING
    store = MetaStore(disk)
    guest = MetaStore(disk, read_only=True)
    for count in (1, 2, 100):
        store.commit(state_of(count))
        assert guest.load() != state_of(count)
        assert guest.refresh() == store.txid
        assert guest.load() == state_of(count)
    operations = disk.posix.operations
    with MetaStore(disk, read_only=True) as another:
        assert another.load() == state_of(100)
        with pytest.raises(ValueError, match="read-only"):
            another.set(b"a", b"b")
    assert disk.posix.operations == operations + 1  # it has synced what it showed
    store.set(b"still", b"owner")


def test_a_reader_sees_whole_transactions_only() -> None:
    """It looks in between any two changes to the disk."""
    disk = SimDisk()
    store = MetaStore(disk)
    random, seen = Random(3), Counter[int]()
    history = [(0, 0)]  # what was committed, and what is in flight

    def look() -> None:
        disk.posix.bystander = None
        guest = MetaStore(disk, read_only=True)
        state = guest.load()
        found = state.next_segment_id if state else 0
        assert (found, guest.get_uint64(b"count")) in history[-2:]
        seen[found] += 1
        disk.posix.bystander = look

    disk.posix.bystander = look
    for _ in range(40):
        count = random.choice((1, 5, 20, 150))
        history.append((count, history[-1][1]))
        store.commit(state_of(count))
        history.append((count, count))
        store.set_uint64(b"count", count)
    assert len(seen) == 5


def test_a_reader_that_is_overtaken_looks_again() -> None:
    disk = SimDisk()
    store = MetaStore(disk)
    guest = MetaStore(disk, read_only=True)
    posix, reads = disk.posix, 0
    pread = posix.pread

    def overtaking(fd: int, size: int, offset: int) -> bytes:
        nonlocal reads
        reads += 1
        data = pread(fd, size, offset)
        if reads in (2, 5):  # after all was read, and before the meta pages are read again
            store.set_uint64(b"n", reads)
        return data

    store.set_uint64(b"n", 1)
    posix.pread = overtaking  # type: ignore[method-assign]
    guest.refresh()
    assert guest.get_uint64(b"n") == 5
    assert reads >= 9  # three for each of three looks


# What is damaged


def test_a_damaged_store_says_what_to_do() -> None:
    disk = SimDisk()
    disk.create(META_STORE, bytes(32768))
    for read_only in (True, False):
        with pytest.raises(CorruptError, match=r"meta page.*holdfast log repair"):
            MetaStore(disk, read_only=read_only)
    assert disk.files()[META_STORE] == bytes(32768)
    disk.lock().release()  # nor was it left locked


@pytest.mark.parametrize("read_only", [True, False])
def test_segments_without_a_store_are_not_a_new_log(read_only: bool) -> None:
    disk = SimDisk()
    disk.create("00000000000000000001-0000000000000000.wal", b"entries")
    with pytest.raises(CorruptError, match=r"missing, but there are segments.*repair"):
        MetaStore(disk, read_only=read_only)
    assert META_STORE not in disk.files()


def stored(meta: dict[bytes, bytes | bolt.Bucket]) -> dict[bytes, bolt.Bucket]:
    return {b"wal-meta": bolt.Bucket(meta), b"stable": bolt.Bucket({})}


@pytest.mark.parametrize(
    ("buckets", "why"),
    [
        ({b"stable": bolt.Bucket({})}, "no bucket 'wal-meta'"),
        ({b"wal-meta": bolt.Bucket({})}, "no bucket 'stable'"),
        (stored({b"m": b"{"}), "cannot parse the JSON"),
        (stored({b"m": bolt.Bucket({})}), "a bucket, not JSON"),
    ],
)
def test_an_invalid_store_says_what_to_do(buckets: dict[bytes, bolt.Bucket], why: str) -> None:
    disk = SimDisk()
    disk.create(META_STORE, bolt.encode(buckets))
    with pytest.raises(CorruptError, match=rf"{why}.*repair"):
        MetaStore(disk).load()


def test_a_store_is_replaced_and_the_old_one_kept() -> None:
    disk = SimDisk()
    disk.create("00000000000000000001-0000000000000000.wal", b"entries")
    for count in (1, 2):
        with MetaStore.create_from(disk, state_of(count), {b"k": b"v"}) as store:
            assert contents(store) == (state_of(count), {b"k": b"v"})
            with pytest.raises(LockedError):
                disk.lock(META_STORE)
    lock = RaftOwnership(disk)
    of_the_old_file = lock._store
    store = MetaStore.create_from(disk, None, {}, lock=lock)
    disk.lock("wal-meta.db-2.cut").release()  # the replaced file is free for other programs
    assert of_the_old_file is not None
    assert not of_the_old_file.is_ours
    store.close()
    assert contents(MetaStore(disk)) == NOTHING
    kept = [name for name in disk.files() if name.endswith(".cut")]
    assert kept == ["wal-meta.db.cut", "wal-meta.db-2.cut"]


# When the disk fails


def test_a_failed_sync_poisons_and_shows_nothing() -> None:
    disk = SimDisk()
    store = MetaStore(disk)
    store.set(b"a", b"1")
    disk.posix.fault = Fault("sync eio", disk.posix.calls, always=True)
    with pytest.raises(OSError, match="Input/output"):
        store.set(b"a", b"2")
    disk.posix.fault = None
    assert store.get(b"a") == b"1"
    with pytest.raises(PoisonedError):
        store.set(b"a", b"3")
    store.close()
    assert MetaStore(disk).get(b"a") in (b"1", b"2")


def test_a_full_disk_loses_nothing() -> None:
    disk = SimDisk()
    store = MetaStore(disk)
    store.commit(state_of(2))
    disk.posix.fault = Fault("enospc", disk.posix.calls, always=True)
    with pytest.raises(DiskFullError, match="free some space"):
        store.commit(state_of(200))
    store.close()
    disk.posix.fault = None
    with MetaStore(disk) as store:
        assert store.load() == state_of(2)
        store.commit(state_of(200))


# When the lights go out


@dataclass
class Life:
    """A store in use: what it has promised, and what it may hold if it dies now."""

    disk: SimDisk
    promised: Contents = NOTHING
    in_flight: Contents = NOTHING

    def begin(self) -> None:
        self.store = MetaStore(self.disk)
        self.hold(self.store)

    def hold(self, store: MetaStore) -> None:
        """What the store shows was promised or in flight, and is promised from now on."""
        found = contents(store)
        assert found in (self.promised, self.in_flight), "lost or invented"
        self.promised = found

    def change(self, change: Callable[[], None], state: State | None, **stable: bytes) -> None:
        keys = {key.encode(): value for key, value in stable.items()}
        self.in_flight = state or self.promised[0], keys if keys else self.promised[1]
        change()
        self.promised = self.in_flight

    def commit(self, count: int) -> None:
        self.change(lambda: self.store.commit(state_of(count)), state_of(count))

    def set(self, value: bytes) -> None:
        self.change(lambda: self.store.set(b"k", value), None, k=value)

    def number(self, value: int) -> None:
        number = value.to_bytes(8, "little")
        self.change(lambda: self.store.set_uint64(b"k", value), None, k=number)

    def reopen(self) -> None:
        self.store.close()
        self.begin()

    def look(self) -> None:
        self.hold(MetaStore(self.disk, read_only=True))

    def fork(self, disk: SimDisk) -> "Life":
        return Life(disk, self.promised, self.in_flight)


STEPS: dict[str, Callable[[Life], None]] = {
    "few": lambda life: life.commit(2),
    "some": lambda life: life.commit(7),
    "many": lambda life: life.commit(60),
    "set": lambda life: life.set(b"v" * 10),
    "large": lambda life: life.set(b"w" * 9000),
    "number": lambda life: life.number(1),
    "reopen": Life.reopen,
    "guest": Life.look,
}
SEQUENCES = [
    ("few", "set", "some", "reopen", "number", "many", "few"),
    ("many", "guest", "large", "many", "set", "reopen", "some"),
    ("set", "number", "reopen", "large", "few", "some", "few"),
]


def live(disk: SimDisk, sequence: tuple[str, ...]) -> tuple[Life, bool]:
    """A life of these steps, and whether it died before their end."""
    life = Life(disk)
    try:
        life.begin()
        for step in sequence:
            STEPS[step](life)
    except PowerLost:
        return life, True
    return life, False


def judge(life: Life, random: Random) -> None:
    """Recover, once or twice; the store holds what it must, and goes on."""
    if random.random() < 0.3:
        life.disk.posix.operations, life.disk.posix.dies_at = 0, int(random.random() * 8)
        try:
            life.begin()
            life.number(2)
        except PowerLost:
            pass
        cut = random.random() < 0.7
        life = life.fork(life.disk.after_power_cut(random) if cut else life.disk.after_kill())
    life.begin()
    life.number(3)
    life.commit(4)
    life.fork(life.disk.after_power_cut(random)).begin()


@pytest.mark.parametrize("sequence", SEQUENCES, ids=" ".join)
def test_no_crash_loses_or_invents(sequence: tuple[str, ...]) -> None:
    images, fired, at, dies = set(), Counter[str](), 0, True
    while dies:
        disk, random = SimDisk(), Random(f"{sequence} {at}")
        disk.posix.dies_at, disk.posix.fired = at, fired
        life, dies = live(disk, sequence)
        for _ in range(10):
            image = disk.after_power_cut(random)
            files = hash(frozenset(image.files().items()))
            if files not in images:
                images.add(files)
                judge(life.fork(image), random)
        judge(life.fork(disk.after_kill()), random)
        at += 1
    assert at > 40
    assert len(images) > 200
    fates = ("power cut", "kill", "torn", "new", "old", "zero", "garbled", "name kept", "name lost")
    assert not [fate for fate in fates if not fired[fate]]


@pytest.mark.parametrize("kind", ["eio", "enospc", "short write", "sync eio"])
@pytest.mark.parametrize("always", [False, True])
def test_every_call_may_fail(kind: str, always: bool) -> None:
    fired = Counter[str]()
    at, reached = 0, True
    while reached:
        disk, random = SimDisk(), Random(f"{kind} {at}")
        disk.posix.fault, disk.posix.fired = Fault(kind, at, always), fired
        life = Life(disk)
        try:
            life.begin()
            for step in ("set", "many", "guest", "reopen", "few"):
                STEPS[step](life)
        except (OSError, HoldfastError):
            pass  # it said so: that is all that is asked of it
        reached = disk.posix.calls > at
        judge(life.fork(disk.after_power_cut(random)), random)
        judge(life.fork(disk.after_kill()), random)
        at += 1
    assert fired[kind] > 0


def test_a_failed_open_leaves_no_lock() -> None:
    disk = SimDisk()
    MetaStore(disk).close()
    for at in range(60):
        disk.posix.fault = Fault("eio", disk.posix.calls + at)
        try:
            MetaStore(disk).close()
        except OSError:
            continue
        finally:
            disk.posix.fault = None
            MetaStore(disk).close()
        return
    pytest.fail("no opening went through")


def test_a_replaced_store_is_whole_or_missing() -> None:
    at, dies = 0, True
    while dies:
        disk, random = SimDisk(), Random(at)
        MetaStore(disk).close()
        disk.create("00000000000000000001-0000000000000000.wal", b"entries")
        disk.posix.operations, disk.posix.dies_at = 0, at
        make = partial(MetaStore.create_from, state=state_of(3), stable={b"k": b"v"})
        try:
            make(disk)
            dies = False
        except PowerLost:
            pass
        for _ in range(10):
            image = disk.after_power_cut(random)
            try:
                found = contents(MetaStore(image))
            except CorruptError as error:
                assert "missing" in str(error)
                found = contents(make(image))
                assert "wal-meta.db.cut" in image.files()
            assert found == (state_of(3), {b"k": b"v"}) or (dies and found == NOTHING)
        at += 1
    assert at > 5


# When bits rot


def test_no_flipped_bit_goes_unnoticed() -> None:
    """Each bit of each page as far as it is used, and a sample of the rest."""
    disk = SimDisk()
    with MetaStore(disk) as store:
        store.commit(state_of(2))
        store.set(b"CurrentTerm", b"\x07")
        wanted = contents(store)
    data = disk.files()[META_STORE]
    used = [page + at for page in range(0, len(data), 4096) for at in range(used_of(data, page))]
    found = 0
    for bit in [8 * byte + b for byte in used for b in range(8)] + [*range(0, 8 * len(data), 997)]:
        rotten = SimDisk()
        rotten.create(META_STORE, data)
        rotten.flip(META_STORE, bit)
        try:
            assert contents(MetaStore(rotten, read_only=True)) == wanted, f"bit {bit}"
        except CorruptError:
            found += 1
    assert found > 8 * len(encode_state(state_of(2)))


def used_of(data: bytes, page: int) -> int:
    return len(data[page : page + 4096].rstrip(b"\0"))


def test_a_store_of_another_program_needs_no_checksum() -> None:
    disk = SimDisk()
    with MetaStore(disk) as store:
        store.commit(state_of(2))
    image = bolt.decode(disk.files()[META_STORE])
    assert isinstance(image, bolt.Image)
    assert image.buckets[b"wal-meta"].sequence >> 32 == image.txid
    theirs = bolt.Bucket({b"m": encode_state(state_of(3))}, image.buckets[b"wal-meta"].sequence)
    change = bolt.commit(image, {**image.buckets, b"wal-meta": theirs})
    file = disk.open(META_STORE, writable=True)
    for offset, page in [*change.pages, change.meta]:
        file.write_at(offset, page)
    with MetaStore(disk) as store:
        assert store.load() == state_of(3)
        store.set(b"k", b"v")
    with MetaStore(disk) as store:
        assert contents(store) == (state_of(3), {b"k": b"v"})
