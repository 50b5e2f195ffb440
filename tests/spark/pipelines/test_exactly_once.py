"""A real driver, killed at random moments: nothing is lost and nothing doubled, in any sink.

Each life is ended when one of the sinks, in turns, has committed two batches or one, and a random
moment later: so the kills are spread over the lives of all.  Every other turn is that of the bars,
whose query is the slowest: when it has committed, the others have too.
HOLDFAST_KILLS=20 kills it more often, HOLDFAST_SEED repeats a run.
"""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.spark.pipelines.samples import (
    FOUR_SINKS,
    entries,
    expected_bars,
    is_bad,
    parquet_rows,
    price,
    write,
    write_ticks,
)

from holdfast.doors import open_kv, read_bars

KILLS = int(os.environ.get("HOLDFAST_KILLS", "1"))
SEED = int(os.environ.get("HOLDFAST_SEED", random.randrange(2**32)))
SINKS = ("lines", "prices", "bars", "archive")
TURNS = ("bars", "lines", "bars", "prices", "bars", "archive")
TICKS = 150  # for each life: three batches for every sink
_RUN = "from holdfast.cli import main; main()"


def _driver(file: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", _RUN, "pipeline", "run", str(file), "--json"]
    # It lives for seconds, so the second compiler would only take time from the rest.
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
    with file.with_suffix(".stderr").open("ab") as errors:  # a pipe that nobody reads fills up
        return subprocess.Popen(
            [*command, "--master", "local[2,4]"],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
        )


def _let_live(driver: "subprocess.Popen[bytes]", sink: str, count: int) -> Counter[str]:
    """Until that sink has committed so many batches; those of all sinks until then."""
    assert driver.stdout is not None
    batches: Counter[str] = Counter()
    while batches[sink] < count and (line := driver.stdout.readline()):
        batches[json.loads(line).get("sink", "the end")] += 1
    return batches


def _kill(driver: "subprocess.Popen[bytes]", *, jvm_too: bool) -> None:
    """Python alone, whose JVM then goes on for a moment; or both in one stroke."""
    children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
    for pid in (*map(int, children if jvm_too else ()), driver.pid):
        os.kill(pid, signal.SIGKILL)
    driver.communicate()


def test_a_pipeline_killed_at_random_moments_ends_in_the_same_state(
    tmp_path: Path, class_cache: Path
) -> None:
    dice = random.Random(SEED)
    file = write(tmp_path / "ticks.toml", FOUR_SINKS)
    last, lives, offset = 0, list[Counter[str]](), dice.randrange(len(TURNS))
    for _ in range(2 * KILLS):
        write_ticks(tmp_path / "ticks-log", last + 1, last + TICKS)
        last += TICKS
        driver = _driver(file)
        sink = TURNS[(len(lives) + offset) % len(TURNS)]
        batches = _let_live(driver, sink, 2 - len(lives) // len(TURNS) % 2)
        try:
            driver.wait(dice.uniform(0, 1.5))
        except subprocess.TimeoutExpired:
            _kill(driver, jvm_too=dice.random() < 0.5)
            lives.append(batches)
        if len(lives) == KILLS:
            break
    done = _driver(file)
    done.communicate(timeout=300 + 30 * KILLS)
    assert done.returncode == 0, file.with_suffix(".stderr").read_text()
    held = check_sinks(tmp_path, last, f"HOLDFAST_SEED={SEED} HOLDFAST_KILLS={KILLS}")
    for life in lives:
        print("killed after", dict(life))
    print(f"seed {SEED}, {len(lives)} kills, {last} ticks; all equal:", held)
    assert KILLS < 2 or max(life["bars"] for life in lives) >= 2, "several batches before a kill"
    assert len(lives) == KILLS, "it had ended before it could be killed, again and again"


def check_sinks(tmp_path: Path, last: int, why: str) -> dict[str, int]:
    """Every sink, and the dead letters, hold what becomes of the ticks 1..last; each once.

    Returns how many rows each holds.
    """
    good = [index for index in range(1, last + 1) if not is_bad(index)]
    symbols = {index: "AB"[index % 2] for index in good}
    lines = [b"%d %s %d" % (index, symbols[index].encode(), index) for index in good]
    assert entries(tmp_path / "lines") == lines, why
    with open_kv(str(tmp_path / "prices"), create=True) as db:
        found = {key.decode(): value.decode() for key, value in db.items()}
    assert found == {f"{symbols[i]}/{i}": str(price(i)) for i in good}, why
    with read_bars(str(tmp_path / "bars")) as store:
        bars = store.query("*", "1Min", "OHLCV").to_pylist()
    assert sorted(tuple(bar.values()) for bar in bars) == expected_bars(good), why
    archived = sorted(row["_index"] for row in parquet_rows(tmp_path / "archive"))
    assert archived == good, why
    letters = [json.loads(entry) for entry in entries(tmp_path / "state" / "dead-letters")]
    bad = [index for index in range(1, last + 1) if is_bad(index)]
    assert [letter["index"] for letter in letters] == bad, why
    assert {letter["reason"] for letter in letters} == {"not JSON"}
    counts = (len(lines), len(found), len(bars), len(archived), len(letters))
    return dict(zip((*SINKS, "dead-letters"), counts, strict=True))
