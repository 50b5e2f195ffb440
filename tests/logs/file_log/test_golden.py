"""Directories that zmq-raft itself wrote: we read what it reads, and write the bytes it writes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.logs.file_log.conftest import (
    FROZEN,
    Copy,
    Manifest,
    entry,
    golden_names,
    open_golden,
    payload,
)

from holdfast.disk import OsDisk
from holdfast.errors import CorruptError
from holdfast.formats import rlog
from holdfast.formats.token_file import Meta
from holdfast.logs.file_log import FileEntry, FileLog, FileLogReader, StateFile
from holdfast.logs.file_log.directory import UNTOUCHED
from holdfast.logs.file_log.history import Stamps, write_snapshot
from holdfast.logs.file_log.state import redo_name
from holdfast.logs.mark import MARK
from holdfast.logs.retention import Retention
from holdfast.reserve import RESERVE

ManifestOf = Callable[[str], Manifest]
LOGS = [name for name in golden_names() if not name.startswith("f")]
BIG = "c3_roll_default"
REFUSED = {
    "h11_snapshot_wrong_size",
    "h4_crash_zero_length_file",
    "h6_offset_without_data",
    "h7_offset_without_data_header",
    "h8_offsets_not_increasing",
}
# Those whose files are what the operations alone make of them.
REPLAYED = [name for name in LOGS if name[0] != "h" and name not in (BIG, "e7_snapshot_stream")] + [
    "h3_crash_empty_last_file"
]


def files_of(path: Path) -> dict[str, bytes]:
    ours = {"LOCK", RESERVE, redo_name("raft.pers"), MARK, UNTOUCHED}
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name not in ours
    }


@pytest.mark.parametrize("name", [name for name in LOGS if name not in {*REFUSED, BIG}])
def test_reads_what_the_library_reads(golden: Path, manifest: ManifestOf, name: str) -> None:
    path, wanted = golden / name / "raft", manifest(name)["readOnlyOpen"]
    before = files_of(path)
    with FileLogReader(OsDisk(path)) as guest:
        assert guest.damage == ()
        assert (guest.first_index, guest.last_index, guest.last_term) == (
            wanted["firstIndex"],
            wanted["lastIndex"],
            wanted["lastTerm"],
        )
        snapshot = wanted["snapshot"]
        head = guest.snapshot
        assert (head.index, head.term, head.data_size, head.data_start) == (
            snapshot["logIndex"],
            snapshot["logTerm"],
            snapshot["dataSize"],
            snapshot["dataOffset"],
        )
        assert head.meta == Meta(snapshot["meta"]["created"], snapshot["meta"]["hostname"])
        assert guest.read_snapshot().hex() == snapshot.get("dataHex", "")
        assert [segment.name for segment in guest.segments()] == [
            file["path"] for file in wanted["indexFiles"]
        ]
        for row in wanted["entries"]:
            found = guest.get_entry(row["index"])
            assert (found.term, found.type, found.request_id.hex(), bytes(found.data).hex()) == (
                row["term"],
                row["type"],
                row["requestId"],
                row["dataHex"],
            )
        rows = [row for batch in guest.scan() for row in batch.to_pylist()]
        assert [row["payload"].hex() for row in rows] == [e["dataHex"] for e in wanted["entries"]]
        assert [guest.check(segment.name) for segment in guest.segments()] == [None] * len(
            guest.segments()
        )
    assert files_of(path) == before


@pytest.mark.parametrize("name", REPLAYED)
def test_the_same_operations_give_the_same_bytes(
    golden: Path, manifest: ManifestOf, tmp_path: Path, name: str
) -> None:
    Replay(tmp_path).run(manifest(name)["ops"])
    assert files_of(tmp_path) == files_of(golden / name / "raft")


class Replay:
    """Repeat the operations of a manifest."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log: FileLog

    def run(self, operations: list[dict[str, Any]]) -> None:
        for operation in operations:
            getattr(self, operation.pop("op"))(**operation)

    def open(self, capacity: int = rlog.CAPACITY_DEFAULT) -> None:
        self.log = open_golden(self.path, capacity=capacity)

    def close(self) -> None:
        self.log.close()

    def entries(self, entries: list[dict[str, Any]], index: int | None = None) -> None:
        self.log.append_entries([entry_of(**each) for each in entries], index)

    def entry(self, **fields: Any) -> None:
        self.log.append_entries([entry_of(**fields)])

    def checkpoint(self, term: int) -> None:
        self.log.append_checkpoint(term)

    def truncate(self, index: int) -> None:
        self.log.truncate_tail(index - 1)

    def snapshot(self, index: int, term: int, dataHex: str, compactOnly: bool) -> None:  # noqa: N803
        data = bytes.fromhex(dataHex)
        self.log.install_snapshot(index, term, data, compact_only=compactOnly)

    def patch(self, file: str, offset: int, hex: str) -> None:
        with (self.path / file).open("r+b") as patched:
            patched.seek(offset)
            patched.write(bytes.fromhex(hex))
        (self.path / UNTOUCHED).unlink(missing_ok=True)  # as the original did it

    def unlink(self, files: list[int]) -> None:
        with open_golden(self.path) as log:
            done = log.trim(Retention(before=log.first_index))
        assert [int(segment.id, 16) for segment in done.removed] == files

    def createEmptyIndexFile(self, index: int, capacity: int) -> None:  # noqa: N802
        header = rlog.Header(index, rlog.capacity_for(index, capacity))
        file = rlog.encode_file(header, Stamps(FROZEN).meta())
        (self.path / "log" / rlog.path_of(index)).write_bytes(file)


