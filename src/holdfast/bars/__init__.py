"""Bars and ticks of many symbols, durable as MarketStore's design has it, in MarketStore's files.

>>> from holdfast.bars import open_bars
>>> with open_bars(directory) as store:
...     store.symbols()
[]
"""

from holdfast.bars.group import Group
from holdfast.bars.guest import BarReader
from holdfast.bars.opening import open_bars
from holdfast.bars.store import BarStore
from holdfast.bars.wal import Damage

__all__ = ["BarReader", "BarStore", "Damage", "Group", "open_bars"]
