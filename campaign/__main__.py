"""Run every kind of test with new seeds, add up the figures, and make docs/reliability.md again.

Exit code 2 if a promise was broken in this run.
"""

import argparse
import os
import sys
from pathlib import Path

from campaign import page
from campaign.figures import FILE, ROOT, State, load
from campaign.jobs import JOBS
from campaign.pool import Task, run_task
from campaign.running import Campaign, now
from holdfast.cli.output import progress

BROKEN = 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m campaign", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0, help="how long; default 1")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="jobs whose name contains this")
    parser.add_argument("--figures", type=Path, default=FILE, help="where they are kept")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "reliability.md")
    parser.add_argument("--repeat", metavar="JOB", choices=JOBS, help="run one job once")
    parser.add_argument("--seed", type=int, default=0, help="of the job to repeat")
    parser.add_argument("--size", type=float, default=1.0, help="of the job to repeat")
    options = parser.parse_args()
    state = load(options.figures)
    if options.repeat:
        return repeat(Task(options.repeat, options.seed, options.size), state, options)
    jobs = {name: job for name, job in JOBS.items() if options.only in name}
    if not jobs:
        parser.error(f"no job has {options.only!r} in its name; there are {', '.join(JOBS)}")
    campaign = Campaign(jobs, state, options.figures)
    with progress("campaign", unit="seconds") as show:
        session = campaign.run(options.hours, options.processes, show)
    page.write(options.page, state, campaign.missing)
    print(f"{session.jobs:,} jobs in {session.hours:.2f} hours, {session.failures} failures")
    print(f"saved {options.figures} and {options.page}", file=sys.stderr)
    for failure in state.failures[-session.failures :] if session.failures else ():
        print(f"{failure.what}\n  again: {failure.again}")
    return BROKEN if session.failures else 0


def repeat(task: Task, state: State, options: argparse.Namespace) -> int:
    """Run one job again; if it passes, note that at its recorded failure."""
    result = run_task(task)
    print(result.failure or f"passed: {result.counts}")
    known = [one for one in state.failures if (one.job, one.seed) == (task.job, task.seed)]
    for failure in known:
        failure.passed = "" if result.failure else now()
    if known:
        state.save(options.figures)
        page.write(options.page, state, {})
    return BROKEN if result.failure else 0


if __name__ == "__main__":
    sys.exit(main())
