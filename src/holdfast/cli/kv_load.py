"""`holdfast kv load`: files into a store, all of them or nothing, beside its writer."""

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.console import JsonOption, answer, answer_json, progress
from holdfast.cli.kv_bytes import Base64Option, Codec, HexOption
from holdfast.cli.kv_opening import CasOption, StoreUrl, bucket_to_write, make_store
from holdfast.cli.kv_report import SparkOption
from holdfast.cli.kv_write import CreateOption
from holdfast.cli.sparking import MasterOption, spark_session
from holdfast.cli.units import count_of, human_size
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.bucket import Bucket
    from holdfast.cli.kv_files import Columns
    from holdfast.formats.sst import Rows
    from holdfast.kv.bulk import BulkLoad
    from holdfast.kv.tasks import SstMeta

Named = Sequence[tuple[str, str]]  # files and their formats

Files = Annotated[
    list[str],
    typer.Argument(metavar="FILE", help="What to load; - is stdin (CSV or JSON lines)."),
]
FormatOption = Annotated[
    str | None,
    typer.Option(metavar="FORMAT", help="csv, parquet, arrow or jsonl, if names do not tell."),
]
KeyOption = Annotated[str, typer.Option(metavar="COLUMN", help="The column of keys.")]
ValueOption = Annotated[str, typer.Option(metavar="COLUMN", help="The column of values.")]
SortedOption = Annotated[
    bool,
    typer.Option(
        "--sorted", help="Keys rise over all files: loaded as they come, or refused if not."
    ),
]
ZstdOption = Annotated[bool, typer.Option("--zstd", help="Compress what is stored.")]
TransactionOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME:N",
        help="Load this once: nothing happens if N, or more, of NAME is in the store.",
    ),
]


@dataclass(frozen=True, slots=True)
class Loaded:
    """What came into the store; `rows` without those that a later one of the same key replaced."""

    loaded: bool  # False: the store had this transaction already
    rows_read: int = 0
    rows: int = 0
    runs: int = 0
    ssts: int = 0
    bytes: int = 0


def load(
    url: StoreUrl,
    files: Files,
    format: FormatOption = None,
    key: KeyOption = "key",
    value: ValueOption = "value",
    is_sorted: SortedOption = False,
    zstd: ZstdOption = False,
    transaction: TransactionOption = None,
    hexadecimal: HexOption = False,
    base64: Base64Option = False,
    new: CreateOption = False,
    spark: SparkOption = False,
    master: MasterOption = None,
    cas: CasOption = None,
    as_json: JsonOption = False,
) -> None:
    """Load files of keys and values, all or nothing, without disturbing the writer.

    Readers see all of the load or none of it. Of a key that comes twice the last row counts. A
    value that is null deletes its key; an empty field of a CSV file is an empty value. Rows are
    sorted here, some 256 MiB at a time.
    """
    from holdfast.cli.kv_files import Columns, format_of

    codec = Codec.of(hexadecimal=hexadecimal, base64=base64)
    if spark and (codec.form != "text" or is_sorted):
        raise ValueError("--spark excludes --hex, --base64 and --sorted")
    named = [(file, format_of(file, format)) for file in files]
    noted = _transaction(transaction)
    _require(named, spark=spark)
    bucket = bucket_to_write(url, cas, create=new)
    if new:
        make_store(bucket)
    if _is_noted(bucket, noted):
        done = Loaded(loaded=False)
    elif spark:
        done = _load_with_spark(url, named, (key, value), _options(cas, noted, zstd), master)
    else:
        source = _Source(named, Columns(key, value, codec))
        done = _load_here(bucket, source, noted, is_sorted=is_sorted, zstd=zstd)
    _tell(done, as_json=as_json)


def _tell(done: Loaded, *, as_json: bool) -> None:
    if as_json:
        answer_json(asdict(done))
    elif not done.loaded:
        answer("nothing to load: the store has this transaction already")
    else:
        size = f", {human_size(done.bytes)}" if done.bytes else ""
        again = done.rows_read - done.rows
        hidden = f"; {count_of(again, 'row')} replaced by a later one of the same key"
        answer(f"loaded {count_of(done.rows, 'row')}{size}{hidden if again else ''}")


class _Source:
    """The rows of all files, counted, with progress."""

    def __init__(self, files: Named, columns: "Columns") -> None:
        self._files, self._columns, self.row_count = files, columns, 0

    def chunks(self, on_progress: Callable[[int, int], None]) -> "Iterator[Rows]":
        from holdfast.cli.kv_files import read_rows

        sizes = [0 if file == "-" else Path(file).stat().st_size for file, _ in self._files]
        done = 0
        for (file, format), size in zip(self._files, sizes, strict=True):
            for rows, place in read_rows(file, format, self._columns):
                self.row_count += len(rows)
                on_progress(done + place, max(sum(sizes), done + place))
                yield rows
            done += size


