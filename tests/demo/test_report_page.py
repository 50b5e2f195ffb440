"""The report in a real browser."""

import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from holdfast.demo.report import render
from holdfast.demo.results import Run

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--window-size=1200,1600"),
)
SECONDS_MAX = 120


@pytest.fixture(scope="module")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    return found


def browse(chromium: str, page: Path, *flags: str) -> str:
    profile = page.parent / "profile"
    command = [chromium, *FLAGS, f"--user-data-dir={profile}", *flags, page.as_uri()]
    run = subprocess.run(command, capture_output=True, timeout=SECONDS_MAX, check=True)
    return run.stdout.decode()


def pixels(png: bytes) -> list[bytes]:
    """The rows of an 8-bit picture, as they are stored: enough to see that they differ."""
    at, data = 8, b""
    width, height = struct.unpack_from(">II", png, 16)
    while at < len(png):
        size, kind = struct.unpack_from(">I4s", png, at)
        if kind == b"IDAT":
            data += png[at + 8 : at + 8 + size]
        at += size + 12
    raw = zlib.decompress(data)
    step = len(raw) // height
    assert step > width
    return [raw[row * step : (row + 1) * step] for row in range(height)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_draws_it(run: Run, tmp_path: Path, chromium: str, scheme: str) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "report.png"
    page.write_text(render(run), encoding="utf-8")
    preferred = {"dark": 0, "light": 1}[scheme]
    settings = f"--blink-settings=preferredColorScheme={preferred}"
    browse(chromium, page, f"--screenshot={picture}", settings)
    rows = pixels(picture.read_bytes())
    assert (max(rows[0][1:4]) < 64) == (scheme == "dark")  # its first pixel
    assert len(rows) == 1600
    assert len(set(rows)) > 300  # neither blank nor a single colour


def test_the_browser_sees_what_the_run_found(run: Run, tmp_path: Path, chromium: str) -> None:
    page = tmp_path / "report.html"
    page.write_text(render(run), encoding="utf-8")
    dom = browse(chromium, page, "--dump-dom")
    assert "Killed 6 times. Nothing acknowledged was lost." in dom
    assert '<dd class="good" id="lost">0</dd>' in dom
    assert dom.count("<svg") == 13
    assert dom.count('class="rise"') + dom.count('class="fall"') > 6 * 60
