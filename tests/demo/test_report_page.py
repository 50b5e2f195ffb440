"""The report in a real browser."""

import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from holdfast.demo.acts import Run
from holdfast.demo.report import render

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--hide-scrollbars",
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
    browse(chromium, page, f"--screenshot={picture}", settings, "--window-size=1200,1600")
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
    assert dom.count("<svg") == 6
    assert dom.count('class="rise"') + dom.count('class="fall"') > 6 * 60


def test_nothing_is_cut_on_a_phone(run: Run, tmp_path: Path, chromium: str) -> None:
    """The widest element decides how wide the page is; a frame of 390 pixels measures it."""
    page, frame = tmp_path / "report.html", tmp_path / "frame.html"
    page.write_text(render(run), encoding="utf-8")
    frame.write_text(
        "<iframe src='report.html' width=390 height=800 style='border:0'></iframe><script>"
        "document.querySelector('iframe').onload = event => { const page = event.target"
        ".contentDocument; const cut = [...page.querySelectorAll('body *:not(svg *)')].filter("
        "one => one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0);"
        "document.title = `width ${page.documentElement.scrollWidth} cut ${cut.length}`; }"
        "</script>",
        encoding="utf-8",
    )
    dom = browse(chromium, frame, "--dump-dom", "--allow-file-access-from-files")
    assert "<title>width 390 cut 0</title>" in dom
