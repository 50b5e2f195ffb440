"""`copy`: copy the rows of any store to any other as one job, all of them or none.

    from   log   kv   bars   parquet   csv   json
    to     log   kv   bars   parquet   csv   json

Each is a place: a kind, a path and options of Spark's reader or writer.  Between kinds with
different columns, `sql` maps the columns; it selects from the view `source`.  Some pairs have a
default: see DEFAULTS, and the table in docs/jobs.md.

A store gets the rows in one commit.  Local files appear all at once, in a new directory (`making`).
In an object store, files appear as Spark writes them, with `_SUCCESS` when all are complete.
"""

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameWriter, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from holdfast.disk import OsDisk
from holdfast.logs.opening import format_of
from holdfast.spark.jobs.making import made_whole, refuse_taken

Kind = Literal["log", "kv", "bars", "parquet", "csv", "json"]
KINDS: tuple[Kind, ...] = get_args(Kind)
STORES = ("log", "kv", "bars")
_VIEW = "source"
_NEEDED = {
    "log": ("payload",),
    "kv": ("key", "value"),
}  # the sink of bars checks its columns itself

# The default mapping from one kind to another.  Index and key have the same order.
DEFAULTS: Mapping[tuple[str, str], str] = {
    ("log", "log"): "SELECT payload FROM source ORDER BY index",
    ("log", "kv"): "SELECT lpad(index, 20, '0') AS key, payload AS value FROM source",
    ("kv", "kv"): "SELECT key, value FROM source",
    ("kv", "log"): "SELECT value AS payload FROM source ORDER BY key",
    ("bars", "log"): "SELECT to_json(struct(*)) AS payload FROM source ORDER BY symbol, epoch_ns",
    ("bars", "kv"): "SELECT concat(symbol, '/', epoch_ns) AS key, "
    "to_json(struct(*)) AS value FROM source",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A source or a target of rows: `Place("bars", "market", {"timeframe": "1Min", ...})`."""

    kind: Kind
    path: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown kind {self.kind!r}; expected one of {', '.join(KINDS)}")

    @property
    def format(self) -> str:
        return f"holdfast-{self.kind}" if self.kind in STORES else self.kind

    @property
    def is_local(self) -> bool:
        return "://" not in self.path or self.path.startswith("file://")


@dataclass(frozen=True, slots=True)
class CopyReport:
    source: str
    target: str
    source_kind: Kind
    target_kind: Kind
    rows: int
    sql: str | None


def copy(
    spark: SparkSession, source: Place, target: Place, *, sql: str | None = None
) -> CopyReport:
    """Copy all rows, or the result of `sql` over the view `source`.  The files must be new."""
    check_places(source, target)
    chosen = sql or DEFAULTS.get((source.kind, target.kind))
    rows = spark.read.format(source.format).options(**dict(source.options)).load(source.path)
    counter = Observation()
    with _view(spark, rows):
        made = spark.sql(chosen) if chosen else rows
        made = made.observe(counter, F.count(F.lit(1)).alias("rows"))
        _refuse_other_columns(made, target)
        _save(made.write.format(target.format).options(**dict(target.options)), target)
    count = int(counter.get["rows"])
    return CopyReport(source.path, target.path, source.kind, target.kind, count, chosen)


def check_places(source: Place, target: Place) -> None:
    """Refuse places that would fail, before Spark is started."""
    for place in (source, target):
        path = Path(OsDisk(place.path).path) if place.is_local else None
        if path is None or place.kind not in STORES:  # files may be a pattern
            continue
        if place is source:
            try:
                path.stat()  # other errors of the system are raised unchanged
            except FileNotFoundError as error:
                why = f"no {place.kind} store; name its directory"
                raise FileNotFoundError(errno.ENOENT, why, str(path)) from error
        if path.exists() and not path.is_dir():
            raise NotADirectoryError(
                errno.ENOTDIR, f"a file, not a {place.kind} store: name its directory", str(path)
            )
    if source.is_local and source.kind == "log":
        format_of(OsDisk(source.path))
    if target.is_local and target.kind not in STORES:
        refuse_taken(target.path, "copy")


def _save(writer: DataFrameWriter, target: Place) -> None:
    if target.kind in STORES:
        writer.mode("append").save(target.path)
    elif target.is_local:
        with made_whole(target.path, "copy") as making:
            writer.save(Path(making).as_uri())
    else:
        try:
            writer.save(target.path)
        except AnalysisException as error:
            if error.getCondition() != "PATH_ALREADY_EXISTS":
                raise
            raise FileExistsError(f"{target.path} exists: copy into a new directory") from error


@contextmanager
def _view(spark: SparkSession, rows: DataFrame) -> Iterator[None]:
    """Create the view `source` for the job."""
    if spark.catalog.tableExists(_VIEW):
        raise ValueError(f"the session already has a table {_VIEW!r}: use another session")
    rows.createTempView(_VIEW)
    try:
        yield
    finally:
        spark.catalog.dropTempView(_VIEW)


def _refuse_other_columns(rows: DataFrame, target: Place) -> None:
    needed = _NEEDED.get(target.kind, ())
    missing = [name for name in needed if name not in rows.columns]
    if missing:
        raise ValueError(
            f"a {target.kind} target needs the columns {', '.join(needed)}, and there are "
            f"{', '.join(rows.columns)}; map the columns with sql"
        )
