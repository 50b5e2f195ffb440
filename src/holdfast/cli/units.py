"""Sizes, durations and times as people write and read them."""

import re
from datetime import UTC, datetime

import typer

_SIZES = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_DURATIONS_MS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_NUMBER_AND_UNIT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def parse_size(text: str) -> int:
    """Bytes in `64MB`, `1.5GiB`, `4096`.  A KB is 1024 bytes, with or without the i."""
    number, unit = _split(text)
    unit = unit if unit == "b" else re.sub("i?b$", "", unit)
    if number is None or unit not in _SIZES:
        raise typer.BadParameter(f"{text!r} is not a size: write 4096, 512KB, 64MB or 10GB")
    return int(number * _SIZES[unit])


def parse_duration_ms(text: str) -> int:
    """Milliseconds in `200ms`, `30s`, `5m`, `12h`, `7d`, `2w`."""
    number, unit = _split(text)
    if number is None or unit not in _DURATIONS_MS:
        raise typer.BadParameter(f"{text!r} is not a duration: write 200ms, 30s, 5m, 12h or 7d")
    return int(number * _DURATIONS_MS[unit])


def _split(text: str) -> tuple[float | None, str]:
    match = _NUMBER_AND_UNIT.fullmatch(text.strip())
    return (float(match[1]), match[2].lower()) if match else (None, "")


def human_size(size: int) -> str:
    if size < 1024:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, 4)
    return f"{size / 1024**power:.1f} {'KMGT'[power - 1]}iB"


def human_duration(duration_ms: int) -> str:
    """In the largest unit that leaves nothing over, as parse_duration_ms reads it."""
    for unit, size_ms in sorted(_DURATIONS_MS.items(), key=lambda item: -item[1]):
        if duration_ms % size_ms == 0 and (duration_ms or unit == "s"):
            return f"{duration_ms // size_ms}{unit}"
    raise AssertionError("every number of milliseconds is one")


def human_time(time_ms: int) -> str:
    """To the second, in UTC; a header's time is not checked by anything, so any number may come."""
    try:
        return f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%d %H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def human_span(first: int, last: int) -> str:
    """Which entries: `3..9`, or `none`."""
    return f"{first}..{last}" if first <= last else "none"


def count_of(count: int, thing: str) -> str:
    """`1 entry`, `2 entries`, `1,000 segments`, `2 keys`."""
    if count != 1:
        thing = f"{thing[:-1]}ies" if re.search("[^aeiou]y$", thing) else f"{thing}s"
    return f"{count:,} {thing}"
