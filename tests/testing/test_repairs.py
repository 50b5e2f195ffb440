"""The trials of repairs catch bugs: in plans, in what is applied, and in what verify reports."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from holdfast.disk import Disk
from holdfast.errors import HoldfastError
from holdfast.logs import repair as shared
from holdfast.logs import verify
from holdfast.logs.mark import Recalled, read_mark
from holdfast.logs.shanghai import placing, recovery, repair
from holdfast.testing.explorer import BrokenPromiseError
from holdfast.testing.harmed_files import WAYS, Harmed
from holdfast.testing.repairs import Repairs

TRIALS_MAX = 200


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.getLogger("holdfast").disabled = True
    yield
    logging.getLogger("holdfast").disabled = False


def changed(patch: pytest.MonkeyPatch, module: Any, name: str, change: Callable[..., Any]) -> None:
    """Let a function return something else."""
    original = getattr(module, name)
    patch.setattr(module, name, lambda *args, **kwargs: change(original(*args, **kwargs)))


def a_loss_is_not_listed(patch: pytest.MonkeyPatch) -> None:
    changed(patch, repair, "less_kept", lambda lost: lost[1:])


def a_loss_is_too_short(patch: pytest.MonkeyPatch) -> None:
    changed(patch, repair, "_had", lambda had: (had[0], had[1] - 1))


def an_entry_of_the_end_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def shorter(pieces: Any) -> Any:
        for piece in pieces[0][:1]:
            piece.count = max(0, piece.count - 1)
        return pieces

    changed(patch, repair, "_sealed_pieces", shorter)


def the_other_side_is_kept(patch: pytest.MonkeyPatch) -> None:
    original = repair._run
    patch.setattr(repair, "_run", lambda pieces, keep: original(pieces, "before"))


def cut_bytes_are_not_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(repair, "keep_aside", lambda disk, name, offset, data: "")


def files_are_removed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(repair, "set_aside", lambda disk, name: disk.remove(name))


def the_mark_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(repair, "drop_mark", lambda disk, format, first: None)


def damaged_entries_are_not_planned(patch: pytest.MonkeyPatch) -> None:
    changed(patch, repair, "_sealed_pieces", lambda found: (found[0], None))


def side_files_are_not_planned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shared, "damaged_side_files", lambda disk, last_index: ())


def side_files_are_not_verified(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(verify, "damaged_side_files", lambda disk: ())


def side_files_are_left_where_they_are(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shared, "set_aside", lambda disk, name: None)


def the_mark_is_not_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "recall", lambda disk, read=read_mark: Recalled(read(disk), None))


def a_neighbour_is_enough(patch: pytest.MonkeyPatch) -> None:
    """A segment belongs where the one before it ends, whatever it contains."""
    original = placing._Placing._judge

    def judge(self: placing._Placing, at: int) -> Any:
        before = self._places[at - 1] if self._is_adjacent(at) else None
        found = original(self, at)
        return replace(found, start=before.stop) if found and before else found

    patch.setattr(placing._Placing, "_judge", judge)


def entries_after_a_damage_are_counted_wrong(patch: pytest.MonkeyPatch) -> None:
    def shifted(piece: Any) -> Any:
        if piece is not None:
            piece.header = replace(piece.header, first_lsn=piece.header.first_lsn - 1)
        return piece

    changed(patch, repair, "_suffix", shifted)


BUGS = [
    a_loss_is_not_listed,
    a_loss_is_too_short,
    an_entry_of_the_end_is_forgotten,
    the_other_side_is_kept,
    cut_bytes_are_not_kept,
    files_are_removed,
    the_mark_stays,
    damaged_entries_are_not_planned,
    side_files_are_not_planned,
    side_files_are_not_verified,
    side_files_are_left_where_they_are,
    the_mark_is_not_asked,
    a_neighbour_is_enough,
    entries_after_a_damage_are_counted_wrong,
]


FIRST_SEEDS: dict[Any, int] = {
    entries_after_a_damage_are_counted_wrong: 290
}  # it needs a rare damage


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_caught(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = Repairs("shanghai")
    for state in ("closed", "killed"):
        trials.log(0, state)
    bug(monkeypatch)
    first = FIRST_SEEDS.get(bug, 0)
    with pytest.raises((BrokenPromiseError, HoldfastError, AssertionError)) as caught:
        for seed in range(first, first + TRIALS_MAX):
            trials.trial(seed)
    assert f"shanghai, seed {first + trials.counts['trials']}" in caught.value.__notes__[-1]


def test_a_plan_that_changes_the_log_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(disk: Disk) -> Any:
        disk.create("left-over", b"", replace=True)
        return recovery.survey(disk)

    monkeypatch.setattr(repair, "survey", look)
    with pytest.raises(BrokenPromiseError, match="a plan has changed the log"):
        Repairs("shanghai").trial(0)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_harm_changes_something(way: str) -> None:
    written = Repairs("shanghai").log(0, "closed")
    random, done = Random(7), 0
    for _ in range(50):
        store = Harmed(dict(written.files), written.older)
        what = WAYS[way](store, random.choice(sorted(store.files)), random)
        assert bool(what) == (store.files != written.files) == bool(store.touched)
        done += bool(what)
    assert done


def test_a_log_that_is_not_harmed_passes() -> None:
    trials = Repairs("shanghai")
    for state in ("closed", "killed"):
        written = trials.log(0, state)
        store = Harmed(dict(written.files), touched={"nothing of it"})
        trials.judge(written, store)
        assert written.older
    assert trials.counts["corrupt"] == 0
