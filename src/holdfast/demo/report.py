"""report.html: one file that needs nothing else, drawn from a run's own data.

No script, no font, no picture from elsewhere: it can be mailed, kept and opened in ten years.
"""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from holdfast.demo import charts, store_charts
from holdfast.demo.bars import Bars, of_symbol
from holdfast.demo.results import Fencing, Run, Stores, Streaming
from holdfast.demo.ticks import SYMBOLS

_LEDGER_TITLES = ("kill", "at", "acknowledged", "in flight", "found", "lost", "invented")


def render(run: Run) -> str:
    """The whole page."""
    style = files("holdfast.demo").joinpath("report.css").read_text(encoding="utf-8")
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>holdfast demo, seed {run.seed}</title><style>{style}</style>"
    )
    sections = [_opening(run), _kills(run), _disk(run), *_stores(run), _day(run.bars), _replay(run)]
    body = "\n".join(sections)
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n'
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def headline(run: Run) -> str:
    """The run in one sentence."""
    times = "once" if len(run.ledger) == 1 else f"{len(run.ledger)} times"
    verdict = "Nothing acknowledged was lost." if run.held else "Promises were broken."
    return f"Killed {times}. {verdict}"


def _opening(run: Run) -> str:
    wrong = {"lost": run.lost, "invented": run.invented, "doubled": run.doubled}
    figures = [("ticks acknowledged", f"{run.acknowledged:,}", "")]
    figures += [(name, f"{n:,}", "bad" if n else "good") for name, n in wrong.items()]
    cells = "".join(
        f'<div><dt>{name}</dt><dd class="{kind}" id="{name.split()[-1]}">{value}</dd></div>'
        for name, value, kind in figures
    )
    return (
        f'<header><p class="brand">holdfast<span>demo, seed {run.seed}</span></p>'
        f'<h1 class="{"" if run.held else "broken"}">{headline(run)}</h1>'
        f'<p class="lead">{escape(_lead(run))}</p><dl class="figures">{cells}</dl></header>'
    )


def _lead(run: Run) -> str:
    text = (
        "A process wrote a day of market ticks to a log and was killed with -9 while it did, again "
        "and again. After each kill the log was recovered and compared with what had been "
        "acknowledged."
    )
    if run.stores:
        text += (
            " Then Spark turned the log into bars and prices, though a worker of its own was "
            "killed, and looked after both stores. At last a writer was frozen, and fenced."
        )
    return text


def _kills(run: Run) -> str:
    rows = [
        [
            str(line.kill),
            f"{line.at_seconds:.2f} s",
            *(f"{n:,}" for n in (line.acknowledged, line.in_flight, line.found)),
            *(f"{n:,}" for n in (line.lost, line.invented)),
        ]
        for line in run.ledger
    ]
    latencies = [ack.latency_us for ack in run.acks]
    summary = f"{len(run.acks):,} appends, each one synced before it was acknowledged"
    return _section(
        "The ledger",
        "What the writer had acknowledged when it died, against what was found. Entries in flight "
        "may survive or not; acknowledged ones must.",
        _figure(
            "Durable ticks",
            "the line: ticks that have arrived;  ✕ kill -9",
            charts.growth(run.acks, run.arrived, run.ledger),
        ),
        _figure(
            "Durable ticks per second",
            "logarithmic: after each restart the writer catches up",
            charts.throughput(run.acks, run.ledger),
        ),
        _figure("Time of a durable append", summary, charts.latencies(latencies)),
        f'<figure id="ledger">{_table(_LEDGER_TITLES, rows)}</figure>',
    )


def _disk(run: Run) -> str:
    log = run.log
    size = f"{log.size / 2**20:.1f} MiB in {len(log.segments)} segments"
    where = "read by Spark's workers" if run.stores else "read in one process"
    checks = [
        (
            scrub.verdict == "clean",
            f"{scrub.what}: {scrub.amount}, in {scrub.seconds:.2f} s: "
            f"{scrub.verdict if scrub.verdict == 'clean' else scrub.verdict.upper()}",
        )
        for scrub in run.scrubs
    ]
    checks.append((not log.damage, f"{len(log.damage)} damaged places in the log"))
    return _section(
        "The log on disk",
        "Sealed segments never change again; only the last one grows. Each block is as wide as its "
        "bytes; below it, the entries it holds.",
        _figure("Segments", size, charts.segment_map(log.segments)),
        _figure("Scrub", f"every checksum of every file, {where}", _checks(checks)),
    )


def _stores(run: Run) -> list[str]:
    if run.stores is None:
        missing = f'<p class="missing">Not in this run: {escape(run.missing or "")}</p>'
        return [_section("Spark", "", missing)]
    return [_stream(run, run.stores.streaming), _kv(run.stores), _fence(run.stores.fencing)]


def _stream(run: Run, stream: Streaming) -> str:
    rows = sum(batch.rows for batch in stream.batches)
    summary = f"{rows:,} ticks in {len(stream.batches)} micro-batches, {stream.seconds:.1f} s"
    return _section(
        "Exactly once, through Spark",
        "A structured stream reads the log in micro-batches and lands each of them once: as bars "
        "in the bar store, as prices in the kv store. A Python worker is killed with -9 while it "
        "decodes; Spark runs its task again.",
        _figure("Stream", summary, charts.micro_batches(stream.batches, stream.worker_kills)),
        _figure("Compared with the ledger", "", _checks(_stream_checks(run, stream))),
    )


