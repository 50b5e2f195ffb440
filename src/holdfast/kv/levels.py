"""The compacted part of a store: the SSTs that one manifest names, from the newest to the oldest.

L0 is a pile of SSTs, each with any keys.  Below it are sorted runs, in which a key can be in one
SST only.  A manifest may name a hundred thousand; a Table is made for those that are read.
"""

from collections.abc import Iterator, Sequence

from holdfast.bucket.bucket import Bucket
from holdfast.formats.manifest import Manifest, Run, SstInfo
from holdfast.formats.sst import Found, Rows
from holdfast.kv.names import level_name
from holdfast.kv.tables import Cache, Table


class Levels:
    """The SSTs of one manifest.  Never changes; any number of threads may read it."""

    def __init__(self, manifest: Manifest, bucket: Bucket, cache: Cache) -> None:
        self.manifest = manifest
        self._bucket, self._cache = bucket, cache
        self._l0 = [self._table(info) for info in manifest.l0]
        # Of each run the tables that were asked for, by their place in it.
        self._runs: list[tuple[Run, dict[int, Table]]] = [(run, {}) for run in manifest.runs]

    def get(self, key: bytes) -> Found | None:
        """The newest value (None for a tombstone) and seq of a key; None if there is none."""
        for table in self._l0:
            found = table.get(key)
            if found is not None:
                return found
        for run, tables in self._runs:
            place = run.find(key)
            if place < 0:
                continue
            known = tables.get(place)
            if known is None:
                known = tables[place] = self._table(run[place])
            found = known.get(key)
            if found is not None:
                return found
        return None

    def streams(
        self, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> list[Iterator[Rows]]:
        """One for each SST of L0 and for each run, the newest first."""
        streams = [table.scan(start, stop, reverse=reverse) for table in self._l0]
        for run, _ in self._runs:
            infos = run.range(start, stop)
            streams.append(self._chained(infos[::-1] if reverse else infos, start, stop, reverse))
        return streams

    def _chained(
        self, infos: Sequence[SstInfo], start: bytes, stop: bytes | None, reverse: bool
    ) -> Iterator[Rows]:
        for info in infos:
            yield from self._table(info).scan(start, stop, reverse=reverse)

    def _table(self, info: SstInfo) -> Table:
        name = level_name(info.id)
        return Table(self._bucket, self._cache, name, info.size, info.filter_offset)