def _load_here(
    bucket: "Bucket",
    source: _Source,
    transaction: tuple[str, int] | None,
    *,
    is_sorted: bool,
    zstd: bool,
) -> Loaded:
    from holdfast.kv.bulk import BulkLoad
    from holdfast.kv.plans import CompactionOptions

    options = CompactionOptions(compression="zstd" if zstd else None)
    load = BulkLoad(bucket, options=options, transaction=transaction)
    if load.is_committed:
        return Loaded(loaded=False)
    try:
        with progress("loading") as on_progress:
            runs = _write(bucket, load, source.chunks(on_progress), is_sorted=is_sorted)
        loaded = load.commit_runs(runs)
    except BaseException:
        with suppress(HoldfastError):  # it expires; what must be told is the first error
            load.abandon()
        raise
    ssts = [sst.info for run in runs for sst in run]
    rows, size = sum(info.row_count for info in ssts), sum(info.size for info in ssts)
    return Loaded(loaded, source.row_count, rows, len(runs), len(ssts), size)


def _write(
    bucket: "Bucket", load: "BulkLoad", chunks: "Iterator[Rows]", *, is_sorted: bool
) -> "list[list[SstMeta]]":
    """SSTs that nobody sees yet, in runs, the newest first."""
    from holdfast.kv.bulk import write_sorted
    from holdfast.kv.unsorted import arrange, write_runs
    from holdfast.runtime import Runtime

    if not is_sorted:
        runs = write_runs(bucket, load.job, chunks, Runtime())
        return arrange(bucket, load.job, runs, Runtime())
    return [write_sorted(bucket, load.job, _rising(chunks))]


def _rising(chunks: "Iterator[Rows]") -> "Iterator[Rows]":
    """The same, if keys rise over all of them."""
    last = b""
    for rows in chunks:
        if len(rows) and (not rows.is_sorted() or rows.keys[0].as_py() <= last):
            raise ValueError("keys do not rise from row to row; without --sorted, rows are sorted")
        last = rows.keys[-1].as_py() if len(rows) else last
        yield rows


def _load_with_spark(
    url: str,
    files: Named,
    columns: tuple[str, str],
    options: dict[str, str],
    master: str | None,
) -> Loaded:
    """The same by Spark's tasks."""
    with spark_session(master, "loading") as session:
        from functools import reduce

        from pyspark.sql import DataFrame, Observation
        from pyspark.sql import functions as f

        def frame(file: str, format: str) -> DataFrame:
            reader = session.read.option("header", "true")
            found = reader.format(format).load(str(Path(file).resolve()))
            key, value = (found[name] for name in columns)
            if format == "csv":  # where an empty field is an empty value, not a deletion
                value = f.coalesce(value, f.lit(""))
            return found.select(key.alias("key"), value.alias("value"))

        seen = Observation()
        rows = reduce(DataFrame.unionByName, [frame(*each) for each in files])
        rows = rows.observe(seen, f.count(f.lit(1)).alias("rows"))
        rows.write.format("holdfast-kv").options(**options).mode("append").save(url)
        count = int(seen.get["rows"])
    return Loaded(True, count, count)


def _options(cas: str | None, transaction: tuple[str, int] | None, zstd: bool) -> dict[str, str]:
    """Those of the data source, as far as there are any."""
    asked = {
        "cas": cas,
        "compression": "zstd" if zstd else None,
        "txnAppId": transaction and transaction[0],
        "txnVersion": transaction and str(transaction[1]),
    }
    return {name: value for name, value in asked.items() if value is not None}


def _is_noted(bucket: "Bucket", transaction: tuple[str, int] | None) -> bool:
    from holdfast.reports.kv import report_manifest

    if transaction is None:
        return False
    name, number = transaction
    return number <= report_manifest(bucket).transactions.get(name, -1)


def _require(files: Named, *, spark: bool) -> None:
    """That all can be read.  Spark reads a directory of files as one, and writes such."""
    for file, format in files:
        if spark and (file == "-" or format not in ("csv", "parquet")):
            raise ValueError(f"--spark loads csv and parquet files, not {file} of {format}")
        path = Path(file)
        if file != "-" and not (path.is_file() or (spark and path.is_dir())):
            raise FileNotFoundError(errno.ENOENT, "no such file", file)


def _transaction(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    name, colon, number = text.rpartition(":")
    if not (name and colon and number.isdecimal()):
        raise ValueError(f"write --transaction NAME:N with a whole number, not {text!r}")
    return name, int(number)
