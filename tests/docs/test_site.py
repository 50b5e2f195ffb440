"""The site is built as `make docs` does it: a broken link or a reference to nothing is an error."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_site_is_whole(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    kv = (tmp_path / "reference" / "holdfast.kv.html").read_text()
    assert 'href="holdfast.bucket.html#holdfast.bucket.bucket.Bucket"' in kv
    readme = (tmp_path / "index.html").read_text()
    assert 'href="guarantees.html"' in readme
    assert 'src="demo.png"' in readme
    for page in tmp_path.rglob("*.html"):
        assert 'src="http' not in page.read_text(), f"{page} loads something from elsewhere"
