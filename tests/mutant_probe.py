"""A plugin of pytest for tests.mutations: it notes which tests run which mutants.

A probe before each statement that will be removed calls `mutant_seen` with the mutant's number.  A
process without the plugin has no such function, and its probes do nothing.
"""

import builtins
import json
import os
from pathlib import Path

import pytest

PROBE = "getattr(__import__('builtins'), 'mutant_seen', id)({number}); "
VARIABLE = "MUTANT_PROBE_FILE"

_seen: dict[str, set[int]] = {}
_seconds: dict[str, float] = {}
_current = ""


def _see(number: int) -> None:
    _seen.setdefault(_current, set()).add(number)


builtins.mutant_seen = _see  # type: ignore[attr-defined]


def pytest_runtest_logstart(nodeid: str) -> None:
    global _current
    _current = nodeid


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish() -> None:
    found = {test: [_seconds.get(test, 0.0), sorted(seen)] for test, seen in _seen.items() if test}
    Path(os.environ[VARIABLE]).write_text(json.dumps(found))
