"""The tests that every log must pass.  Subclass it, and define how your log is opened.

    class TestMine(MySubject, LogContract): ...

`MySubject` is a holdfast.testing.explorer.Subject.  The figures below are for one run of a test
suite; `holdfast torture` and `make campaign` run the same explorer for as long as you like.
"""

import os
import threading
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from holdfast.disk import Buffer, Disk, OsDisk
from holdfast.errors import (
    CorruptError,
    DiskFullError,
    HoldfastError,
    LockedError,
    OutOfRangeError,
    PoisonedError,
)
from holdfast.logs.log import Log, LogReader
from holdfast.logs.mark import MARK
from holdfast.posix import Posix
from holdfast.testing.logs import Explorer, Step
from holdfast.testing.meddler import KINDS, WAYS
from holdfast.testing.sim_disk import Fault, SimDisk

BATCHES = [[b"a"], [b"b", b"bb" * 60], [b"c" * 170], [b"d", b"e", b"f"], [b"g" * 5]]
ENTRIES = [payload for batch in BATCHES for payload in batch]


class LogContract:
    batch_is_atomic: bool
    segment_size_max: int
    sequence_max = 3
    lives_count = 2000
    meddled_lives_count = 600
    images_per_point = 60  # at most: where they repeat, there are no more
    payload_seeds = 2
    images_min = 40_000

    open: Callable[[Disk], Log]
    open_reader: Callable[[Disk], LogReader]
    steps: Callable[[], dict[str, Step]]

    # Entries that it keeps

    def test_reads_back_what_it_appended(self) -> None:
        log = self.filled(SimDisk())
        assert contents(log) == ENTRIES
        assert (log.first_index, log.last_index) == (1, len(ENTRIES))

    def test_survives_reopening(self) -> None:
        disk = SimDisk()
        for batch in BATCHES:
            log = self.open(disk)
            log.append(batch)
            log.close()
        assert contents(self.open(disk)) == ENTRIES

    def test_scans_any_range_as_arrow(self) -> None:
        log = self.filled(SimDisk())
        for start in range(1, len(ENTRIES) + 2):
            for stop in range(start, len(ENTRIES) + 2):
                rows = []
                for batch in log.scan(start, stop):
                    batch.validate(full=True)
                    rows += batch.select(["index", "payload"]).to_pylist()
                wanted = [{"index": i, "payload": ENTRIES[i - 1]} for i in range(start, stop)]
                assert rows == wanted

    def test_takes_arrow_arrays(self) -> None:
        import pyarrow as pa

        log = self.open(SimDisk())
        log.append(pa.array(ENTRIES[:3], pa.binary()))
        log.append(pa.array([b"?", *ENTRIES[3:5]], pa.large_binary()).slice(1))
        log.append(pa.chunked_array([ENTRIES[5:6], ENTRIES[6:]], pa.binary_view()))
        assert contents(log) == ENTRIES

    def test_the_directory_itself_is_made_durably(self) -> None:
        disk = SimDisk(path="/sim/new/deep")
        self.filled(disk)
        assert contents(self.open(disk.after_power_cut(Random(1)))) == ENTRIES

    # Calls that it refuses

    def test_refuses_arguments_that_are_not_batches(self) -> None:
        log = self.filled(SimDisk())
        bad: Any
        for bad in ([], b"bytes", "text", [None], ["text"], [b"ok", 7]):
            assert_raises((ValueError, TypeError), partial(log.append, bad))
        assert contents(log) == ENTRIES
        log.append([b"still open"])

    def test_keeps_or_refuses_an_empty_payload(self) -> None:
        disk = SimDisk()
        log = self.open(disk)
        try:
            log.append([b"x", b""])
        except ValueError:
            assert contents(log) == []
        else:
            assert contents(self.open(disk.after_kill())) == [b"x", b""]

    def test_refuses_indexes_it_does_not_have(self) -> None:
        log = self.filled(SimDisk())
        last = len(ENTRIES)
        for index in (-1, 0, last + 1, 2**63):
            assert_raises(OutOfRangeError, partial(log.read, index))
        for start, stop in ((0, 1), (1, last + 2), (last + 2, last + 3)):
            assert_raises(OutOfRangeError, partial(log.scan, start, stop))
        assert_raises(ValueError, lambda: log.scan(3, 2))

    def test_has_one_owner(self) -> None:
        disk = SimDisk()
        log = self.filled(disk)
        error = assert_raises(LockedError, lambda: self.open(disk))
        assert str(os.getpid()) in str(error)
        log.close()
        self.open(disk)

    def test_closed_is_closed(self) -> None:
        log = self.filled(SimDisk())
        log.close()
        log.close()
        assert_raises(HoldfastError, lambda: log.append([b"x"]))

    def test_an_owner_reports_a_file_that_another_process_removed(self) -> None:
        disk = SimDisk()
        self.filled(disk).close()
        log = self.open(disk)
        oldest, *others = log.segments()
        assert others, "the subject's segments are too large for this"
        disk.posix.unlink(f"{disk.path}/{oldest.name}")
        assert_raises(CorruptError, lambda: log.read(oldest.first_index))
        assert_raises(CorruptError, lambda: list(log.scan()))
        assert log.read(log.last_index) == ENTRIES[-1]

    # When the disk fails

    def test_a_failed_sync_poisons_and_shows_nothing(self) -> None:
        disk = SimDisk()
        log = self.filled(disk)
        guest_had = len(ENTRIES)
        disk.posix.fault = Fault("sync eio", disk.posix.calls, always=True)
        assert_raises(OSError, lambda: log.append([b"never"]))
        disk.posix.fault = None
        assert log.last_index == guest_had
        assert_raises(PoisonedError, lambda: log.append([b"not even now"]))
        assert contents(log) == ENTRIES
        log.close()
        log = self.open(disk.after_kill())
        assert contents(log)[:guest_had] == ENTRIES
        log.append([b"again"])

    def test_a_full_disk_loses_nothing(self) -> None:
        for kind in ("enospc", "edquot"):
            disk = SimDisk()
            log = self.filled(disk)
            disk.posix.fault = Fault(kind, disk.posix.calls, always=True)
            error = assert_raises(DiskFullError, partial(log.append, [b"no room"]))
            assert "free some space" in str(error)
            assert contents(log) == ENTRIES
            log.close()
            disk.posix.fault = None
            log = self.open(disk)
            assert contents(log) == ENTRIES
            assert log.append([b"room"]) == len(ENTRIES) + 1

    def test_every_call_may_fail(self) -> None:
        """Each system call x {EIO, ENOSPC, short write, sync EIO then clean} x {once, always}."""
        explorer = Explorer(self, seed=2)
        for kind in ("eio", "enospc", "short write", "sync eio"):
            for sequence in (("batch", "large", "append", "reopen", "append"), tuple(self.steps())):
                for always in (False, True):
                    explorer.every_fault(sequence, kind, always=always)
            assert explorer.fired[kind] > 0, f"{kind} never fired"

    def test_a_flipped_bit_is_never_served(self) -> None:
        """Every entry that is returned is what was written; every other is reported as damaged."""
        clean = SimDisk()
        self.filled(clean).close()
        files = clean.files()
        for name, content in files.items():
            for bit in self.bits_to_flip(name, content):
                disk = SimDisk()
                for other, data in files.items():
                    disk.create(other, data)
                disk.flip(name, bit)
                self.judge_damaged(disk, f"bit {bit} of {name}")

    # Power cuts

    def test_no_crash_loses_or_invents(self) -> None:
        """Every crash point of any three steps, and lives that are cut short five times."""
        explorer = Explorer(self, images_per_point=self.images_per_point)
        for sequence in explorer.sequences(self.sequence_max):
            for seed in range(self.payload_seeds):
                explorer.every_crash_point(sequence, seed)
        for seed in range(self.lives_count):
            explorer.lives(seed)
        assert explorer.images >= self.images_min
        fates = "power cut, kill, torn, new, old, zero, garbled, name kept, name lost, bystander"
        assert not [fate for fate in fates.split(", ") if not explorer.fired[fate]]

    # Other processes

    def test_no_other_process_makes_the_owner_lose_or_invent(self) -> None:
        """Forks, a moved directory, removed locks and second owners, at every change."""
        explorer = Explorer(self, seed=3)
        sequences = (("batch", "large", "append", "reopen", "append"), tuple(self.steps()))
        for sequence, (kind, locks_directories) in product(sequences, WAYS):
            explorer.every_meddling(sequence, kind, locks_directories=locks_directories)
        for seed in range(self.meddled_lives_count):
            explorer.lives(seed, meddled=True)
        fired = {kind: explorer.fired[kind] for kind in KINDS}
        print(fired)
        assert min(fired.values()) > 100, fired

    # Many at once

    def test_many_threads_append_and_one_sync_serves_many(self, tmp_path: Path) -> None:
        posix, self.segment_size_max = CountingPosix(), 2**20  # no rotations: they sync too
        log = self.open(OsDisk(tmp_path, posix=posix))
        before, threads, each = posix.syncs, 8, 40

        def write(thread: int) -> None:
            for number in range(each):
                index = log.append([b"%d %d" % (thread, number), b"pair"])
                assert log.read(index - 1) == b"%d %d" % (thread, number)

        run_all([partial(write, thread) for thread in range(threads)])
        found = contents(log)
        assert len(found) == 2 * threads * each
        assert found[1::2] == [b"pair"] * (threads * each)
        for thread in range(threads):
            mine = [p for p in found[::2] if p.startswith(b"%d " % thread)]
            assert mine == [b"%d %d" % (thread, number) for number in range(each)]
        log.close()
        assert contents(self.open_reader(OsDisk(tmp_path))) == found
        assert posix.syncs - before < threads * each, "no sync served two"

    def test_a_guest_beside_a_writer_sees_a_growing_prefix(self, tmp_path: Path) -> None:
        log = self.open(OsDisk(tmp_path))
        guest = self.open_reader(OsDisk(tmp_path))
        done = threading.Event()

        def write() -> None:
            for number in range(300):
                log.append([b"%06d" % number])
            done.set()

        def watch() -> None:
            seen = 0
            while seen < 300:
                finished = done.is_set()
                last = guest.refresh()
                assert last >= seen
                for index in range(seen + 1, last + 1):
                    assert guest.read(index) == b"%06d" % (index - 1)
                seen = last
                assert not finished or seen == 300

        run_all([write, watch])
        assert contents(guest) == contents(log)

    # Helpers

    def bits_to_flip(self, name: str, content: bytes) -> Iterable[int]:
        """Return all bits, unless a file has too many, or bits that no checksum covers."""
        return range(0, 8 * len(content), 37 if name == MARK else 1)

    def filled(self, disk: Disk) -> Log:
        log = self.open(disk)
        for batch in BATCHES:
            log.append(batch)
        return log

    def judge_damaged(self, disk: SimDisk, what: str) -> None:
        try:
            guest = self.open_reader(disk)
        except HoldfastError:
            return
        reported = list(guest.damage)
        reported += [d for s in guest.segments() if (d := guest.check(s.name))]
        for index, payload in enumerate(ENTRIES, 1):
            try:
                assert guest.read(index) == payload, f"{what} is served at {index}"
            except (CorruptError, OutOfRangeError):
                assert reported, f"{what} hides {index} and is not reported"


class CountingPosix(Posix):
    """The real system calls, with syncs counted."""

    syncs = 0

    def pwrite(self, fd: int, data: Buffer, offset: int, *, sync: bool) -> int:
        self.syncs += sync
        return super().pwrite(fd, data, offset, sync=sync)

    def fdatasync(self, fd: int) -> None:
        self.syncs += 1
        super().fdatasync(fd)


def contents(log: LogReader) -> list[bytes]:
    return [log.read(index) for index in range(log.first_index, log.last_index + 1)]


def assert_raises(
    kind: type[BaseException] | tuple[type[BaseException], ...], call: Callable[[], object]
) -> BaseException:
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"did not raise {kind}")


def run_all(jobs: list[Callable[[], None]]) -> None:
    """Run each in a thread; raise what the first of them raised."""
    errors: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # raised below, in the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
