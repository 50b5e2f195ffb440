"""What commands print: answers on stdout, everything else on stderr.

An answer is text, or JSON with --json: one object per line.  It is never cut to the width of a
terminal, so that it can be piped.  Progress is shown only on a terminal.
"""

import json
import re
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from typing import Any

from holdfast.cli.options import DURATIONS_MS

PLANNED = "nothing was changed; --apply carries it out"


def answer(text: str | Iterable[str], document: object = None, *, as_json: bool = False) -> None:
    """Print the text, or with --json the document: a dict or a dataclass."""
    if as_json:
        answer_json(document)
        return
    sys.stdout.write((text if isinstance(text, str) else "\n".join(text)) + "\n")


def answer_json(value: object) -> None:
    """Print one object on one line, at once."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    elif hasattr(value, "as_json"):
        value = value.as_json()
    text = json.dumps(value, ensure_ascii=False, default=str)
    # A name may hold bytes that are not UTF-8; a lone surrogate stands for each.
    sys.stdout.write(text.encode("utf-8", "backslashreplace").decode() + "\n")
    sys.stdout.flush()


def answer_rows(
    titles: Sequence[str], rows: Iterable[Any], documents: Iterable[Any], as_json: bool
) -> None:
    """Print a table, or with --json one object per line."""
    if not as_json:
        answer(table(titles, list(rows)))
        return
    for document in documents:
        answer_json(document)


def answer_bytes(data: bytes) -> None:
    """Write all bytes to stdout."""
    rest = memoryview(data)
    while rest:  # with PYTHONUNBUFFERED it is a raw file, which may take less than it is given
        rest = rest[sys.stdout.buffer.write(rest) :]


def remark(text: str, *, as_json: bool = False) -> None:
    """Print something beside the answer, on stderr."""
    sys.stderr.write((json.dumps({"note": text}) if as_json else text) + "\n")


def table(
    titles: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[bool] = ()
) -> str:
    """Set columns two spaces apart; those that hold only numbers, or are `right`, to the right."""
    right = right or [
        bool(rows) and all(isinstance(cell, int) for cell in column)
        for column in zip(*rows, strict=True)
    ]
    lines = [list(titles), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sides = [">" if to_right else "<" for to_right in right] or ["<"] * len(titles)
    form = "  ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    return "\n".join(form.format(*line).rstrip() for line in lines)


def page(
    facts: Mapping[str, object], details: Mapping[str, Iterable[object]] | None = None
) -> Iterator[str]:
    """Set names and values in two columns, with details below a value."""
    width = max(map(len, facts))
    for name, value in facts.items():
        yield f"{name:<{width}}  {value}"
        yield from (f"{'':<{width}}  - {line}" for line in (details or {}).get(name, []))


def printable(payload: bytes | str) -> str:
    """Escape what is not UTF-8 or would control the terminal."""
    text = payload if isinstance(payload, str) else payload.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def json_bytes(field: str, data: bytes) -> dict[str, str]:
    """Return the field as text if it is UTF-8, else as base64 under the name FIELD_base64."""
    try:
        return {field: data.decode()}
    except UnicodeDecodeError:
        return {f"{field}_base64": b64encode(data).decode()}


@contextmanager
def progress(title: str, *, unit: str = "bytes") -> Iterator[Callable[[int, int], None]]:
    """Draw a bar on stderr, if it is a terminal; call the result with (done, total)."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    counts = DownloadColumn(binary_units=True) if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), counts, TimeLeft())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def human_size(size: int) -> str:
    """Format a size: `512 B`, `1.5 GiB`."""
    if size < 1024:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, 4)
    return f"{size / 1024**power:.1f} {'KMGT'[power - 1]}iB"


def human_duration(duration_ms: int) -> str:
    """Format a duration in the largest unit without a remainder, as parse_duration_ms reads it."""
    for unit, size_ms in sorted(DURATIONS_MS.items(), key=lambda item: -item[1]):
        if duration_ms % size_ms == 0 and (duration_ms or unit == "s"):
            return f"{duration_ms // size_ms}{unit}"
    raise AssertionError("a number of milliseconds is a multiple of 1 ms")


def human_time(time_ms: int) -> str:
    """Format a time to the second, in UTC.  Any number is valid: headers have no checksum."""
    try:
        return f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%d %H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def human_span(first: int, last: int) -> str:
    """Format a range of indexes: `3..9`, or `none`."""
    return f"{first}..{last}" if first <= last else "none"


def count_of(count: int, thing: str) -> str:
    """Format a count: `1 entry`, `2 entries`, `1,000 segments`, `2 keys`."""
    if count != 1:
        thing = f"{thing[:-1]}ies" if re.search("[^aeiou]y$", thing) else f"{thing}s"
    return f"{count:,} {thing}"
