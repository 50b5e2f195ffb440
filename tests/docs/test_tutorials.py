"""Every tutorial and the guide to logs, run from top to bottom in a directory of its own."""

import re
from pathlib import Path

import pytest
from tests.docs.forking import Programs
from tests.docs.test_readme import ROOT

PAGES = [ROOT / "docs" / "logs.md", *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
_BLOCK = re.compile(r"```(python|console)\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_real(page: Path, tmp_path: Path, programs: Programs) -> None:
    text = page.read_text()
    blocks = _BLOCK.findall(text)
    assert len(blocks) == text.count("```python") + text.count("```console") > 0
    for kind, code, output in blocks:
        if kind == "python":
            (tmp_path / "page.py").write_text(code)
            assert programs.shell("page page.py", tmp_path) == output, code
            continue
        for step in re.split(r"^\$ ", code, flags=re.M)[1:]:
            command, _, expected = step.partition("\n")
            assert programs.shell(command, tmp_path) == expected, command
