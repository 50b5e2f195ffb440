"""Streaming reads: what the sources have in common.

An offset is the position of the next thing to read.  The same range of offsets gives the same rows
whenever it is read, so a batch that Spark replays has the same rows.  If something was deleted
before the stream read it, the query fails; with `failOnDataLoss` false it skips the gap.
"""

import logging
from abc import abstractmethod
from typing import Any, ClassVar

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from holdfast.errors import HoldfastError

LOG = logging.getLogger("holdfast")

Offset = dict[str, int]


class FollowingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows one store.  It lives as long as the query."""

    position: ClassVar[str]  # the name of the position in an offset
    limit: ClassVar[type[ReadMaxRows | ReadMaxFiles]]

    def __init__(self, where: str, most: int | None, *, fail_on_data_loss: bool) -> None:
        self._where, self._most, self._fail_on_data_loss = where, most, fail_on_data_loss
        self._target: int | None = None  # where an available-now run stops
        self._opened: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}  # open files and connections cannot be sent

    @abstractmethod
    def first(self) -> int:
        """Return where a new query begins."""

    @abstractmethod
    def begin(self, start: int) -> int:
        """Return where to continue from `start`; call `lost` for what is missing before it."""

    @abstractmethod
    def end(self, begin: int | None = None) -> int:
        """Return the position after the last that can be read, from `begin` on."""

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        return {self.position: self.first()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadAllAvailable() if self._most is None else self.limit(self._most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        begin = self.begin(start[self.position])
        stop = self.end(begin)
        if self._target is not None:
            stop = min(stop, self._target)
        if isinstance(limit, ReadMaxRows):
            stop = min(stop, begin + limit.max_rows)
        if isinstance(limit, ReadMaxFiles):
            stop = min(stop, begin + limit.max_files)
        return {self.position: max(stop, start[self.position])}

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        return {self.position: self.end()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self.end()

    def commit(self, end: Offset) -> None:
        """Keep nothing: a reader frees nothing."""

    def lost(self, what: str, advice: str) -> None:
        """Fail, or log a warning, because something was deleted before it was read."""
        if self._fail_on_data_loss:
            raise HoldfastError(f"{self._where}: {what}; {advice}")
        LOG.warning("%s: %s; failOnDataLoss is false, so the stream continues", self._where, what)
