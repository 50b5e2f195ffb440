"""The WAL's end that is not compacted, as reads see it: in memory as far as the budget goes.

Layers are joined as they come, so that a thousand small SSTs are a handful of dicts.  When they
take more than the budget, the oldest go, and the SSTs that held them are read from the bucket.
"""

from dataclasses import dataclass

from holdfast.bucket.bucket import Bucket
from holdfast.kv.memtable import Layer, merged, trimmed
from holdfast.kv.names import wal_name
from holdfast.kv.tables import Cache, Table

_LAYER_SHARE = 4  # no layer takes more than this part of the budget, so that letting one go is mild


@dataclass(frozen=True, slots=True)
class _Sst:
    size: int
    last_seq: int  # of it and of all before it
    is_empty: bool
    epoch: int


class Tail:
    """What the WAL holds behind the levels.

    Changed under its owner's lock; `layers` and `tables` are replaced whole.
    """

    def __init__(self, bucket: Bucket, cache: Cache, size_max: int, last_id: int) -> None:
        self._bucket, self._cache, self._size_max = bucket, cache, size_max
        self.last_id = last_id
        self.last_seq = 0
        self.layers: tuple[Layer, ...] = ()  # the newest first
        self.tables: tuple[Table, ...] = ()  # older than all layers; the newest first
        self._ssts: dict[int, _Sst] = {}

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return sum(layer.size for layer in self.layers)

    @property
    def wal_count(self) -> int:
        """SSTs of the WAL that are not compacted."""
        return len(self._ssts)

    @property
    def wal_bytes(self) -> int:
        """Their size."""
        return sum(sst.size for sst in self._ssts.values())

    def add(self, layer: Layer, sst_size: int, last_seq: int, epoch: int) -> None:
        """The rows of the next SST, `layer.last_id`; none if it is a fence."""
        self._note(layer.last_id, sst_size, last_seq, not layer.rows, epoch)
        if layer.rows:
            self._join(layer)
            self._let_go()

    def add_cold(self, wal_id: int, sst_size: int, last_seq: int, epoch: int) -> None:
        """The same, of an SST that stays on the bucket; last_seq is 0 for a fence."""
        self._note(wal_id, sst_size, last_seq, not last_seq, epoch)
        if last_seq:
            self.tables = (self._table(wal_id), *self.tables)

    def drop(self, last_compacted: int) -> None:
        """Forget the SSTs up to this one: the levels have their rows."""
        sst = self._ssts.get(last_compacted)
        kept = [layer for layer in self.layers if layer.last_id > last_compacted]
        if kept and sst is not None and kept[-1].first_id <= last_compacted:
            kept[-1] = trimmed(kept[-1], last_compacted, sst.last_seq)
        self.layers = tuple(kept)
        self._ssts = {wal_id: sst for wal_id, sst in self._ssts.items() if wal_id > last_compacted}
        names = {wal_name(wal_id) for wal_id in self._ssts}
        self.tables = tuple(table for table in self.tables if table.name in names)

    def _note(self, wal_id: int, sst_size: int, last_seq: int, is_empty: bool, epoch: int) -> None:
        if wal_id != self.last_id + 1:
            raise ValueError(f"SST {wal_id} cannot follow {self.last_id}")
        self.last_id = wal_id
        self.last_seq = max(self.last_seq, last_seq)
        self._ssts[wal_id] = _Sst(sst_size, self.last_seq, is_empty, epoch)

    def _join(self, newest: Layer) -> None:
        layers = list(self.layers)
        most = self._size_max // _LAYER_SHARE
        while layers and layers[0].size < 2 * newest.size and layers[0].size + newest.size <= most:
            newest = merged(newest, layers.pop(0))
        self.layers = (newest, *layers)

    def _let_go(self) -> None:
        while self.layers and self.size > self._size_max:
            oldest = self.layers[-1]
            self.layers = self.layers[:-1]
            ids = range(oldest.last_id, oldest.first_id - 1, -1)
            full = [i for i in ids if i in self._ssts and not self._ssts[i].is_empty]
            self.tables = (*map(self._table, full), *self.tables)

    def _table(self, wal_id: int) -> Table:
        sst = self._ssts[wal_id]
        return Table(self._bucket, self._cache, wal_name(wal_id), sst.size, epoch=sst.epoch)