def entry_of(requestId: str, type: int, term: int, dataHex: str) -> FileEntry:  # noqa: N803
    return FileEntry(term, bytes.fromhex(dataHex), type, bytes.fromhex(requestId))


def test_files_of_the_default_capacity(golden: Path, tmp_path: Path) -> None:
    """Three files, 32778 entries: one batch spans all of them."""
    with open_golden(tmp_path) as log:
        log.append_entries([entry(index, 1) for index in range(1, 100)])
        log.append_entries([entry(index, 1) for index in range(100, 32_779)])
    assert files_of(tmp_path) == files_of(golden / BIG / "raft")
    with FileLogReader(OsDisk(golden / BIG / "raft")) as guest:
        found = [row for batch in guest.scan() for row in batch["payload"].to_pylist()]
    assert found == [payload(f"e{index}", 1) for index in range(1, 32_779)]


def test_a_snapshot_from_a_stream(golden: Path, manifest: ManifestOf, tmp_path: Path) -> None:
    name = "e7_snapshot_stream"
    wanted = manifest(name)["readOnlyOpen"]["snapshot"]
    data = bytes.fromhex(wanted["dataHex"])
    pieces = (data[at : at + 1000] for at in range(0, len(data), 1000))
    disk, stamps = OsDisk(tmp_path), Stamps(FROZEN)
    disk.rename(write_snapshot(disk, wanted["logIndex"], wanted["logTerm"], pieces, stamps), "snap")
    Replay(tmp_path).run(manifest(name)["ops"])
    assert files_of(tmp_path) == files_of(golden / name / "raft")


@pytest.mark.parametrize("name", ["h3_crash_empty_last_file", "h9_tmp_leftovers"])
def test_an_owner_leaves_the_same_files(copy_of: Copy, manifest: ManifestOf, name: str) -> None:
    path, wanted = copy_of(name), manifest(name)["afterWritableOpen"]
    open_golden(path).close()
    assert list(files_of(path)) == wanted["filesAfter"]
    with open_golden(path) as log:
        assert (log.first_index, log.last_index) == (wanted["firstIndex"], wanted["lastIndex"])
        assert log.append([b"on"]) == wanted["lastIndex"] + 1


@pytest.mark.parametrize(
    ("name", "last", "cut"),
    [
        ("h4_crash_zero_length_file", 7, 0),
        ("h6_offset_without_data", 4, 2),
        ("h7_offset_without_data_header", 4, 2),
    ],
)
def test_what_the_original_refuses_after_a_crash_is_recovered(
    copy_of: Copy, name: str, last: int, cut: int
) -> None:
    path = copy_of(name)
    with FileLogReader(OsDisk(path)) as guest:
        assert (guest.last_index, guest.damage) == (last, ())
        broken = [s.name for s in guest.segments() if (d := guest.check(s.name)) and d.torn]
        assert len(broken) == (name[1] != "4")
    with open_golden(path) as log:
        assert len(log.recovered) == 1
        assert log.append_entries([entry(last + 1)]) == last + 1
        found = [bytes(log.get_entry(index).data) for index in range(1, last + 2)]
        assert found == [payload(f"e{index}", 16) for index in range(1, last + 2)]
    assert len(list(path.glob("*.cut"))) == cut


