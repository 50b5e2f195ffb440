import errno
from pathlib import Path

import pytest

from holdfast.spark.jobs.making import made_whole


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir())


def test_the_target_appears_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "new" / "target"
    with made_whole(str(target), "convert") as making:
        Path(making, "inside").mkdir(parents=True)
        Path(making, "inside", "file").write_bytes(b"all")
        assert Path(making).parent == target.parent
        assert [name[0] for name in names(target.parent)] == ["."]
    assert names(target.parent) == ["target"]
    assert (target / "inside" / "file").read_bytes() == b"all"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_is_not_whole_is_removed(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), made_whole(str(tmp_path / "target"), "convert") as making:
        Path(making).mkdir()
        Path(making, "half").write_bytes(b"ha")
        raise error
    assert not names(tmp_path)


def test_a_target_that_cannot_be_created_fails_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "loop").symlink_to("loop")
    wrong: dict[str, tuple[type[OSError], str]] = {
        "file": (FileExistsError, "exists: copy into a new directory, or remove it first"),
        "loop": (FileExistsError, "loop exists"),
        "file/target": (NotADirectoryError, "Not a directory"),
        "loop/target": (OSError, "Too many levels of symbolic links"),
    }
    for name, (kind, why) in wrong.items():
        with pytest.raises(kind, match=why), made_whole(str(tmp_path / name), "copy"):
            pytest.fail("it was not to begin")
    assert names(tmp_path) == ["file", "loop"]


def test_the_system_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only directory; root may write to any, so the system is played."""

    def refuse(*args: object, **options: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", "hidden")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with (
        pytest.raises(OSError, match="Read-only") as raised,
        made_whole(str(tmp_path / "a"), "copy"),
    ):
        pytest.fail("it was not to begin")
    assert raised.value.filename == str(tmp_path)
