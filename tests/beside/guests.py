"""Guests that read a store again and again.  `python -m tests.beside.guests FORMAT PATH SECONDS`

They print one JSON object: what they did, which refusals they met that are normal for the race, and
what failed.  Normal is only that an entry was removed or replaced after the guest had seen it:
OutOfRangeError or ChangedError.
"""

import base64
import json
import re
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter as Tally
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.compute as pc
from tests.beside.bar_rows import BARS, MARKER_S, SYMBOLS, TICKS, check_of
from tests.beside.payloads import COUNTER, Counter, WrongPayloadError, generation_of

from holdfast.disk import OsDisk
from holdfast.doors import read_bars, read_log
from holdfast.errors import ChangedError, OutOfRangeError
from holdfast.formats.flaw import Flaw
from holdfast.formats.raft_entry import decode_entry
from holdfast.logs.opening import FORMATS

NORMAL = (OutOfRangeError, ChangedError)
# Guests that did less have judged nothing.
LEAST = {"opens": 10, "refreshes": 40, "scans": 40, "entries": 2000, "inspections": 2}
LEAST_OF_LOGS = {"reads": 100, "tailed": 100, "verifications": 2, "plans": 2}
_FAILURES_MAX = 20


class Watch:
    """What all guests of one store have seen and done."""

    def __init__(self, kind: str, path: Path, seconds: float) -> None:
        self.kind, self.path = kind, str(path)
        self._seconds, self.until = seconds, time.monotonic() + seconds
        self.counter = Counter(path.parent / COUNTER)
        self.done: Tally[str] = Tally()
        self.normal: Tally[str] = Tally()
        self.failures: dict[str, tuple[int, str]] = {}  # how often, and how the first came about
        self._mutex = threading.Lock()

    @property
    def is_over(self) -> bool:
        """The time is up and enough is done; or it is up four times, on a busy machine."""
        now = time.monotonic()
        is_late = now >= self.until + 3 * self._seconds
        is_done = now >= self.until and not self.too_little()
        return is_done or is_late or len(self.failures) >= _FAILURES_MAX

    def too_little(self) -> list[str]:
        """What was done less often than a proof takes."""
        least = LEAST | ({} if self.kind == "bars" else LEAST_OF_LOGS)
        return [f"{self.done[what]} {what}" for what in least if self.done[what] < least[what]]

    def did(self, what: str, count: int = 1) -> None:
        with self._mutex:
            self.done[what] += count

    def fail(self, role: str, why: str) -> None:
        known = f"{self.kind} {role}: " + re.sub(
            r"[0-9a-f]*[0-9][0-9a-f]*", "N", why.split("\n")[-1]
        )
        with self._mutex:
            count, first = self.failures.get(known, (0, why))
            self.failures[known] = count + 1, first

    def attempt(self, role: str, step: Callable[[], None]) -> None:
        try:
            step()
        except NORMAL as error:
            with self._mutex:
                self.normal[type(error).__name__] += 1
        except Exception:
            self.fail(role, traceback.format_exc().strip())

    def again(self, role: str, step: Callable[[Random], None]) -> threading.Thread:
        def run() -> None:
            random = Random(role)
            while not self.is_over:
                self.attempt(role, lambda: step(random))

        thread = threading.Thread(target=run, name=role, daemon=True)
        thread.start()
        return thread