def test_offsets_that_do_not_increase_are_damage(copy_of: Copy) -> None:
    path = copy_of("h8_offsets_not_increasing")
    with open_golden(path) as log:
        assert "do not increase" in log.damage[0].why
        assert log.read(1) == payload("e1", 16)
        with pytest.raises(CorruptError):
            log.read(log.damage[0].first_index)
        with pytest.raises(CorruptError, match="read-only until it is repaired"):
            log.append([b"no"])


def test_a_snapshot_of_another_size_is_damage(copy_of: Copy) -> None:
    path = copy_of("h11_snapshot_wrong_size")
    with open_golden(path) as log:
        assert (log.damage[0].file, log.damage[0].why) == ("snap", "19 bytes of data, not 20")
        assert (log.first_index, log.last_index) == (1, 10)
        assert log.read(3) == payload("e3", 16)
        with pytest.raises(CorruptError):
            log.append([b"no"])


# The state file

RAFT: dict[str, Any] = {
    "currentTerm": 0,
    "votedFor": None,
    "peers": [],
    "peersUpdateRequest": None,
    "peersIndex": None,
}


def open_state(path: Path, **options: Any) -> StateFile:
    return StateFile(OsDisk(path), runtime=FROZEN, **options)


@pytest.mark.parametrize("name", [name for name in golden_names() if name.startswith("f")])
def test_reads_the_state_that_the_library_reads(
    copy_of: Copy, manifest: ManifestOf, name: str
) -> None:
    path, wanted = copy_of(name), manifest(name)
    defaults = wanted.get("defaults") or {**RAFT, "peers": wanted.get("initPeers", [])}
    before = files_of(path)
    with open_state(path, defaults=defaults) as state:
        if "error" in wanted["state"]:  # zeros after the last record: here they are torn
            assert state["currentTerm"] == 10
        else:
            assert state.values == wanted["state"]["state"]
        assert state.will_roll == wanted["state"].get("willRotateOnNextUpdate", True)
        assert files_of(path) == before
        torn = state.will_roll
        state.update({})
    kept = [file for file in files_of(path) if file.startswith("raft.pers-")]
    assert len(kept) == len([f for f in before if f.startswith("raft.pers-")]) + torn


def test_the_same_updates_give_the_same_state_file(
    golden: Path, manifest: ManifestOf, tmp_path: Path
) -> None:
    row = manifest("f_state")
    with open_state(tmp_path, defaults={**RAFT, "peers": row["initPeers"]}) as state:
        for operation in row["ops"]:
            state.update(operation["update"])
    assert files_of(tmp_path) == files_of(golden / "f_state/raft")


def test_a_state_file_of_other_properties(golden: Path, tmp_path: Path) -> None:
    with open_state(tmp_path, defaults={"lastApplied": 0}) as state:
        for number in range(1, 301):
            state.update({"lastApplied": number})
    assert files_of(tmp_path) == files_of(golden / "f7_state_generic/raft")


def test_a_state_file_is_rolled_where_the_library_rolls_it(
    golden: Path, manifest: ManifestOf, tmp_path: Path
) -> None:
    """Update k: term k, and a vote of 500 letters; the one that rolls, and two more."""
    count = manifest("f2_state_rolled")["updatesBeforeAndIncludingRoll"]
    with open_state(tmp_path) as state:
        for number in range(1, count + 1):
            vote = payload(f"v{number}", 250).hex()
            assert state.will_roll == (number == count)
            state.update({"currentTerm": number, "votedFor": vote})
        state.update({"currentTerm": count + 1})
        state.update({"votedFor": None})
    assert files_of(tmp_path) == files_of(golden / "f2_state_rolled/raft")
