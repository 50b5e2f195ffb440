"""Clocks, and times as text."""

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now_ns() -> int:
    """Return nanoseconds since 1970."""
    return time.time_ns()


def now_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Return milliseconds since the machine started, including the time that it slept."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def monotonic() -> float:
    """Return seconds of a clock that never goes back, for short measurements."""
    return time.perf_counter()


def sleep_ms(delay_ms: float) -> None:
    """Sleep for so many milliseconds."""
    time.sleep(delay_ms / 1000)


def to_rfc3339(unix_ms: int) -> str:
    """Format a time in UTC with as few digits as possible: 2026-11-15T18:37:33.28Z"""
    moment = _EPOCH + timedelta(milliseconds=unix_ms)
    text = moment.isoformat(timespec="milliseconds")[:19]
    fraction = f"{unix_ms % 1000:03}".rstrip("0")
    return f"{text}{'.' * bool(fraction)}{fraction}Z"


def from_rfc3339(text: str) -> int:
    """Parse such a time into milliseconds since 1970.  Finer digits are cut off."""
    whole, dot, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    zone = rest[len(digits) :] if dot else ""
    moment = datetime.fromisoformat(whole + zone)
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    return seconds * 1000 + int(digits[:3].ljust(3, "0") or 0)
