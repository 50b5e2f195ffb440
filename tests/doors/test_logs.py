import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import ExistsError, NotFoundError, UnsupportedError
from holdfast.logs.shanghai import ShanghaiReader


def test_the_bytes_identify_the_format(tmp_path: Path) -> None:
    for format in ("raft-wal", "shanghai", "file-log"):
        with holdfast.create_log(tmp_path / format, format=format) as log:
            assert log.append([b"an event", b"another"]) == 2
        with holdfast.read_log(tmp_path / format) as guest:
            assert guest.status().format == format
            assert guest.read(2) == b"another"
    with holdfast.create_log(tmp_path / "log") as log:
        assert log.status().format == "raft-wal"
        log.append([b"an event", b"another"])
    with holdfast.open_log(f"file://{tmp_path}/log", segment_size_max=1000) as log:
        assert log.last_index == 2


def test_a_path_without_a_log_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="does not exist; create a log there first"):
        holdfast.open_log(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(NotFoundError, match="holds no log of a known format"):
        holdfast.open_log(tmp_path)
    with pytest.raises(ExistsError, match=r"not empty: it holds notes\.txt"):
        holdfast.create_log(tmp_path)
    with pytest.raises(ValueError, match="expected one of raft-wal"):
        holdfast.create_log(tmp_path / "new", format="nonesuch")
    assert not (tmp_path / "new").exists()
    with pytest.raises(ValueError, match="local directory"):
        holdfast.open_log("s3://bucket/log")


def test_a_log_without_its_segments_is_still_a_log(tmp_path: Path) -> None:
    with holdfast.create_log(tmp_path, format="shanghai") as log:
        log.append([b"x"])
    (tmp_path / "segment_00001.wal").unlink()
    with holdfast.read_log(tmp_path) as guest:
        assert isinstance(guest, ShanghaiReader)
        assert "missing" in guest.damage[0].why


def test_importing_holdfast_is_cheap() -> None:
    code = "import sys, holdfast; print(sorted({'numpy', 'pyarrow', 'typer'} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"
    with pytest.raises(AttributeError, match="nonesuch"):
        holdfast.nonesuch  # noqa: B018


def test_an_option_that_the_format_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="shanghai logs have no option 'capacity'"):
        holdfast.create_log(tmp_path / "log", format="shanghai", capacity=8)
    assert not (tmp_path / "log").exists()
    holdfast.create_log(tmp_path / "log", format="raft-wal").close()
    with pytest.raises(TypeError, match="raft-wal logs have no option 'nonesuch'"):
        holdfast.open_log(tmp_path / "log", nonesuch=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="nonesuch"):
        holdfast.read_log(tmp_path / "log", nonesuch=1)  # type: ignore[call-arg]


def test_open_creates_only_where_it_is_asked_to(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        holdfast.open_log(tmp_path / "log")
    assert not (tmp_path / "log").exists()
    for _ in range(2):
        with holdfast.open_log(tmp_path / "log", create=True) as log:
            log.append([b"x"])
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").write_text("hello")
    with pytest.raises(NotFoundError):
        holdfast.open_log(tmp_path / "notes", create=True)


def test_open_creates_the_format_that_it_is_asked_for_and_refuses_another(tmp_path: Path) -> None:
    for number in (1, 2):
        with holdfast.open_log(tmp_path / "log", create=True, format="shanghai") as log:
            assert log.append([b"x"]) == number
            assert log.status().format == "shanghai"
    with pytest.raises(ExistsError, match="holds a shanghai log, not file-log; omit `format`"):
        holdfast.open_log(tmp_path / "log", create=True, format="file-log")
    with pytest.raises(ValueError, match="expected one of raft-wal"):
        holdfast.open_log(tmp_path / "log", format="nonesuch")
    with holdfast.read_log(tmp_path / "log") as log:
        assert log.last_index == 2


def test_a_log_in_a_subdirectory_is_named(tmp_path: Path) -> None:
    holdfast.create_log(tmp_path / "orders" / "wal", format="raft-wal").close()
    for act in (holdfast.open_log, holdfast.read_log):
        with pytest.raises(NotFoundError, match=r"orders has no log; .*orders/wal has one \(raft-"):
            act(tmp_path / "orders")


def test_a_raft_boltdb_store_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "raft.db").write_bytes(b"bolt")
    with pytest.raises(UnsupportedError, match="raft-boltdb"):
        holdfast.read_log(tmp_path)


def test_files_of_two_formats_are_refused(tmp_path: Path) -> None:
    """Neither may count as the damage of the other: repair would set sound segments aside."""
    holdfast.create_log(tmp_path / "log", format="shanghai").close()
    holdfast.create_log(tmp_path / "other").close()
    for file in (tmp_path / "other").glob("*.wal"):
        file.rename(tmp_path / "log" / file.name)
    for call in (holdfast.open_log, holdfast.read_log):
        with pytest.raises(UnsupportedError, match="raft-wal and shanghai"):
            call(tmp_path / "log")
