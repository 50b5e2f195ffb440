"""`copy`: the rows of any store into any other, as one job, all of them or nothing.

    from   log   kv   bars   parquet   csv   json
    to     log   kv   bars   parquet   csv   json

Each is a place: a kind, a path and options, as Spark's reader or writer takes them.  Between kinds
that have other columns, `sql` says what becomes what; `source` is the view to select from.  Where
that is obvious it may be left out: see DEFAULTS, and the table in docs/jobs.md.

A store of ours takes the rows as one commit.  Files appear all at once, in a directory that is new
(`making`); elsewhere than on this machine's file systems as Spark writes them, with `_SUCCESS` when
all are there.
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
from holdfast.logs.open import format_of
from holdfast.spark.jobs.making import made_whole, refuse_taken

Kind = Literal["log", "kv", "bars", "parquet", "csv", "json"]
KINDS: tuple[Kind, ...] = get_args(Kind)
STORES = ("log", "kv", "bars")
_VIEW = "source"
_NEEDED = {"log": ("payload",), "kv": ("key", "value")}  # bars say so themselves

# How rows of one kind become rows of another, if nothing else is said.  Index and key sort alike.
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
    """Where rows are, or go: `Place("bars", "market", {"timeframe": "1Min", ...})`."""

    kind: Kind
    path: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"no kind of place {self.kind!r}; there are {', '.join(KINDS)}")

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
    """Copy all rows, or what `sql` makes of the view `source`.  Files must not be there yet."""
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
    """Refuse what can be known to fail before Spark is started for it."""
    for place in (source, target):
        path = Path(OsDisk(place.path).path) if place.is_local else None
        if path is None or place.kind not in STORES:  # files may be a pattern
            continue
        if place is source:
            try:
                path.stat()  # what cannot be reached, the system tells best
            except FileNotFoundError as error:
                why = f"there is no {place.kind} store: name its directory"
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
    """`source`, for as long as the job takes."""
    if spark.catalog.tableExists(_VIEW):
        raise ValueError(f"the session has a table {_VIEW!r} of its own: use another session")
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
            f"{', '.join(rows.columns)}: say with sql what becomes what"
        )
