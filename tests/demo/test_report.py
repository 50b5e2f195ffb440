import json
import re
from dataclasses import replace
from html.parser import HTMLParser

from holdfast.demo import charts, svg
from holdfast.demo.report import headline, render
from holdfast.demo.results import Run, Scrub


class Strict(HTMLParser):
    """Fails where a tag is not closed by its own."""

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
    assert page.seen.count("svg") == 7 + 6  # and one for each symbol
    assert not {"script", "link", "img", "iframe"} & set(page.seen)
    html = render(run)
    assert not re.search(r"https?:|url\(|@import|src=|href=", html)


def test_its_numbers_are_those_of_the_run(run: Run) -> None:
    text = parsed(run).text
    for line in run.ledger:
        assert f"{line.at_seconds:.2f} s" in text
        assert f"{line.acknowledged:,}" in text
    for segment in run.log.segments:
        assert f"{segment.first_index:,} … {segment.last_index:,}" in text
    assert "worker 4711 killed -9" in text
    assert "6,000 ticks landed of 6,000 in the log" in text
    assert f"{len(run.bars):,} bars, 0 different" in text
    assert "rolled up to 42 of 1H, 6 of 1D in 1.2 s, 0 different" in text
    assert "9,000 rows compacted to 2,346 by 2 tasks" in text
    assert "FENCED epoch 2 < 3" in text
    assert "12 manifests" in text
    assert f"p99  {charts.duration(run.latency_us(99))}" in text
    assert "holdfast demo --seed 5 --seconds 2.4" in text
    assert "3.11 <&>" in text  # escaped, for it is text
    assert "Killed 6 times. Nothing acknowledged was lost." in text


def test_a_broken_promise_is_the_headline(broken: Run) -> None:
    assert broken.lost == 13
    assert not broken.held
    html = render(broken)
    assert '<h1 class="broken">' in html
    assert headline(broken) == "Killed 6 times. Promises were broken."
    assert '<td class="bad">13</td>' in html


def test_what_was_left_out_is_told(without_spark: Run) -> None:
    text = parsed(without_spark).text
    assert "Not in this run: Spark is not installed. Run: pip <it>" in text
    assert without_spark.held


def test_doubled_and_missing_rows_break_promises(run: Run) -> None:
    stores = run.stores
    assert stores is not None
    assert run.held
    streaming = stores.streaming
    doubled = replace(run, stores=replace(stores, streaming=replace(streaming, rows=6001)))
    assert (doubled.doubled, doubled.held) == (1, False)
    short = replace(run, stores=replace(stores, streaming=replace(streaming, rows=5990)))
    assert (short.lost, short.held) == (10, False)
    for worse in (
        replace(stores, streaming=replace(streaming, bars_differing=1)),
        replace(stores, streaming=replace(streaming, prices_differing=1)),
        replace(stores, upkeep=replace(stores.upkeep, rows_differing=1)),
        replace(stores, upkeep=replace(stores.upkeep, snapshot_differing=1)),
        replace(stores, rollup=replace(stores.rollup, differing=1)),
        replace(stores, fencing=replace(stores.fencing, lost=1)),
        replace(stores, fencing=replace(stores.fencing, stray=1)),
        replace(stores, fencing=replace(stores.fencing, successor=2)),
    ):
        assert not replace(run, stores=worse).held
    rotten = replace(run, scrubs=(*run.scrubs, Scrub("kv store", "", "corrupt", 0.1)))
    assert not rotten.held


def test_json_says_the_same(run: Run) -> None:
    told = json.loads(json.dumps(run.as_json(), default=str))
    assert told["held"] is True
    assert told["kills"] == 6
    assert told["stores"]["streaming"]["worker_kills"] == [
        {"pid": 4711, "batch": 2, "at_seconds": 2.5}
    ]
    assert len(told["log"]["segments"]) == len(run.log.segments)


def test_round_steps_are_round_and_within() -> None:
    assert svg.round_steps(0, 370_000, 4) == [0, 100_000, 200_000, 300_000]
    assert svg.round_steps(27.89, 30.69, 4) == [28, 29, 30]
    assert svg.round_steps(5, 5, 4)


def test_durations_read_well() -> None:
    assert [charts.duration(us) for us in (250, 1234, 2_500_000)] == ["250 µs", "1.23 ms", "2.5 s"]
