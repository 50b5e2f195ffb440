"""Bars and ticks whose rows say what they are: a version, and a checksum over where it stands.

Every group also writes the marker, one row that all symbols have: if a query shows two versions of
it, the query has shown a group in part.
"""

from typing import Any

import numpy as np

BARS, TICKS = "BAR", "TICK"
SYMBOLS = ("AA", "BB", "CC")
YEARS = (2019, 2020, 2021)
MARKER_S = 1_577_836_800 - 60  # the last minute of 2019
_MINUTE_S = 60
_STARTS_S = {2019: 1_546_300_800, 2020: 1_577_836_800, 2021: 1_609_459_200}


def check_of(symbol: str, epoch_s: Any, version: Any) -> Any:
    seed = np.int64(SYMBOLS.index(symbol) + 1)
    mixed = np.asarray(epoch_s, np.int64) * 31 + np.asarray(version, np.int64) * 1_000_003
    return (mixed ^ (mixed >> 7)) * seed


def marker_of(symbol: str, version: int) -> dict[str, Any]:
    return _rows(symbol, np.array([MARKER_S]), version)


def bars_of(symbol: str, year: int, minutes: Any, version: int) -> dict[str, Any]:
    return _rows(symbol, _STARTS_S[year] + _MINUTE_S * (minutes + 1), version)


def ticks_of(symbol: str, year: int, minutes: Any, version: int) -> dict[str, Any]:
    return _rows(symbol, _STARTS_S[year] + _MINUTE_S * (minutes + 1), version)


def _rows(symbol: str, epoch_s: Any, version: int) -> dict[str, Any]:
    versions = np.full(len(epoch_s), version, np.int64)
    return {"Epoch": epoch_s, "Version": versions, "Check": check_of(symbol, epoch_s, versions)}
