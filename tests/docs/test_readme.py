"""The README's sessions are what a user sees: each command is run and its output compared."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", README, re.DOTALL)


def shell(command: str, directory: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", "-c", command],
        cwd=directory,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return result.stdout


def test_the_console_sessions_are_real(tmp_path: Path) -> None:
    steps = [step for block in blocks("console") for step in re.split(r"^\$ ", block, flags=re.M)]
    commands = [step for step in steps if step]
    assert len(commands) >= 9
    for step in commands:
        command, _, expected = step.partition("\n")
        assert shell(command, tmp_path) == expected, command


def test_the_python_example_is_real(tmp_path: Path) -> None:
    (code,), (expected,) = blocks("python"), blocks("text")
    (tmp_path / "example.py").write_text(code)
    assert shell("python example.py", tmp_path) == expected


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "docs"])
def test_no_link_is_broken(page: str) -> None:
    path = ROOT / page
    pages = sorted(path.rglob("*.md")) if path.is_dir() else [path]
    assert pages
    for one in pages:
        for target in re.findall(r"\]\(([^)#]+)", one.read_text()):
            if "://" not in target:
                assert (one.parent / target).exists(), f"{one.name} links to {target}"
