"""What becomes one SST of the WAL: memtables, and the promises that hang on them."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.formats.sst import Rows
from holdfast.kv.handles import Commit
from holdfast.kv.memtable import Layer, Row, merged, size_of


class Memtable(Layer):
    """A layer that is not yet in the WAL, and who waits for it."""

    __slots__ = ("alone", "commits", "last_seq")

    def __init__(self, rows: dict[bytes, Row], size: int = 0, *, alone: bool = False) -> None:
        super().__init__(rows, size)
        self.alone = alone  # big enough for an SST of its own
        self.commits = [Commit()]
        self.last_seq = 0  # known when it takes no more rows


@dataclass(slots=True, eq=False)
class Flush:
    """Memtables that become one SST."""

    wal_id: int
    memtables: list[Memtable]  # the oldest first
    sst_size: int = 0
    layer: Layer = field(init=False)

    def gather(self) -> Rows:
        """One layer of all memtables, and its rows sorted."""
        layer: Layer = self.memtables[0]
        for newer in self.memtables[1:]:
            layer = merged(newer, layer)
        rows = layer.sorted_rows()
        # A memtable counts a key each time it is set; here it is known what is left of it.
        self.layer = Layer(layer.rows, size_of(rows), self.wal_id, self.wal_id, (rows,))
        return rows

    @property
    def commits(self) -> Iterator[Commit]:
        return (commit for memtable in self.memtables for commit in memtable.commits)

    @property
    def size(self) -> int:
        return sum(memtable.size for memtable in self.memtables)

    @property
    def last_seq(self) -> int:
        return self.memtables[-1].last_seq
