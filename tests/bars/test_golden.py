"""Roots of the real server: read alike, written alike, and replayed as the design wants it."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from tests.bars.conftest import Golden

from holdfast.bars.times import as_ns
from holdfast.doors import open_bars, read_bars
from holdfast.formats.bar_time import parse_timeframe

LOG = "WALFile.1000000000000000000.walfile"
YEAR_FILE = "AAPL/1Min/OHLCV/2021.bin"
BASE, FIRST, SECOND = [0], [600, 660], [1200, 1260]
START = 1_609_459_200  # 2021
# Where the design wants something else than the program does: rows, in seconds of 2021, and
# whether damage is reported.  For what the program does there see docs/formats/market_wal.md.
DIFFERENT: dict[str, tuple[list[int], bool]] = {
    "status_1_2": (BASE + FIRST + SECOND, False),  # lost
    "status_0_0": (BASE + FIRST + SECOND, False),  # lost
    "owner_zero": (BASE + FIRST + SECOND, False),  # refused
    "no_final_TI": (BASE + FIRST, False),  # replayed, though never committed
    "torn_in_final_TI": (BASE + FIRST, False),  # the same
    "torn_then_zero_fill": (BASE + FIRST, False),  # refused
    "bad_md5_first": (BASE + SECOND, True),  # lost without a word
    "bad_md5_both": (BASE, True),
    "tglen_negative": (BASE + SECOND, True),  # refused
    "tglen_insane": (BASE + SECOND, True),  # refused
    "duplicate_TG": (BASE + FIRST + SECOND, False),  # lost
    "path_escape": (BASE, True),
}
MISSING = [-31_621_800, -31_621_740, -31_621_200, -31_621_140]  # of yearfile_missing: in 2020


CASES = [
    *("clean_1_1", "status_1_2", "status_1_3", "status_2_1", "status_2_2", "status_2_3"),
    *("status_0_0", "owner_zero", "torn_after_TI_prepare", "torn_MID_only", "torn_in_TGLen"),
    *("torn_after_TGLen", "torn_in_TGID", "torn_in_WTSet", "torn_before_checksum"),
    *("torn_in_checksum", "no_final_TI", "torn_in_final_TI", "torn_first_TG"),
    *("torn_then_zero_fill", "bad_md5_first", "bad_md5_both", "bad_md5_second"),
    *("tglen_negative", "tglen_insane", "garbage_between", "duplicate_TG", "yearfile_missing"),
    *("ckpt_first_only", "ckpt_second", "ckpt_prepare_only", "ckpt_unknown_tgid"),
    *("ckpt_before_TG2", "ckpt_intended", "TI_bad_dest", "TI_bad_status", "empty", "ten_bytes"),
    *("status_only", "second_status_msg", "tgid_order", "same_bar_twice_in_TG"),
    *("hand_made_min", "ckpt_then_lower_tgid", "path_escape"),
]


def seconds(table: pa.Table) -> list[int]:
    return [int(t) // 10**9 - START for t in table["time"].cast(pa.int64()).to_numpy()]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", CASES)
def test_a_log_is_replayed_as_the_design_wants_it(
    name: str, golden: Golden, tmp_path: Path
) -> None:
    known = golden.manifest("wal_replay_cases")["cases"]
    assert [one["case"] for one in known] == CASES
    case: dict[str, Any] = known[CASES.index(name)]
    root = golden.root("wal_replay_cases", tmp_path)
    log = (golden.path / "wal_replay_cases" / case["wal"]).read_bytes()
    (root / LOG).write_bytes(log)
    outside = {path for path in tmp_path.rglob("*") if root not in path.parents}
    with read_bars(root) as guest:
        before = guest.query("AAPL", "1Min", "OHLCV")
    with open_bars(root, create=True) as store:
        after = store.query("AAPL", "1Min", "OHLCV")
        damage = store.damage
    assert before == after, "a guest sees what the owner will"
    if name in DIFFERENT:
        assert (seconds(after), bool(damage)) == DIFFERENT[name]
    elif name == "yearfile_missing":
        assert (seconds(after), damage) == (MISSING + BASE, ())
    else:
        assert (seconds(after), damage) == ([row[0] - START for row in case["rows"]], ())
        assert sha256(root / YEAR_FILE) == case["yearfile_sha256"]
    if damage:
        assert (root / LOG).read_bytes() == log, "nothing is changed on a guess"
    else:
        assert not (root / LOG).exists()
        kept = b"".join(path.read_bytes() for path in root.glob("*.cut"))
        assert log.endswith(kept.rstrip(b"\0")) or kept.rstrip(b"\0") in log
    assert {path for path in tmp_path.rglob("*") if root not in path.parents} == outside


def test_a_damaged_log_is_salvaged_on_request(golden: Golden, tmp_path: Path) -> None:
    root = golden.root("wal_replay_cases", tmp_path)
    log = (golden.path / "wal_replay_cases/wals/bad_md5_first.walfile").read_bytes()
    (root / LOG).write_bytes(log)
    with open_bars(root, create=True, salvage=True) as store:
        assert store.damage == ()
        assert any("checksum" in line for line in store.recovered)
        assert seconds(store.query("AAPL", "1Min", "OHLCV")) == BASE + SECOND
    assert [path.read_bytes() for path in root.glob("*.cut")] == [log]


def test_a_group_is_replayed_to_the_bytes_of_the_program(golden: Golden, tmp_path: Path) -> None:
    root = golden.root("wal_unreplayed_fixed", tmp_path)
    manifest = golden.manifest("wal_unreplayed_fixed")
    assert any(sha256(root / path) != known for path, known in manifest["files_after"].items())
    with open_bars(root, create=True) as store:
        for query in manifest["queries"]:
            check_query(store.query, query, golden, "wal_unreplayed_fixed")
    for path, known in manifest["files_after"].items():
        assert sha256(root / path) == known


def test_ticks_are_not_doubled(golden: Golden, tmp_path: Path) -> None:
    name = "wal_replay_variable_duplicates"
    root = golden.root(name, tmp_path)
    before, after = golden.manifest(name)["queries"]
    with open_bars(root, create=True) as store:
        assert len(store.query("AAPL", "1Min", "TICK")) == 6
        check_query(store.query, before, golden, name)
    doubled = golden.root(name, tmp_path, "after")
    with open_bars(doubled, create=True) as store:  # what is there twice is there twice
        assert len(store.query("AAPL", "1Min", "TICK")) == 10
        check_query(store.query, after, golden, name)


def as_array(table: pa.Table, like: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    times = table["time"].cast(pa.int64()).to_numpy()
    found = np.empty(len(table), like.dtype)
    for name in like.dtype.names or ():
        if name == "Epoch":
            found[name] = times // 10**9
        elif name == "Nanoseconds":
            found[name] = times % 10**9
        else:
            found[name] = table[name.removesuffix("_SUM")].to_numpy()
    return found


def check_query(query: Any, known: dict[str, Any], golden: Golden, case: str) -> None:
    params = dict(known["params"])
    if params.pop("functions", None):
        step = "1H" if "1H" in known["params"]["functions"][0] else "5Min"
        params["resample"] = step
    if params.get("columns") == ["Nope"]:
        with pytest.raises(ValueError, match="Nope"):
            query(known["symbols"], known["timeframe"], known["attributes"], **params)
        return
    if params.pop("limit_from_start", False):
        params["take"] = "first"
    # The program includes the end, and a bar whose interval holds the start.
    timeframe_ns = parse_timeframe(known["timeframe"])
    if "start" in params and "tick" not in case:
        params["start"] = as_ns(params["start"], 0) // timeframe_ns * timeframe_ns
    if "end" in params:
        params["stop"] = as_ns(params.pop("end"), 0) + 1
    table = query(known["symbols"], known["timeframe"], known["attributes"], **params)
    for key, answer in known["result"].items():
        wanted = golden.array(case, answer["npy"])
        symbol = key.split("/")[0]
        own = table.filter(pa.compute.equal(table["symbol"].cast(pa.string()), symbol))
        found = as_array(own, wanted)
        if "Nanoseconds" in (wanted.dtype.names or ()):
            found, wanted = without_late_seconds(found, wanted)
        for name in wanted.dtype.names or ():
            np.testing.assert_array_equal(found[name], wanted[name], f"{known} {name}")


def without_late_seconds(
    found: npt.NDArray[np.void], wanted: npt.NDArray[np.void]
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
    """Near a whole second the program is a second late; a whole second stays one here."""
    late = wanted["Epoch"] - found["Epoch"]
    assert set(late.tolist()) <= {-1, 0, 1}
    assert (wanted["Nanoseconds"][late != 0] > 999_999_900).all()
    assert (found["Nanoseconds"][late == -1] == 0).all()
    off = (wanted["Nanoseconds"] - found["Nanoseconds"])[late == 0]
    near = (wanted["Nanoseconds"] > 999_999_900)[late == 0]
    assert (abs(off)[~near] <= 1).all()
    names = [name for name in wanted.dtype.names or () if name not in ("Epoch", "Nanoseconds")]
    return found[names], wanted[names]


@pytest.mark.parametrize(
    "case", ["fixed_ohlcv_1min", "variable_ticks_1min", "variable_ticks_1min_nocompress"]
)
def test_queries_are_answered_as_the_program_answers_them(
    case: str, golden: Golden, tmp_path: Path
) -> None:
    root = golden.root(case, tmp_path)
    manifest = golden.manifest(case)
    with read_bars(root) as guest:
        count = 0
        for query in manifest["queries"]:
            if query["timeframe"] == "3Min" or "trimmed" in query.get("note", ""):
                continue  # there the program answers something else than what was asked
            check_query(guest.query, query, golden, case)
            count += 1
        assert count >= 11


@pytest.mark.parametrize(
    "case", ["fixed_ohlcv_1min", "variable_ticks_1min", "variable_ticks_1min_nocompress"]
)
def test_the_same_writes_make_the_same_files(case: str, golden: Golden, tmp_path: Path) -> None:
    manifest = golden.manifest(case)
    is_fixed = case.startswith("fixed")
    with open_bars(
        tmp_path / "root", create=True, compress_ticks=not case.endswith("nocompress")
    ) as store:
        for number, write in enumerate(manifest["writes"]):
            symbol, timeframe, attributes = write["tbk"].split("/")
            array, is_variable = golden.array(case, write["npy"]), write["is_variable_length"]
            store.write(array, timeframe, attributes, symbol=symbol, is_variable=is_variable)
            if not is_fixed or number % 9 == 0:
                store.flush()
    alike = [sha256(tmp_path / "root" / path) == known for path, known in manifest["files"].items()]
    # One write brings an interval twice, and the program writes it twice.
    assert alike.count(False) == (0 if is_fixed else 1)
    categories = {path.relative_to(tmp_path / "root") for path in tmp_path.rglob("category_name")}
    assert len(categories) == (4 if is_fixed else 10)
