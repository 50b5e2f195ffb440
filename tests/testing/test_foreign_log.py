"""docs/tutorials/foreign-log.md: its log passes LogContract, and the bug that it names is found."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast.testing import BrokenPromiseError, Explorer, LogContract

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "foreign-log.md"


def _module() -> Any:
    """The format and its subject, as the page has them."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 3
    module = ModuleType("chunks")
    sys.modules[module.__name__] = module
    exec(blocks[0], vars(module))
    exec(blocks[2], vars(module))
    return module


FOREIGN = _module()


class TestForeign(FOREIGN.ChunkSubject, LogContract):  # type: ignore[misc, name-defined]
    sequence_max = 2
    lives_count = 200
    meddled_lives_count = 400
    images_min = 1000


def test_the_bug_that_the_page_names_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Careless(FOREIGN.ChunkSource):  # type: ignore[misc, name-defined]
        def show(self, found: Any) -> Any:
            return FOREIGN.View(tuple(found.chunks), tuple(found.damage))

    monkeypatch.setattr(FOREIGN, "ChunkSource", Careless)
    explorer = Explorer(FOREIGN.ChunkSubject())
    with pytest.raises(BrokenPromiseError, match="lost"):
        for seed in range(500):
            explorer.lives(seed)
