import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import HoldfastError
from holdfast.logs.shanghai import ShanghaiGuest, ShanghaiLog


def test_the_bytes_tell_the_format(tmp_path: Path) -> None:
    with holdfast.create_log(tmp_path / "log") as log:
        assert isinstance(log, ShanghaiLog)
        assert log.append([b"an event", b"another"]) == 2
    with holdfast.open_log(tmp_path / "log", read_only=True) as guest:
        assert isinstance(guest, ShanghaiGuest)
        assert guest.read(2) == b"another"
    with holdfast.open_log(f"file://{tmp_path}/log", segment_size_max=1000) as log:
        assert log.last_index == 2


def test_what_is_no_log_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="does not exist; create a log there first"):
        holdfast.open_log(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(HoldfastError, match="holds no log of a known format"):
        holdfast.open_log(tmp_path)
    with pytest.raises(FileExistsError, match=r"not empty: it holds notes\.txt"):
        holdfast.create_log(tmp_path)
    with pytest.raises(ValueError, match="there are shanghai"):
        holdfast.create_log(tmp_path / "new", "nonesuch")
    assert not (tmp_path / "new").exists()
    with pytest.raises(ValueError, match="local directory"):
        holdfast.open_log("s3://bucket/log")


def test_a_log_without_its_segments_is_still_a_log(tmp_path: Path) -> None:
    with holdfast.create_log(tmp_path) as log:
        log.append([b"x"])
    (tmp_path / "segment_00001.wal").unlink()
    with holdfast.open_log(tmp_path, read_only=True) as guest:
        assert isinstance(guest, ShanghaiGuest)
        assert "missing" in guest.damage[0].why


def test_importing_holdfast_is_cheap() -> None:
    code = "import sys, holdfast; print(sorted({'numpy', 'pyarrow', 'typer'} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"
    with pytest.raises(AttributeError, match="nonesuch"):
        holdfast.nonesuch  # noqa: B018
