"""The Python of docs/integrations/pysyncobj.md, run in a directory of its own."""

import re
from pathlib import Path

import pytest
from tests.integrations.pysyncobj.test_kills import free_addresses

PAGE = Path(__file__).parents[2] / "docs" / "integrations" / "pysyncobj.md"


def test_the_page_is_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (address,) = free_addresses(1)  # the page's port may be taken on this machine
    names: dict[str, object] = {"__name__": "page"}
    exec(compile(block.replace("127.0.0.1:28471", address), str(PAGE), "exec"), names)
    assert (tmp_path / "node" / "journal" / "wal-meta.db").exists()
