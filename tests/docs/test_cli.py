"""docs/cli.md is what --help says."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from holdfast.cli.app import app

DOCS = Path(__file__).parents[2] / "docs"


def every_command(command: Any, name: str) -> list[tuple[str, Any]]:
    children = getattr(command, "commands", {}).items()
    return [(name, command), *(c for n, sub in children for c in every_command(sub, f"{name} {n}"))]


def test_the_reference_is_what_help_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")  # whatever the terminal
    made = runpy.run_path(str(DOCS / "build.py"))["cli_reference"]()
    assert made == (DOCS / "cli.md").read_text(encoding="utf-8"), "run `make docs`"


def test_every_command_and_every_option_says_what_it_does() -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    for name, command in every_command(get_command(app), "holdfast"):
        assert command.help, name
        shown = re.sub(
            "(replicas) ", r"\1 {PATH} ", re.sub("(kv manifest|kv snapshot) ", r"\1 {URL} ", name)
        )
        assert f"`{shown}`" in text
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{name}: {parameter.name}"


def test_every_verb_takes_json() -> None:
    for name, command in every_command(get_command(app), "holdfast"):
        if not hasattr(command, "commands"):
            assert any("--json" in parameter.opts for parameter in command.params), name
