"""The feed in its short form: until every guest has done something and two owners were killed.

HOLDFAST_SERVICE_SECONDS makes it longer.
"""

import os
from copy import copy
from pathlib import Path

import pytest
from campaign.service import feed
from tests.bars.feed_book import BARS, KINDS, TICKS, Book, carry_out, shown_in, step_of

from holdfast.doors import open_bars
from holdfast.testing.lives import BrokenPromiseError

SECONDS = float(os.environ.get("HOLDFAST_SERVICE_SECONDS", "1"))
BUG_SECONDS = 90  # a planted bug is found long before


def test_a_feed_keeps_what_it_acknowledged_beside_guests_and_kills(tmp_path: Path) -> None:
    counts = feed(tmp_path, SECONDS, 1)
    assert counts["acknowledged"] > 10
    assert counts["kills"] >= 2


def test_the_feed_finds_a_planted_bug(tmp_path: Path) -> None:
    """Others take longer to show: `python -m tests.bars.feed PLACE 90 1 BUG`."""
    with pytest.raises(BrokenPromiseError, match=r"shows no state|CorruptError"):
        feed(tmp_path, BUG_SECONDS, 1, "commits wait")


def test_the_book_knows_what_the_store_shows(tmp_path: Path) -> None:
    """One by one, without any other process: all kinds of steps."""
    book, kinds = Book(1, 0), set[str]()
    with open_bars(tmp_path, create=True) as store:
        while len(kinds) < len(KINDS) or book.number < 40:
            carry_out(store, book.next(), book.symbols)
            kinds.add(book.next().kind)
            book.advance()
            found = {key: shown_in(store.query("*", "1Min", key)) for key in (BARS, TICKS)}
            assert book.judge(book.number, found, "the owner") == book.number


def test_the_book_finds_what_is_wrong() -> None:
    seed = next(seed for seed in range(100) if step_of(seed, 0, 5).kind == "group")
    book = Book(seed, 0)
    book.advance_to(4)
    next_book = copy(book)
    next_book.advance()
    before, after = ({key: one.shown(key) for key in (BARS, TICKS)} for one in (book, next_book))
    a, b = book.symbols
    assert book.judge(5, before, "a guest") == 4
    assert book.judge(5, after, "a guest") == 5
    torn = {BARS: {a: after[BARS][a], b: before[BARS][b]}}
    twice = {TICKS: {a: [*after[TICKS][a], after[TICKS][a][0]], b: after[TICKS][b]}}
    mixed = {BARS: after[BARS], TICKS: before[TICKS]}
    missing = {TICKS: {a: after[TICKS][a][1:], b: after[TICKS][b]}}
    for wrong in (torn, twice, mixed, missing):
        with pytest.raises(BrokenPromiseError, match="shows no state after steps 4 to 5"):
            book.judge(5, wrong, "a guest")
    with pytest.raises(BrokenPromiseError, match="shows no state"):
        next_book.judge(5, before, "a guest")  # step 5 was acknowledged
    with pytest.raises(BrokenPromiseError):
        book.judge(4, after, "a guest")  # step 5 was never begun
