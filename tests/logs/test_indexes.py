"""One rule for large indexes: right everywhere, or refused before anything is written."""

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast
from holdfast.disk import OsDisk
from holdfast.doors.logs import plan_repair
from holdfast.errors import UnsupportedError
from holdfast.formats import raft_wal as fmt
from holdfast.formats.raft_entry import RaftEntry, encode_entry
from holdfast.formats.raft_meta import SegmentMeta, State
from holdfast.logs.log import FIRST_INDEX_MAX, INDEX_MAX
from holdfast.logs.raft_wal import RAFT_CODEC, RaftWal
from holdfast.logs.raft_wal.directory import name_of
from holdfast.logs.raft_wal.meta_store import MetaStore

FORMATS = ["raft-wal", "shanghai", "file-log"]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("index", [0, -1, 2**62 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64])
def test_a_log_cannot_start_at_such_an_index(tmp_path: Path, format: str, index: int) -> None:
    with pytest.raises(ValueError, match=rf"first_index .*{index}; expected 1 to"):
        holdfast.create_log(tmp_path / "log", format=format, first_index=index)
    holdfast.create_log(tmp_path / "log", format=format).close()  # nothing was left


@pytest.mark.parametrize("format", ["raft-wal", "shanghai"])
def test_a_large_index_is_right_everywhere(tmp_path: Path, format: str) -> None:
    first = FIRST_INDEX_MAX
    with holdfast.create_log(tmp_path / "log", format=format, first_index=first) as log:
        assert log.append([b"one", b"two"]) == first + 1
        log.rotate()
        log.append([b"three"])
    with holdfast.read_log(tmp_path / "log") as log:
        assert (log.first_index, log.last_index) == (first, first + 2)
        table = pa.table(log)
        assert table["index"].to_pylist() == [first, first + 1, first + 2]
        assert log.read(first + 2) == b"three"
        assert log.verify().verdict == "clean"


@pytest.mark.parametrize("index", [INDEX_MAX + 1, 2**64 - 1])
def test_raft_entries_of_such_an_index_are_refused(tmp_path: Path, index: int) -> None:
    with RaftWal(OsDisk(tmp_path), codec=RAFT_CODEC) as wal:
        with pytest.raises(ValueError, match=f"entry {index}: the last index is {INDEX_MAX}"):
            wal.store_logs([RaftEntry(index)])
        with pytest.raises(ValueError, match=f"entry {index}: the last index is {INDEX_MAX}"):
            wal.append([encode_entry(RaftEntry(index))])
        with pytest.raises(ValueError, match=f"may start at 1 to {FIRST_INDEX_MAX}"):
            wal.store_logs([RaftEntry(FIRST_INDEX_MAX + 1)])
        wal.store_logs([RaftEntry(FIRST_INDEX_MAX)])
        assert wal.last_index == FIRST_INDEX_MAX


@pytest.mark.parametrize("index", [INDEX_MAX + 1, 2**64 - 10])
def test_a_log_of_another_program_with_such_an_index_is_refused(tmp_path: Path, index: int) -> None:
    meta = SegmentMeta(0, index, index, size_limit=4096)
    with MetaStore(OsDisk(tmp_path)) as store:
        store.commit(State(1, (meta,)))
    header = fmt.encode_header(fmt.Header(index, 0, RAFT_CODEC))
    batch = fmt.encode_batch(
        [encode_entry(RaftEntry(index))], offset=0, header=header, size_limit=4096
    )
    (tmp_path / name_of(meta)).write_bytes(batch.data.ljust(4096, b"\0"))
    for opened in (holdfast.open_log, holdfast.read_log, plan_repair):
        with pytest.raises(UnsupportedError, match=f"index {index}; at most {INDEX_MAX}"):
            opened(tmp_path)


# Links


@pytest.mark.parametrize("format", FORMATS)
def test_a_link_in_place_of_a_file_is_one_clear_error(tmp_path: Path, format: str) -> None:
    path = tmp_path / "log"
    with holdfast.create_log(path, format=format) as log:
        log.append([b"one"])
        segment = log.segments()[-1].name
    files = [path / segment, *path.glob("wal-meta.db"), *path.glob("*.mark"), *path.glob("*.pers")]
    for file in files:
        moved = file.rename(tmp_path / "moved")
        file.symlink_to(moved)
        for opened in (holdfast.open_log, holdfast.read_log):
            with pytest.raises(OSError, match=rf"a symbolic link; put the file .*{file.name}"):
                opened(path).close()
        file.unlink()
        moved.rename(file)
    with holdfast.open_log(path) as log:
        assert log.append([b"two"]) == 2


# Threads


@pytest.mark.parametrize(
    ("format", "codec"), [*((format, None) for format in FORMATS), ("raft-wal", RAFT_CODEC)]
)
def test_threads_that_append_first_agree_about_the_codec(
    tmp_path: Path, format: str, codec: int | None
) -> None:
    options: dict[str, Any] = {} if codec is None else {"codec": codec}
    plain = [b"plain", encode_entry(RaftEntry(1, data=b"like a Raft entry"))]
    for turn in range(10):
        log = holdfast.create_log(tmp_path / f"log{turn}", format=format, **options)
        barrier, errors = threading.Barrier(8), list[BaseException]()

        def append(
            number: int, log: holdfast.Log = log, barrier: threading.Barrier = barrier
        ) -> None:
            payload = plain[number % 2] if codec is None else plain[1]
            barrier.wait()
            try:
                log.append([payload])
            except ValueError as error:
                errors.append(error)  # noqa: B023

        threads = [threading.Thread(target=append, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if codec is None:
            assert (errors, log.last_index) == ([], 8)
        else:  # one of them is entry 1; the others are not, and are refused for that alone
            assert log.last_index == 1
            assert all("non-monotonic" in str(error) for error in errors)
        log.close()
