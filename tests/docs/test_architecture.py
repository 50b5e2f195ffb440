"""ARCHITECTURE.md names files that exist, few enough to open side by side."""

import re
from pathlib import Path

import pytest
from tests.docs.test_readme import ROOT

PAGE = (ROOT / "ARCHITECTURE.md").read_text()
WALKS = re.split(r"^## ", PAGE, flags=re.M)[1:]


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.split("\n")[0])
def test_a_walk_names_at_most_eight_files_that_exist(walk: str) -> None:
    files = set(re.findall(r"`([\w/]+\.py)[`:]", walk))
    if "| part |" not in walk:  # the table of all stores' parts is not a walk
        assert len(files) <= 8
    for file in files:
        assert (ROOT / "src/holdfast" / file).exists(), file


def test_the_picture_shows_every_floor() -> None:
    picture = (ROOT / "docs/architecture.svg").read_text()
    floors = (ROOT / "pyproject.toml").read_text().partition("layers = [")[2].partition("]")[0]
    rooms = re.findall(r"\w+", floors)
    assert len(rooms) > 20
    for room in rooms:
        assert f">{room}<" in picture or room == "errors", room


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/**/*.md")), ids=lambda page: page.stem)
def test_tests_that_a_page_names_exist(page: Path) -> None:
    for name in re.findall(r"`(tests/[\w/.]+)`", page.read_text()):
        assert (ROOT / name).exists(), name