def _stream_checks(run: Run, stream: Streaming) -> list[tuple[bool, str]]:
    killed = ", ".join(str(kill.pid) for kill in stream.worker_kills) or "none"
    found = run.ledger[-1].found
    assert run.stores is not None
    rollup = run.stores.rollup
    rolled = ", ".join(f"{count:,} of {name}" for name, count in rollup.bars.items())
    return [
        (
            stream.failed_tasks > 0,
            f"workers killed: {killed}; tasks run again: {stream.failed_tasks}",
        ),
        (stream.rows == found, f"{stream.rows:,} ticks landed of {found:,} in the log"),
        (
            not stream.bars_differing,
            f"{stream.bars:,} bars, {stream.bars_differing:,} different from those "
            "computed from the ledger without Spark",
        ),
        (
            not stream.prices_differing,
            f"{stream.prices:,} prices, {stream.prices_differing:,} different",
        ),
        (
            not rollup.differing,
            f"rolled up to {rolled} in {rollup.seconds:.1f} s, {rollup.differing:,} different",
        ),
    ]


def _kv(stores: Stores) -> str:
    upkeep = stores.upkeep
    tasks = f"{upkeep.tasks} task" + ("s" if upkeep.tasks != 1 else "")
    checks = [
        (
            not upkeep.rows_differing,
            f"{upkeep.rows_read:,} rows compacted to {upkeep.rows_written:,} by {tasks} in "
            f"{upkeep.compact_seconds:.1f} s; {upkeep.rows_differing:,} read differently",
        ),
        (
            upkeep.deleted > 0,
            f"{upkeep.deleted:,} objects were garbage and swept, {upkeep.objects_after:,} are left",
        ),
        (
            not upkeep.snapshot_differing,
            f"the snapshot of manifest {upkeep.snapshot} shows what was there before: "
            f"{upkeep.snapshot_differing:,} rows differ",
        ),
    ]
    summary = f"{len(stores.history)} manifests; above each, its SSTs"
    return _section(
        "The kv store, change by change",
        "The store is what its newest manifest says. Each change is one new manifest, made whole "
        "or not at all; a snapshot keeps an older one, and what it names, from being deleted.",
        _figure("Manifests and snapshots", summary, store_charts.manifests(stores.history)),
        _figure("Compaction and garbage, on Spark", "", _checks(checks)),
    )


def _fence(fencing: Fencing) -> str:
    checks = [
        (
            not fencing.lost,
            f"{fencing.acknowledged:,} puts acknowledged before it froze, {fencing.lost:,} lost",
        ),
        (not fencing.stray, f"{fencing.stray:,} rows read of what it tried to write since"),
        (fencing.successor > fencing.epoch, f"it was told: {fencing.why}"),
    ]
    remark = "seconds since the first writer started"
    return _section(
        "A frozen writer wakes up",
        "A writer is stopped with SIGSTOP in the middle of its work, as a paused machine would be. "
        "Another takes the store over. When the first goes on, it finds the door closed.",
        _figure("Epochs", remark, store_charts.epochs(fencing)),
        _figure("Fenced", "", _checks(checks)),
    )


def _day(bars: Bars) -> str:
    figures = []
    for number, name in enumerate(SYMBOLS):
        own = of_symbol(bars, number)
        if not len(own):
            continue
        first, last = float(own["open"][0]), float(own["close"][-1])
        move = last / first - 1
        kind = "up" if move >= 0 else "down"
        words = f'{last:,.2f} <span class="move {kind}">{move:+.2%}</span>'
        figures.append(
            f"<figure><figcaption><h3>{name}</h3><span>{words}</span></figcaption>"
            f"{charts.candles(own)}</figure>"
        )
    what = "Six-minute candles with their volume, from the one-minute bars. The market is invented."
    return _section("The day", what, f'<div class="pair">{"".join(figures)}</div>')


def _replay(run: Run) -> str:
    facts = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in run.facts.items())
    return _section(
        "Do it again",
        "The same seed makes the same ticks and kills after the same times.",
        f'<pre id="command">{escape(run.command)}</pre><dl class="facts">{facts}</dl>',
    )


def _section(title: str, what: str, *parts: str) -> str:
    return f"<section><h2>{title}</h2><p>{escape(what)}</p>{''.join(parts)}</section>"


def _figure(title: str, remark: str, content: str) -> str:
    caption = f"<figcaption><h3>{title}</h3><span>{escape(remark)}</span></figcaption>"
    return f"<figure>{caption}{content}</figure>"


def _checks(checks: Iterable[tuple[bool, str]]) -> str:
    items = "".join(
        f'<li class="{"" if ok else "no"}">{escape(words)}</li>' for ok, words in checks
    )
    return f'<ul class="checks">{items}</ul>'


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = ""
    for row in rows:
        kinds = [
            "" if column < 5 else "zero" if cell == "0" else "bad"
            for column, cell in enumerate(row)
        ]
        cells = (f'<td class="{k}">{escape(c)}</td>' for k, c in zip(kinds, row, strict=True))
        body += f"<tr>{''.join(cells)}</tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
