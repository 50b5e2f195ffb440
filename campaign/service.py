"""Services under load, in processes of their own.  See tests/service and tests/bars/feed.py."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from campaign.figures import ROOT
from holdfast.testing.lives import BrokenPromiseError

LIMIT_S = 600.0  # besides what it was asked to take


def serve(format: str, place: Path, seconds: float, seed: int) -> Counter[str]:
    """Run the service of a log for so long.  BrokenPromiseError names what went wrong."""
    return _run(["tests.service", format, str(place), str(seconds), str(seed)], seconds)


def feed(place: Path, seconds: float, seed: int, *bugs: str) -> Counter[str]:
    """Run the feed of a bar store for so long, with planted bugs if any are named."""
    return _run(["tests.bars.feed", str(place), str(seconds), str(seed), *bugs], seconds)


def _run(arguments: list[str], seconds: float) -> Counter[str]:
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=seconds + LIMIT_S
    )
    try:
        report = json.loads(done.stdout)
    except ValueError:
        raise BrokenPromiseError("broken", f"no report: {done.stderr[-1000:]}") from None
    if report["failures"]:
        what = f"{'; '.join(report['failures'])} {done.stderr[-3000:]}"
        raise BrokenPromiseError("broken", what)
    return Counter(report["counts"])
