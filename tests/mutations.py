"""Remove every call that syncs, removes or sweeps, one at a time; the room's tests must notice.

    python -m tests.mutations              # all rooms; takes hours
    python -m tests.mutations logs/file_log kv/cas

Each mutant is made in a copy of the tree.  A first run of the room's quick tests finds which of
them run which mutant; only those are repeated with it, the fastest first.  If none does, all are:
a process that a test starts may run it.  With `--contracts`, the suites that take minutes follow.
A mutant that survives is printed and makes the exit code 1.  Give the reason in EQUIVALENT if it
changes nothing that can be observed.
"""

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutant_probe import PROBE, VARIABLE

ROOT = Path(__file__).parents[1]
CALLS = {
    "sync",
    "_sync",
    "sync_names",
    "sync_directory",
    "fdatasync",
    "remove",
    "sweep",
    "unlink",
    "delete",
    "release",
}

# Quick tests of each room, and the suites that take minutes.
ROOMS: dict[str, tuple[list[str], list[str]]] = {
    "disk.py": (["tests/test_disk.py", "tests/logs/test_power_cuts.py"], []),
    "staged.py": (["tests/logs/test_staging.py", "tests/bars/test_staging.py"], []),
    "group_commit.py": (["tests/test_group_commit.py"], []),
    "logs/staging.py": (["tests/logs/test_staging.py"], []),
    "logs/shanghai": (
        ["tests/logs/shanghai", "tests/logs/test_power_cuts.py"],
        ["tests/logs/shanghai/test_contract.py"],
    ),
    "logs/raft_wal": (
        ["tests/logs/raft_wal", "tests/logs/test_power_cuts.py"],
        ["tests/logs/raft_wal/test_contract.py"],
    ),
    "logs/file_log": (
        ["tests/logs/file_log", "tests/logs/test_power_cuts.py"],
        ["tests/logs/file_log/test_contract.py"],
    ),
    "logs/reader.py": (["tests/logs/shanghai", "tests/logs/raft_wal"], []),
    "logs/writer.py": (["tests/logs/test_retention.py", "tests/logs/raft_wal"], []),
    "logs/replicas.py": (["tests/logs/test_replicas.py"], []),
    "bars": (["tests/bars"], ["tests/bars/test_crashes.py"]),
    "kv/cas": (["tests/kv/cas/test_two_phase.py"], ["tests/testing/test_kv_simulation.py"]),
    "kv/gc.py": (["tests/kv/test_gc.py"], ["tests/testing/test_kv_simulation.py"]),
    "kv": (["tests/kv"], ["tests/testing/test_kv_simulation.py"]),
    "bucket": (["tests/bucket"], []),
    "integrations": (["tests/integrations/pysyncobj"], []),
    "tabular": (["tests/tabular"], []),
}
SLOW = ("contract", "mutants", "crashes", "kills", "torture")

