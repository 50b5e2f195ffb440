"""How time grows with a store: the same question to stores of 1, 10 and 100 times the size.

A subject is asked all its questions at one size, and forgotten; `curves` makes curves of the
answers of several.  Below are the logs', the kv store's and the bar store's.
"""

import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from html import escape
from math import log10
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast import create_log, open_bars, open_kv, open_log, read_log
from holdfast.bucket import DirectoryBucket
from holdfast.formats.sst import Rows
from holdfast.kv import BulkLoad, Compactor, write_sorted
from holdfast.logs.retention import Retention

Answers = dict[str, float]
Subject = Callable[[int], Answers]
_COLORS = ("#2a7ab0", "#c0603a", "#4a9a5a", "#8a5aa0")


@dataclass
class Curve:
    """One question, asked at several sizes, and the answers of every subject."""

    name: str
    unit: str
    things: str  # that the sizes count
    sizes: list[int]
    lines: dict[str, list[float]]
    aim: float | None = None  # the last size takes at most so many times what the first takes


def run(scale: float, only: str) -> Iterator[Curve]:
    smallest = max(1000, int(10_000 * scale))
    sizes = [smallest, 10 * smallest, 100 * smallest]
    for part in (of_logs, of_segments, of_kv, of_bars):
        if only in part.__name__:
            yield from part(sizes)


def of_logs(sizes: list[int]) -> Iterator[Curve]:
    subjects: dict[str, Subject] = {
        format: partial(ask_log, format) for format in ("raft-wal", "shanghai", "file-log")
    }
    questions = {
        "log: durable append of 100 entries": ("ms", 2.0),
        "log: open": ("ms", None),
        "log: open after a crash": ("ms", None),  # as long as its last file is
        "log: scan, one entry (CPU)": ("ns", 2.0),
    }
    yield from curves("entries of 100 B", sizes, subjects, questions)


