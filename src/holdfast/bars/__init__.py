"""Bars and ticks of many symbols, in MarketStore's file format, with durable writes.

>>> from holdfast.bars import BarStore
>>> from holdfast.disk import OsDisk
>>> with BarStore(OsDisk(directory), create=True) as store:
...     store.symbols()
[]
"""

from holdfast.bars.group import Group
from holdfast.bars.reader import BarReader
from holdfast.bars.wal import Damage
from holdfast.bars.writer import BarStore

__all__ = ["BarReader", "BarStore", "Damage", "Group"]
