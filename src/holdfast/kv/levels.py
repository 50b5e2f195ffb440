"""The compacted part of a store: the SSTs that one manifest names, from the newest to the oldest.

L0 is a pile of SSTs, each with any keys.  Below it are sorted runs, in which a key can be in one
SST only.  A manifest may name a hundred thousand; a Table is made for those that are read.
"""

from collections.abc import Iterator, Sequence

from holdfast.bucket.bucket import Bucket
from holdfast.formats.manifest import Manifest, SstInfo
from holdfast.formats.sst import Found, Rows
from holdfast.kv.names import level_name
from holdfast.kv.tables import Cache, Table


class Levels:
    """See above.  Never changes; any number of threads may read it."""

    def __init__(self, manifest: Manifest, bucket: Bucket, cache: Cache) -> None:
        self.manifest = manifest
        self._bucket, self._cache = bucket, cache
        self._tables: dict[int, Table] = {}
        self._l0 = [self._table(info) for info in manifest.l0]
        self._runs = manifest.runs

    def get(self, key: bytes) -> Found | None:
        """The newest value (None for a tombstone) and seq of a key; None if there is none."""
        for table in self._l0:
            found = table.get(key)
            if found is not None:
                return found
        for run in self._runs:
            info = run.find(key)
            if info is not None:
                found = self._table(info).get(key)
                if found is not None:
                    return found
        return None

    def streams(
        self, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> list[Iterator[Rows]]:
        """One for each SST of L0 and for each run, the newest first."""
        streams = [table.scan(start, stop, reverse=reverse) for table in self._l0]
        for run in self._runs:
            infos = run.range(start, stop)
            streams.append(self._chained(infos[::-1] if reverse else infos, start, stop, reverse))
        return streams

    def _chained(
        self, infos: Sequence[SstInfo], start: bytes, stop: bytes | None, reverse: bool
    ) -> Iterator[Rows]:
        for info in infos:
            yield from self._table(info).scan(start, stop, reverse=reverse)

    def _table(self, info: SstInfo) -> Table:
        found = self._tables.get(info.id)
        if found is None:
            found = Table(
                self._bucket, self._cache, level_name(info.id), info.size, info.filter_offset
            )
            self._tables[info.id] = found
        return found