# Mutants that change nothing that can be observed, with the reason.
EQUIVALENT: dict[str, str] = {
    "bars/recovery.py file.sync()": (
        "of a log that was cut: nothing is appended to it before a write-back has synced the volume"
    ),
    "logs/raft_wal/view.py loaded.unverified.remove(k)": "the batch is verified once more",
    **dict.fromkeys(
        [
            "logs/raft_wal/meta_store.py lock.release()",
            "logs/raft_wal/meta_store.py self.release()",
            "logs/raft_wal/repair.py lock.release()",
            "logs/shanghai/writer.py lock.release()",
        ],
        "after a failed open: a lock is released with its last reference, and `lock` collects",
    ),
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module without one call, or with a write that is not synced."""

    path: Path
    line: int
    call: str
    source: str
    indent: str


def mutants_of(path: Path) -> Iterator[Mutant]:
    source = path.read_text()
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Expr | ast.Return | ast.Assign):
            continue
        if not isinstance(node.value, ast.Call) or node.end_lineno is None:
            continue
        first, stop = node.lineno - 1, node.end_lineno
        indent = lines[first][: node.col_offset]
        function, call = node.value.func, ast.unparse(node)
        name = getattr(function, "attr", getattr(function, "id", ""))
        if isinstance(node, ast.Expr) and name in CALLS:
            changed = f"{indent}pass\n"
        elif "sync=True" in call:
            changed = "".join(lines[first:stop]).replace("sync=True", "sync=False")
        else:
            continue
        mutated = [*lines[:first], changed, *lines[stop:]]
        yield Mutant(path, node.lineno, call, "".join(mutated), indent)


def run(tree: Path, tests: Sequence[str], timeout: float, *options: str, **variables: str) -> int:
    """Return pytest's exit code; 1 if the tests wait for what never comes."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *options]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), **variables}
    try:
        return subprocess.run(
            [*command, *tests],
            cwd=tree,
            env=environment,
            capture_output=True,
            timeout=timeout,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        return 1


def who_runs(
    tree: Path, tests: Sequence[str], mutants: Sequence[Mutant], timeout: float
) -> list[list[str]]:
    """Return the tests that run each mutant, the fastest first.  All must pass."""
    originals = {mutant.path: mutant.path.read_text() for mutant in mutants}
    for path, source in originals.items():
        lines = source.splitlines(keepends=True)
        for number, mutant in enumerate(mutants):
            if mutant.path == path:
                line, indent = lines[mutant.line - 1], mutant.indent
                probe = PROBE.format(number=number)
                lines[mutant.line - 1] = f"{indent}{probe}{line.removeprefix(indent)}"
        path.write_text("".join(lines))
    notes = tree / "probe.json"
    code = run(tree, tests, timeout, "-p", "tests.mutant_probe", **{VARIABLE: str(notes)})
    for path, source in originals.items():
        path.write_text(source)
    if code != 0:
        raise SystemExit(f"{' '.join(tests)}: they fail, or take too long, without a mutant")
    found = json.loads(notes.read_text())
    by_time = sorted(found, key=lambda test: float(found[test][0]))
    return [
        [test for test in by_time if number in found[test][1]] for number in range(len(mutants))
    ]


def examine(room: str, tree: Path, *, contracts: bool, timeout: float) -> Iterator[str]:
    """Yield the mutants of a room that no test notices."""
    quick, slow = ROOMS[room]
    quick = [*quick, *(f"--ignore-glob=*test_{word}*" for word in SLOW)]
    home = tree / "src/holdfast" / room
    paths = sorted(home.rglob("*.py")) if home.is_dir() else [home]
    mutants = [mutant for path in paths for mutant in mutants_of(path)]
    runners = who_runs(tree, quick, mutants, 4 * timeout)
    for mutant, tests in zip(mutants, runners, strict=True):
        path, original = mutant.path, mutant.path.read_text()
        path.write_text(mutant.source)
        caught = run(tree, tests or quick, timeout, PYTHONDONTWRITEBYTECODE="1") == 1
        if not caught and contracts and slow:
            caught = run(tree, slow, 10 * timeout, PYTHONDONTWRITEBYTECODE="1") == 1
        path.write_text(original)
        name = path.relative_to(tree / "src/holdfast")
        where = f"{name}:{mutant.line} {mutant.call} ({len(tests)} tests)"
        is_known = f"{name} {mutant.call}" in EQUIVALENT
        outcome = "caught" if caught else "equivalent" if is_known else "SURVIVED"
        print(f"{outcome:10} {where}", flush=True)
        if outcome == "SURVIVED":
            yield where


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rooms", nargs="*", help=f"of {', '.join(ROOMS)}; default: all")
    parser.add_argument("--contracts", action="store_true", help="also run suites of minutes")
    parser.add_argument("--timeout", type=float, default=300, help="seconds; default 300")
    chosen = parser.parse_args()
    if unknown := [room for room in chosen.rooms if room not in ROOMS]:
        parser.error(f"no room {unknown[0]!r}; there are {', '.join(ROOMS)}")
    survivors: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory)
        for name in (
            "src",
            "tests",
            "docs",
            "benchmarks",
            "campaign",
            "pyproject.toml",
            "README.md",
        ):
            source = ROOT / name
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, tree / name)
        for room in chosen.rooms or ROOMS:
            survivors += examine(room, tree, contracts=chosen.contracts, timeout=chosen.timeout)
    print(f"{len(survivors)} mutants survived")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
