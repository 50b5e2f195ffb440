import io
import sys

import pytest
import typer

from holdfast.cli.options import parse_duration_ms, parse_size
from holdfast.cli.output import (
    answer_json,
    count_of,
    human_duration,
    human_size,
    human_time,
    printable,
    progress,
    table,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_table_sets_numbers_to_the_right_and_leaves_no_blanks_at_the_end() -> None:
    text = table(["NAME", "SIZE", "NOTE"], [("a", 5, "x"), ("longer", 12345, "")])
    assert text == "NAME     SIZE  NOTE\na           5  x\nlonger  12345"
    assert table(["NAME", "SIZE"], []) == "NAME  SIZE"


def test_no_payload_can_control_a_terminal() -> None:
    assert printable("grüße".encode()) == "grüße"
    assert printable(b"\x1b[2J\n\xff\0") == "\\x1b[2J\\n\\xff\\x00"


def test_json_survives_a_name_that_is_not_utf8(capsys: pytest.CaptureFixture[str]) -> None:
    answer_json({"path": "\udcff"})
    assert capsys.readouterr().out == '{"path": "\\udcff"}\n'


def test_without_a_terminal_there_is_no_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("working") as on_progress:
        on_progress(1, 2)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("unit", "shown"), [("bytes", "1/2 bytes"), ("entries", "1/2")])
def test_a_terminal_sees_progress(unit: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress("working", unit=unit) as on_progress:
        on_progress(1, 2)
    assert "working" in terminal.getvalue()
    assert shown in terminal.getvalue()


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("1b", 1),
        ("1KB", 1024),
        ("1 kib", 1024),
        ("64MB", 2**26),
        ("1.5g", 3 * 2**29),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "ms"), [("200ms", 200), ("0.2s", 200), ("5m", 300_000), ("7d", 7 * 86_400_000)]
)
def test_durations_are_read_as_people_write_them(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "MB", "-1", "1x", "1 MB more", "1e3", "ib"])
def test_an_invalid_size_is_refused_with_examples(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="not a size: write"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "7", "s", "-1s", "1y", "1mb"])
def test_a_duration_needs_its_unit(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="not a duration: write"):
        parse_duration_ms(text)


def test_sizes_times_and_counts_are_printed_briefly() -> None:
    assert [human_size(n) for n in (0, 1023, 1024, 2**20 - 1, 3 * 2**29, 2**52)] == [
        "0 B", "1023 B", "1.0 KiB", "1024.0 KiB", "1.5 GiB", "4096.0 TiB",
    ]  # fmt: skip
    assert human_time(0) == "1970-01-01 00:00:00Z"
    assert human_time(2**64 - 1) == f"{2**64 - 1} ms"
    assert [count_of(n, "entry") for n in (0, 1, 2000)] == ["0 entries", "1 entry", "2,000 entries"]
    assert [count_of(n, "key") for n in (1, 2)] == ["1 key", "2 keys"]
    assert [human_duration(n) for n in (0, 1500, 300_000, 7 * 86_400_000, 2**40)] == [
        "0s", "1500ms", "5m", "1w", f"{2**40}ms",
    ]  # fmt: skip
