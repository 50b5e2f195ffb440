"""The Python of docs/buckets.md, run from top to bottom, and its lists, compared with the code."""

import re
from pathlib import Path

import pytest
from tests.servers import PAIRS

TEXT = (Path(__file__).parents[2] / "docs" / "buckets.md").read_text(encoding="utf-8")


def test_the_page_is_real(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", TEXT, re.DOTALL)
    assert len(pairs) == TEXT.count("```python") == 2
    names: dict[str, object] = {"__name__": "page"}
    for code, output in pairs:
        exec(compile(code, "docs/buckets.md", "exec"), names)
        assert capsys.readouterr().out == output


def test_every_tested_store_is_on_the_page() -> None:
    table = TEXT.partition("## Tested stores")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `([a-z0-9+]+)` \|", table, re.MULTILINE)) == set(PAIRS)
