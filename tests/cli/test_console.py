import pytest

from holdfast.cli.console import answer_json, printable, progress, table


def test_a_table_sets_numbers_to_the_right_and_leaves_no_blanks_at_the_end() -> None:
    text = table(["NAME", "SIZE", "NOTE"], [("a", 5, "x"), ("longer", 12345, "")])
    assert text == "NAME     SIZE  NOTE\na           5  x\nlonger  12345"
    assert table(["NAME", "SIZE"], []) == "NAME  SIZE"


def test_no_payload_can_command_a_terminal() -> None:
    assert printable("grüße".encode()) == "grüße"
    assert printable(b"\x1b[2J\n\xff\0") == "\\x1b[2J\\n\\xff\\x00"


def test_json_survives_a_name_that_is_no_utf8(capsys: pytest.CaptureFixture[str]) -> None:
    answer_json({"path": "\udcff"}, line=True)
    assert capsys.readouterr().out == '{"path": "\\udcff"}\n'


def test_nobody_watching_means_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("working") as on_progress:
        on_progress(1, 2)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_sees_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    for unit in ("bytes", "entries"):
        with progress("working", unit=unit) as on_progress:
            on_progress(1, 2)
