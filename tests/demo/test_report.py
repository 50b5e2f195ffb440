import json
import re
from dataclasses import replace
from html.parser import HTMLParser

from holdfast.demo import market
from holdfast.demo.acts import Act, Promise, Run, judge_kills
from holdfast.demo.report import headline, render


class Strict(HTMLParser):
    """Fail where a tag is not closed by its own."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"


def parsed(run: Run) -> Strict:
    page = Strict()
    page.feed(render(run))
    page.close()
    assert not page.open
    return page


def test_the_page_is_whole_and_needs_nothing_else(run: Run) -> None:
    page = parsed(run)
    assert page.seen.count("svg") == 6  # one for each symbol
    assert not {"script", "link", "img", "iframe"} & set(page.seen)
    assert not re.search(r"https?:|url\(|@import|src=|href=", render(run))


def test_its_numbers_are_those_of_the_run(run: Run) -> None:
    text = parsed(run).text
    for line in run.ledger:
        assert f"{line.at_seconds:.2f} s" in text
        assert f"{line.acknowledged:,}" in text
    for act in run.acts:
        assert act.title in text
        for promise in act.promises:
            assert promise.text in text
    assert "killed 6 times: acknowledged 6,000, lost 0, invented 0" in text
    assert "600 synced appends" in text
    assert "p50 0.35 ms, p99 0.50 ms" in text
    for day in market.summary(run.bars):
        assert f"{day['symbol']} {day['Close']:,.2f} ({day['move']:+.2%})" in text
    assert "holdfast demo --seed 5 --seconds 2.4" in text
    assert "3.11 <&>" in text  # escaped
    assert "Killed 6 times. Nothing acknowledged was lost." in text


def test_a_broken_promise_is_the_headline(run: Run) -> None:
    ledger = [*run.ledger[:-1], replace(run.ledger[-1], lost=13)]
    killing = Act("killing", "The writer is killed", *judge_kills(ledger, [300]))
    broken = replace(run, ledger=ledger, acts=[killing, *run.acts[1:]])
    assert (broken.counts["lost"], broken.held) == (13, False)
    html = render(broken)
    assert '<h1 class="broken">' in html
    assert headline(broken) == "Killed 6 times. Promises were broken."
    assert 'class="bad">13</td>' in html
    assert '<dd class="bad" id="lost">13</dd>' in html
    assert '<li class="no">killed 6 times' in html


def test_invented_entries_and_silent_writers_break_promises(run: Run) -> None:
    invented = [replace(run.ledger[0], invented=1), *run.ledger[1:]]
    assert [held for held, _ in judge_kills(invented, [300])[1]] == [False, True]
    assert [held for held, _ in judge_kills(run.ledger, [])[1]] == [True, False]


def test_one_broken_promise_of_any_act_breaks_the_run(run: Run) -> None:
    assert run.held
    for at, act in enumerate(run.acts):
        for number, promise in enumerate(act.promises):
            promises = list(act.promises)
            promises[number] = Promise(False, promise.text)
            acts = list(run.acts)
            acts[at] = replace(act, promises=promises)
            assert not replace(run, acts=acts).held


def test_the_page_names_what_was_left_out(without_spark: Run) -> None:
    text = parsed(without_spark).text
    assert "not in this run: Spark is not installed. Run: pip <it>" in text
    assert without_spark.held


def test_json_has_the_same_numbers(run: Run) -> None:
    found = json.loads(json.dumps(run.as_json()))
    assert found["held"] is True
    assert found["killing"]["kills"] == 6
    assert found["streaming"]["killed_worker"] == 4711
    assert (found["acknowledged"], found["lost"], found["doubled"]) == (6000, 0, 0)
