"""docs/reliability.md, made from the figures."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from campaign.figures import Figures, State
from campaign.jobs import JOBS, Job

KINDS = {
    "images": "Simulated power cuts",
    "simulation": "Simulated schedules",
    "kills": "Real kills",
    "owners": "Real owners",
    "full disk": "Full disks",
    "harm": "Damaged files",
    "repairs": "Repairs",
    "fuzz": "Damaged bytes",
    "peers": "Other programs",
    "service": "A service",
    "soak": "Soak",
}
EXPLAINED = {
    "images": """\
A simulated disk loses power at every change, tears and reorders what was not synced, fills
up and fails. An image is a state of that disk from which the store was recovered and
compared with its ledger. Images of one seed are distinct.
""",
    "simulation": """\
Threads and processes run under a scheduler that a seed controls. They are killed, frozen
and cut off, and every state that a reader sees is compared. A step is a call of an object
store or a disk; a life is a process.
""",
    "kills": """\
A real process writes until it is killed with `kill -9`, after its first acknowledgement.
The next owner must find everything that was acknowledged. Copies of the files are deleted,
emptied, zeroed and flipped.
""",
    "owners": """\
Real owners are forked, moved, robbed of their lock, and run out of space on a file system
of 2 MB.
""",
    "full disk": """\
A simulated disk fills up at a change of a life and stays full. The next owner opens the store
and takes a way out, or the store is read-only and nothing of it is cut off.
""",
    "harm": """\
After a kill, a power cut or a clean close one file of a simulated store is deleted, emptied,
zeroed or flipped. What was acknowledged is read as it was written, or is reported as damaged.
""",
    "repairs": """\
Files of a simulated log are cut, flipped, zeroed, deleted, swapped or replaced with older ones.
After the repair the log holds exactly what the plan named, and `verify` is clean.
""",
    "fuzz": """\
Files of each format with changed bytes. A mutant is read right or refused with one of our
errors, within limits of memory and time. Where the format has checksums, what is read is what
was written.
""",
    "peers": """\
Random operations by us and by the real program that the format comes from, on the same
files or side by side. A sequence is one such walk, compared after each turn.
""",
    "service": """\
A process with 16 threads appends, rotates and trims. Other processes follow, scan, verify,
copy and convert its log. All are killed with `kill -9`. A ledger has what was acknowledged:
all of it is there in order, below it only what was trimmed; no reader was shown anything
else, or failed; the copy is equal; descriptors and memory are bounded. The service of a bar
store has four threads that write, correct and delete bars and ticks. Readers and the CLI in
other processes must show a state of the ledger, every group whole.
""",
    "soak": """\
Stores are opened, written, read and closed for a long time in one process. Memory and open
descriptors must not grow.
""",
}
_HEAD = """\
# Reliability

Made by `make campaign` from what it has counted; the figures add up over runs.

{verdict}

## How to read this page

A row is one kind of test of one store. **Count** is what all runs so far have judged, **aim**
what a release should have. Every job has a seed, and a seed is never used twice. **Seeds** is how
many were used. **Hours** is the time of one core. **Failures** counts broken promises: something
acknowledged was lost or hidden, something was invented, or a program failed in another way. Zero
is the only good figure. A row without a count was not run.

A figure is evidence, not proof: it says how often we looked, and in which ways. What is promised,
and what is assumed of the machine: [guarantees.md](guarantees.md).

A failure names the command that repeats it. A simulated job is the same each time; one with real
processes may need several tries. A failure that a repetition no longer shows is kept, with the
date.

To add to the figures, run `make campaign HOURS=8`. It uses all cores, and Ctrl-C ends it without
loss. Exit code 2 means that a promise was broken.
"""


def write(path: Path, state: State, missing: Mapping[str, str]) -> None:
    """Replace the page."""
    path.write_text("\n".join(lines(state, missing)) + "\n")


def lines(state: State, missing: Mapping[str, str]) -> Iterator[str]:
    broken = [failure for failure in state.failures if not failure.passed]
    hours = sum(figures.seconds for figures in state.jobs.values()) / 3600
    verdict = "Every failure below passes now." if state.failures else "No promise was broken."
    if broken:
        verdict = f"**{len(broken)} of these tests fail**: see below."
    jobs = sum(figures.jobs for figures in state.jobs.values())
    yield _HEAD.format(verdict=f"{jobs:,} jobs, {hours:.2f} hours of one core. {verdict}")
    for kind, title in KINDS.items():
        yield f"## {title}\n"
        yield EXPLAINED[kind]
        yield "| store or format | count | aim | seeds | hours | also counted | failures |"
        yield "| --- | --: | --: | --: | --: | --- | --: |"
        for job in JOBS.values():
            if job.kind == kind:
                yield _row(job, state)
        yield ""
    yield from _failures(state)
    yield from _runs(state)
    if missing:
        yield "\n## Not run on the last machine\n"
        yield from (f"- {name}: {why}" for name, why in missing.items())


def _row(job: Job, state: State) -> str:
    figures = state.jobs.get(job.name, Figures())
    count = figures.counts.get(job.unit, 0)
    others = (f"{what} {n:,}" for what, n in figures.counts.items() if what != job.unit)
    failures = sum(failure.job == job.name for failure in state.failures)
    cells = f"{count:,} {job.unit}", f"{job.aim:,}", f"{figures.next_seed:,}"
    return "| " + " | ".join([
        job.store, *cells, f"{figures.seconds / 3600:.3f}", ", ".join(others), str(failures)
    ]) + " |"  # fmt: skip


def _failures(state: State) -> Iterator[str]:
    yield "## Failures\n"
    if not state.failures:
        yield "None.\n"
    for failure in state.failures:
        since = f"It passes since {failure.passed}." if failure.passed else ""
        what = failure.what.replace("|", "\\|").replace("<", "&lt;")
        yield f"- **{failure.job}**, seed {failure.seed}, {failure.date}, {failure.version}: {what}"
        yield f"  {since} Again: `{failure.again}`"
    if state.failures:
        yield ""


def _runs(state: State) -> Iterator[str]:
    yield "## Runs\n"
    yield "| date | hours | jobs | failures | version | machine |"
    yield "| --- | --: | --: | --: | --- | --- |"
    for run in state.runs:
        cells = (
            run.date,
            f"{run.hours:.2f}",
            f"{run.jobs:,}",
            run.failures,
            run.version,
            run.machine,
        )
        yield "| " + " | ".join(map(str, cells)) + " |"