class LogGuests:
    """Guests of a log of any format."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def start(self) -> list[threading.Thread]:
        watch = self._watch
        threads = [
            watch.again("opener", self._open_and_read),
            watch.again("follower", self._follow),
            watch.again("inspector", self._inspect),
        ]
        tail = threading.Thread(target=self._tail, name="tail", daemon=True)
        tail.start()
        return [*threads, tail]

    def _open_and_read(self, random: Random) -> None:
        with read_log(self._watch.path) as guest:
            self._watch.did("opens")
            self._refuse_damage(guest)
            for _ in range(20):
                if guest.first_index <= guest.last_index:
                    index = random.randint(guest.first_index, guest.last_index)
                    self._judge(index, guest.read(index))
                    self._watch.did("reads")
            self._scan(guest, guest.first_index)

    def _follow(self, random: Random) -> None:
        """One guest that stays open for a while, and sees the log grow."""
        counter = self._watch.counter
        with read_log(self._watch.path) as guest:
            seen, counted = guest.last_index, -1
            for _ in range(random.randrange(10, 300)):
                if self._watch.is_over:
                    return
                before = counter.get()
                last = guest.refresh()
                self._watch.did("refreshes")
                self._refuse_damage(guest)
                is_quiet = counted == counter.get() and counted % 2 == 0
                if last < seen and is_quiet:
                    raise AssertionError(f"last_index went back from {seen} to {last}")
                start = max(guest.first_index, min(seen, last) + 1)
                if random.random() < 0.02:
                    start = guest.first_index
                self._watch.attempt("follower", lambda at=start: self._scan(guest, at))  # type: ignore[misc]
                seen, counted = last, before

    def _inspect(self, random: Random) -> None:
        path = self._watch.path
        with read_log(path) as reader:
            report = reader.status()
        self._watch.did("inspections")
        assert report.verdict != "corrupt", report
        with read_log(path) as reader:
            verdict = reader.verify()
        self._watch.did("verifications")
        assert verdict.verdict != "corrupt", verdict
        plan = FORMATS[report.format].plan_repair(OsDisk(path))
        self._watch.did("plans")
        assert all(damage.torn for damage in plan.damage), plan

    def _scan(self, guest: Any, start: int) -> None:
        generation = 0
        for batch in guest.scan(start):
            indexes = batch.column("index").to_pylist()
            for index, payload in zip(indexes, batch.column("payload").to_pylist(), strict=True):
                if index != start:
                    raise WrongPayloadError(f"entry {index} where {start} should be")
                own = self._judge(index, payload)
                if own < generation:
                    raise WrongPayloadError(f"entry {index}: generation {own} after {generation}")
                start, generation = index + 1, own
            self._watch.did("entries", len(indexes))
        self._watch.did("scans")

    def _judge(self, index: int, payload: bytes) -> int:
        if self._watch.kind == "raft-wal":
            entry = decode_entry(payload)
            if isinstance(entry, Flaw):
                raise WrongPayloadError(f"entry {index}: {entry}")
            payload = entry.data
        return generation_of(index, payload)

    def _refuse_damage(self, guest: Any) -> None:
        if guest.damage:
            raise AssertionError(f"a sound log is called damaged: {guest.damage}")

    def _tail(self) -> None:
        """`holdfast log tail -f` in a process of its own: it goes on until it is ended here."""
        main = "from holdfast.cli import main; main()"
        command = [sys.executable, "-c", main, "log", "tail", "-f", "--json"]
        command += ["--interval", "5ms", self._watch.path]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        complaints: list[bytes] = []
        assert process.stdout is not None
        assert process.stderr is not None
        threads = [
            threading.Thread(target=self._read_lines, args=(process.stdout,), daemon=True),
            threading.Thread(target=lambda: complaints.extend(process.stderr or ()), daemon=True),
        ]
        for thread in threads:
            thread.start()
        while not self._watch.is_over and process.poll() is None:
            time.sleep(0.05)
        if process.poll() is not None and not self._watch.is_over:
            last = b"".join(complaints[-30:]).decode(errors="replace")
            self._watch.fail("tail", f"it ended with {process.returncode}: {last}")
        process.kill()
        process.wait(10)
        for thread in threads:
            thread.join(10)

    def _read_lines(self, pipe: Any) -> None:
        for line in pipe:
            if line.endswith(b"\n"):
                self._watch.did("tailed")
                self._watch.attempt("tail", lambda text=line: self._judge_line(text))  # type: ignore[misc]

    def _judge_line(self, line: bytes) -> None:
        answer = json.loads(line)
        name = "data" if "data" in answer or "data_base64" in answer else "payload"
        if f"{name}_base64" in answer:
            payload = base64.b64decode(answer[f"{name}_base64"])
        else:
            payload = answer[name].encode()
        generation_of(answer["index"], payload)


class BarGuests:
    """Guests of a bar store."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def start(self) -> list[threading.Thread]:
        watch = self._watch
        return [
            watch.again("opener", self._open_and_read),
            watch.again("follower", self._follow),
            watch.again("inspector", self._inspect),
        ]

    def _open_and_read(self, random: Random) -> None:
        with read_bars(self._watch.path) as guest:
            self._watch.did("opens")
            self._refuse_damage(guest)
            self._query(guest, random)

    def _follow(self, random: Random) -> None:
        with read_bars(self._watch.path) as guest:
            version = 0
            for _ in range(random.randrange(10, 100)):
                if self._watch.is_over:
                    return
                found = self._query(guest, random)
                self._refuse_damage(guest)
                self._watch.did("refreshes")
                if 0 < found < version:
                    raise AssertionError(f"the marker went back from {version} to {found}")
                version = max(version, found)

    def _query(self, guest: Any, random: Random) -> int:
        if not set(SYMBOLS) <= set(guest.symbols("1Min", BARS)):
            return 0
        year = random.choice([None, 2019, 2020, 2021])
        span = {"start": f"{year}-01-01", "stop": f"{year + 1}-01-01"} if year else {}
        table = guest.query(SYMBOLS, "1Min", BARS, **span)
        self._judge(table)
        if guest.symbols("1Min", TICKS):
            self._judge(guest.query("*", "1Min", TICKS, **span))
        marker = guest.query(
            SYMBOLS, "1Min", BARS, start=MARKER_S * 10**9, stop=MARKER_S * 10**9 + 1
        )
        versions = marker["Version"].to_pylist()
        if len(versions) != len(SYMBOLS) or len(set(versions)) != 1:
            raise WrongPayloadError(f"a group is shown in part: {marker.to_pylist()}")
        self._watch.did("scans")
        return int(versions[0])

    def _judge(self, table: Any) -> None:
        for symbol in SYMBOLS:
            own = table.filter(pc.equal(table[0], symbol))
            epochs = own[1].cast("int64").to_numpy() // 10**9
            versions, checks = own["Version"].to_numpy(), own["Check"].to_numpy()
            if not (check_of(symbol, epochs, versions) == checks).all():
                raise WrongPayloadError(f"{symbol}: a row does not hold its checksum")
        self._watch.did("entries", table.num_rows)

    def _inspect(self, random: Random) -> None:
        with read_bars(self._watch.path) as guest:
            report, verdict = guest.status(), guest.verify()
        self._watch.did("inspections")
        assert report.verdict != "corrupt", report
        self._watch.did("verifications")
        assert verdict.verdict != "corrupt", [
            one for one in (*verdict.logs, *verdict.year_files) if one.damage
        ]

    def _refuse_damage(self, guest: Any) -> None:
        if guest.damage:
            raise AssertionError(f"a sound store is called damaged: {guest.damage}")


def main() -> None:
    kind, path, seconds = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    watch = Watch(kind, path, seconds)
    guests = BarGuests(watch) if kind == "bars" else LogGuests(watch)
    threads = guests.start()
    for thread in threads:
        while thread.is_alive() and not watch.is_over:
            thread.join(0.2)
        thread.join(30)
        if thread.is_alive():
            watch.fail(thread.name, "it did not end")
    for what in watch.too_little():
        watch.fail("guests", f"they did only {what}")
    failures = [f"{count} times {what}\n{why}" for what, (count, why) in watch.failures.items()]
    print(json.dumps({"done": watch.done, "normal": watch.normal, "failures": failures}))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
