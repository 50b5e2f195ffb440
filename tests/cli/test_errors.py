import json

import pytest

from holdfast import errors
from holdfast.cli.errors import EXPECTED, AbsentError, report


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (errors.CorruptError("a.wal", 3, "bad"), 2, "corrupt"),
        (errors.FencedError("epoch 1 < 2"), 4, "fenced"),
        (errors.DiskFullError(28, "no space", "f"), 1, "disk_full"),
        (errors.OutOfRangeError("entry 3"), 1, "out_of_range"),
        (errors.LockedError("owned by process 1"), 1, "locked"),
        (PermissionError(13, "Permission denied", "f"), 1, "permission"),
        (OSError(5, "Input/output error", "f"), 1, "system"),
        (ValueError("two\nlines"), 1, "usage"),
        (AbsentError("no key a"), 1, "absent"),
    ],
)
def test_every_error_is_one_line_and_has_its_exit_code(
    error: Exception, code: int, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(error, as_json=False) == code
    assert report(error, as_json=True) == code
    line, document = capsys.readouterr().err.splitlines()
    assert line.startswith("holdfast: ")
    assert json.loads(document) == {"error": kind, "message": line.removeprefix("holdfast: ")}


def test_every_error_of_the_library_is_expected() -> None:
    for value in vars(errors).values():
        if isinstance(value, type):
            assert issubclass(value, EXPECTED)


def test_advice_is_about_the_noun(capsys: pytest.CaptureFixture[str]) -> None:
    error = errors.CorruptError("levels/1.sst", 3, "bad")
    assert report(error, as_json=False, noun="kv") == 2
    assert "`holdfast kv verify`" in capsys.readouterr().err
    assert report(error, as_json=False, noun="copy") == 2
    assert "`holdfast log verify`, `kv verify` or `bars verify`" in capsys.readouterr().err
