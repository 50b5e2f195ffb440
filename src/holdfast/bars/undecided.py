"""Groups that are prepared: durable, and neither committed nor aborted."""

from collections.abc import Iterable, Mapping

from holdfast.bars.catalog import Catalog
from holdfast.bars.pending import Change
from holdfast.bars.write_back import new_files
from holdfast.formats import market_wal as fmt
from holdfast.formats.year_file import Schema


class Undecided:
    """They may bring new buckets; nobody else must bring the same with other columns."""

    def __init__(self, groups: Iterable[fmt.Group] = ()) -> None:
        self.groups: dict[int, fmt.Group] = {}
        self._brought: dict[str, dict[int, Schema]] = {}  # by bucket, by whom
        for group in groups:
            self.add(group)

    def add(self, group: fmt.Group) -> None:
        self.groups[group.tgid] = group
        for key, schema in brought(group).items():
            self._brought.setdefault(key, {})[group.tgid] = schema

    def pop(self, tgid: int) -> fmt.Group:
        group = self.groups.pop(tgid)
        for key in brought(group):
            del self._brought[key][tgid]
        return group

    def refuse_other(
        self, new: Mapping[str, Schema], catalog: Catalog, fresh: Mapping[str, Schema]
    ) -> None:
        """Two writers may make a bucket at once, each with columns of its own."""
        for key, schema in new.items():
            known = catalog.schema(key) or fresh.get(key)
            known = known or next(iter(self._brought.get(key, {}).values()), None)
            if known is not None and known is not schema:
                raise ValueError(f"{key} was made with other columns meanwhile")


def brought(group: fmt.Group) -> dict[str, Schema]:
    """The buckets that a group would make, or would add a year to."""
    return {key: schema for schema, key, _ in new_files(Change(group, "a prepared group").sets)}
