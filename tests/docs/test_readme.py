"""The README's sessions are what a user sees: each command is run and its output compared."""

import os
import re
import sys
from pathlib import Path

import pytest
from tests.docs.forking import Programs, run_shell

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", README, re.DOTALL)


def test_the_console_sessions_are_real(tmp_path: Path, programs: Programs) -> None:
    steps = [step for block in blocks("console") for step in re.split(r"^\$ ", block, flags=re.M)]
    commands = [step for step in steps if step]
    assert len(commands) >= 9
    for number, step in enumerate(commands):
        command, _, expected = step.partition("\n")
        # The first with the program as it was installed.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        printed = (
            programs.shell(command, tmp_path) if number else run_shell(command, tmp_path, path)
        )
        assert printed == expected, command


def test_the_python_example_is_real(tmp_path: Path, programs: Programs) -> None:
    (code,), (expected,) = blocks("python"), blocks("text")
    (tmp_path / "example.py").write_text(code)
    assert programs.shell("page example.py", tmp_path) == expected


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "docs"])
def test_no_link_is_broken(page: str) -> None:
    path = ROOT / page
    pages = sorted(path.rglob("*.md")) if path.is_dir() else [path]
    assert pages
    for one in pages:
        for target in re.findall(r"\]\(([^)#]+)", one.read_text()):
            if "://" not in target:
                assert (one.parent / target).exists(), f"{one.name} links to {target}"