def of_segments(sizes: list[int]) -> Iterator[Curve]:
    """A log of up to 10,000 segments.  The list of them, which each rotation writes, grows."""
    counts = [size // 100 for size in sizes]
    questions = {
        "segments: rotation (CPU)": ("ms", None),
        "segments: reader follows a rotation (CPU)": ("ms", None),
        "segments: trim of one (CPU)": ("ms", None),
        "segments: open": ("ms", None),
    }
    yield from curves("segments", counts, {"raft-wal": ask_segments}, questions)


def of_kv(sizes: list[int]) -> Iterator[Curve]:
    questions = {
        "kv: open, 1000 rows in the WAL": ("ms", 2.0),
        "kv: get of one of 100 keys (CPU)": ("µs", 2.0),
        "kv: get of any key (CPU)": ("µs", None),  # the cache does not hold all blocks
        "kv: scan, one row (CPU)": ("ns", 2.0),
        "kv: compaction of 4 runs, one row (CPU)": ("ns", 2.0),
    }
    yield from curves("rows of 116 B", sizes, {"kv": ask_kv}, questions)


def of_bars(sizes: list[int]) -> Iterator[Curve]:
    questions = {
        "bars: query of all, one bar (CPU)": ("ns", 2.0),
        "bars: query of the last 1000 bars (CPU)": ("ms", 2.0),
    }
    yield from curves("minutes of one symbol", sizes, {"bars": ask_bars}, questions)


def curves(
    things: str,
    sizes: list[int],
    subjects: Mapping[str, Subject],
    questions: Mapping[str, tuple[str, float | None]],
) -> Iterator[Curve]:
    """Ask every subject at every size; `questions` are what they answer: units and aims."""
    answers = {name: [ask(size) for size in sizes] for name, ask in subjects.items()}
    for question, (unit, aim) in questions.items():
        lines = {name: [each[question] for each in found] for name, found in answers.items()}
        yield Curve(question, unit, things, sizes, lines, aim)


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    started = clock()
    work()
    return clock() - started


def median_of(
    rounds: int, work: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds that the work takes, once it was done before."""
    work()
    return statistics.median(seconds(work, clock) for _ in range(rounds))


@contextmanager
def scratch() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir="."))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def ask_log(format: str, count: int) -> Answers:
    payloads = [random.randbytes(100) for _ in range(1000)]
    with scratch() as directory:

        def open_and_close(name: str) -> None:
            open_log(directory / name).close()

        log = create_log(directory / "log", format=format)
        for start in range(0, count, 1000):
            log.append(payloads[: count - start])
        crashed = []
        for name in "abcde":
            shutil.copytree(directory / "log", directory / name)  # as its owner left it
            crashed.append(seconds(partial(open_and_close, name)))
            shutil.rmtree(directory / name)
        append = median_of(30, lambda: log.append(payloads[:100]))
        scan = median_of(5, lambda: _rows(log.scan(), log.last_index), time.process_time)
        entries = log.last_index
        log.close()
        return {
            "log: durable append of 100 entries": append * 1e3,
            "log: open": median_of(7, partial(open_and_close, "log")) * 1e3,
            "log: open after a crash": statistics.median(crashed) * 1e3,
            "log: scan, one entry (CPU)": scan / entries * 1e9,
        }


def ask_segments(count: int) -> Answers:
    with scratch() as directory:
        path = directory / "log"
        log = create_log(path, segment_size_max=4096, segment_fill_ms=None)

        def rotate() -> None:
            log.append([b"entry"])
            log.rotate()

        def follow() -> float:
            rotate()
            return seconds(reader.refresh, time.process_time)

        for _ in range(count):
            rotate()
        with read_log(path) as reader:
            follow()
            answers = {
                "segments: rotation (CPU)": median_of(20, rotate, time.process_time) * 1e3,
                "segments: reader follows a rotation (CPU)": statistics.median(
                    follow() * 1e3 for _ in range(9)
                ),
            }

        def trim() -> None:
            log.trim(Retention(before=log.first_index + 1))

        answers["segments: trim of one (CPU)"] = median_of(9, trim, time.process_time) * 1e3
        log.close()
        opening = median_of(5, lambda: open_log(path).close())
        return {**answers, "segments: open": opening * 1e3}


def ask_kv(count: int) -> Answers:
    with scratch() as directory:
        bucket = DirectoryBucket(directory)
        open_kv(bucket, create=True, maintain=False).close()
        for run in range(4):  # each has keys between those of the others
            load = BulkLoad(bucket)
            load.commit(write_sorted(bucket, load.job, _sorted_rows(range(run, count, 4))))
        compaction = seconds(Compactor(bucket).compact_everything, time.process_time)
        with open_kv(bucket, create=True, maintain=False) as db:

            def get(keys: list[bytes]) -> float:
                return median_of(9, lambda: list(map(db.get, keys)), time.process_time) / len(keys)

            hot = [_key(random.randrange(count)) for _ in range(100)]
            get_hot = get(random.choices(hot, k=2000))
            get_any = get([_key(random.randrange(count)) for _ in range(2000)])
            scan = median_of(5, lambda: _rows(db.scan(), count), time.process_time)
            db.write([(_key(number), bytes(100)) for number in range(1000)]).result()
        opening = median_of(7, lambda: open_kv(bucket, create=True, maintain=False).close())
        return {
            "kv: open, 1000 rows in the WAL": opening * 1e3,
            "kv: get of one of 100 keys (CPU)": get_hot * 1e6,
            "kv: get of any key (CPU)": get_any * 1e6,
            "kv: scan, one row (CPU)": scan / count * 1e9,
            "kv: compaction of 4 runs, one row (CPU)": compaction / count * 1e9,
        }


def ask_bars(count: int) -> Answers:
    seconds_since_1970 = np.arange(count, dtype=np.int64) * 60 + 1_500_000_000
    stamps = pa.array(seconds_since_1970 * 10**9).view(pa.timestamp("ns", "UTC"))
    prices = {name: np.random.default_rng(1).random(count) for name in ("Open", "Close")}
    with scratch() as directory, open_bars(directory, create=True) as store:
        store.write(pa.table({"time": stamps, **prices}), "1Min", "OC", symbol="ONE")
        store.flush()

        def query(expected: int, **options: Any) -> None:
            assert len(store.query("ONE", "1Min", "OC", **options)) == expected

        whole = median_of(5, partial(query, count), time.process_time)
        last = median_of(9, partial(query, 1000, limit=1000), time.process_time)
        return {
            "bars: query of all, one bar (CPU)": whole / count * 1e9,
            "bars: query of the last 1000 bars (CPU)": last * 1e3,
        }


def _key(number: int) -> bytes:
    return b"%016d" % number


def _sorted_rows(numbers: range) -> Iterator[Rows]:
    values = [random.randbytes(100) for _ in range(1000)]
    for start in range(0, len(numbers), 100_000):
        keys = list(map(_key, numbers[start : start + 100_000]))
        yield Rows.from_columns(keys, random.choices(values, k=len(keys)), [0] * len(keys))


def _rows(batches: Iterator[Any], expected: int) -> None:
    assert sum(batch.num_rows for batch in batches) == expected


def table(found: Sequence[Curve]) -> list[str]:
    lines = []
    for number, curve in enumerate(found):
        sizes = [f"{size:,}" for size in curve.sizes]
        if not number or found[number - 1].sizes != curve.sizes:
            lines.append(f"| measure | store | {' | '.join(sizes)} | growth | aim |")
            lines.append("|---|---" + "|---:" * (len(sizes) + 1) + "|---|")
        for name, values in curve.lines.items():
            shown = " | ".join(f"{value:.4g} {curve.unit}" for value in values)
            growth = values[-1] / values[0]
            verdict = ""
            if curve.aim is not None:
                reached = "reached" if growth <= curve.aim else "missed"
                verdict = f"at most {curve.aim:g}×: {reached}"
            about = f"{curve.name}; {curve.things}"
            lines.append(f"| {about} | {name} | {shown} | {growth:.2f}× | {verdict} |")
    return lines


def draw(found: Sequence[Curve]) -> str:
    """A panel for each question: sizes to the right, time upwards, both logarithmic."""
    width, height, across = 300, 190, 3
    down = -(-len(found) // across)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width * across}" '
        f'height="{height * down}" font-family="sans-serif" font-size="11" fill="#666">'
    ]
    for number, curve in enumerate(found):
        x, y = number % across * width, number // across * height
        parts += [f'<g transform="translate({x},{y})">', *_panel(curve, width, height), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(curve: Curve, width: int, height: int) -> Iterator[str]:
    left, right, top, bottom = 46, width - 70, 26, height - 26
    every = [log10(value) for values in curve.lines.values() for value in values]
    low, high = min(every) - 0.3, max(every) + 0.3  # twice below the least, twice above the most
    first, last = log10(curve.sizes[0]), log10(curve.sizes[-1])

    def place(size: int, value: float) -> tuple[float, float]:
        across = (log10(size) - first) / (last - first)
        up = (log10(value) - low) / (high - low)
        return left + across * (right - left), bottom - up * (bottom - top)

    yield f'<text x="6" y="14">{escape(curve.name)}, {curve.unit}</text>'
    yield f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="#888"/>'
    for size in curve.sizes:
        x, _ = place(size, 10**low)
        yield f'<text x="{x:.0f}" y="{bottom + 14}" text-anchor="middle">{size:,}</text>'
    for (name, values), color in zip(curve.lines.items(), _COLORS, strict=False):
        points = [place(*point) for point in zip(curve.sizes, values, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'
        begin, end = points[0][1] + 4, points[-1][1] + 4
        yield f'<text x="{left - 4}" y="{begin:.0f}" text-anchor="end">{values[0]:.3g}</text>'
        label = f"{values[-1]:.3g} {name}"
        yield f'<text x="{right + 4}" y="{end:.0f}" fill="{color}">{label}</text>'
