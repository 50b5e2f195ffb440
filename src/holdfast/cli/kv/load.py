"""`holdfast kv load`: files into a store, all of them or nothing, beside its writer."""

import errno
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.kv.codec import Codec
from holdfast.cli.opening import kv_admin
from holdfast.cli.options import (
    Base64Option,
    CasOption,
    CreateOption,
    FileFormatOption,
    HexOption,
    JsonOption,
    MasterOption,
    SparkOption,
    StoreUrl,
)
from holdfast.cli.output import answer, count_of, human_size, progress
from holdfast.cli.sparking import spark_session

if TYPE_CHECKING:
    from holdfast.cli.kv.files import Columns
    from holdfast.formats.sst import Rows
    from holdfast.kv.admin import KvAdmin, LoadReport

Named = Sequence[tuple[str, str]]  # files and their formats

Files = Annotated[
    list[str],
    typer.Argument(metavar="FILE", help="Files to load; - is stdin (CSV or JSON lines)."),
]
KeyOption = Annotated[str, typer.Option(metavar="COLUMN", help="The column of keys.")]
ValueOption = Annotated[str, typer.Option(metavar="COLUMN", help="The column of values.")]
SortedOption = Annotated[
    bool,
    typer.Option(
        "--sorted", help="Keys ascend over all files: load them without sorting, or refuse."
    ),
]
ZstdOption = Annotated[
    bool, typer.Option("--zstd", help="Compress the SSTs with zstd. Default: no compression.")
]
TransactionOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME:N",
        help="Load once: nothing happens if the store has N or more of NAME. Default: none.",
    ),
]


def load(
    url: StoreUrl,
    files: Files,
    format: FileFormatOption = None,
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
    """Load files of keys and values in one atomic write, beside a live writer.

    Of a key that comes twice the last row counts. A null value deletes its key; an empty field of
    a CSV file is an empty value. Rows are sorted here, some 256 MiB at a time.
    """
    from holdfast.cli.kv.files import Columns
    from holdfast.tabular import format_of

    codec = Codec.of(hexadecimal=hexadecimal, base64=base64)
    if spark and (codec.form != "text" or is_sorted):
        raise ValueError("--spark excludes --hex, --base64 and --sorted")
    named = [(file, format_of(file, format)) for file in files]
    noted = _transaction(transaction)
    _require(named, spark=spark)
    admin = kv_admin(url, cas, create=new)
    if spark:
        options = _options(cas, noted, zstd)
        done = _load_with_spark(admin, url, named, (key, value), noted, options, master)
    else:
        columns = Columns(key, value, codec)
        with progress("loading") as on_progress:
            chunks = _chunks(named, columns, on_progress)
            done = admin.load(
                _rising(chunks) if is_sorted else chunks,
                is_sorted=is_sorted,
                transaction=noted,
                compression="zstd" if zstd else None,
            )
    answer(_text(done), done, as_json=as_json)


def _text(done: "LoadReport") -> str:
    if not done.loaded:
        return "nothing to load: the store has this transaction already"
    size = f", {human_size(done.bytes)}" if done.bytes else ""
    again = done.rows_read - done.rows
    hidden = f"; {count_of(again, 'row')} replaced by a later one of the same key"
    return f"loaded {count_of(done.rows, 'row')}{size}{hidden if again else ''}"


def _chunks(
    files: Named, columns: "Columns", on_progress: Callable[[int, int], None]
) -> "Iterator[Rows]":
    """Yield the rows of all files, with progress."""
    from holdfast.cli.kv.files import read_rows

    sizes = [0 if file == "-" else Path(file).stat().st_size for file, _ in files]
    done = 0
    for (file, format), size in zip(files, sizes, strict=True):
        for rows, part in read_rows(file, format, columns):
            on_progress(done + int(part * size), sum(sizes))
            yield rows
        done += size


def _rising(chunks: "Iterator[Rows]") -> "Iterator[Rows]":
    """Yield the same rows; ValueError if keys do not ascend."""
    last = b""
    for rows in chunks:
        if len(rows) and (not rows.is_sorted() or rows.keys[0].as_py() <= last):
            raise ValueError("keys do not ascend; without --sorted, rows are sorted")
        last = rows.keys[-1].as_py() if len(rows) else last
        yield rows


def _load_with_spark(
    admin: "KvAdmin",
    url: str,
    files: Named,
    columns: tuple[str, str],
    transaction: tuple[str, int] | None,
    options: dict[str, str],
    master: str | None,
) -> "LoadReport":
    """Load with the tasks of Spark."""
    from holdfast.kv.admin import LoadReport

    if transaction is not None and admin.has_transaction(transaction):
        return LoadReport(loaded=False)
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
    return LoadReport(True, count, count)


def _options(cas: str | None, transaction: tuple[str, int] | None, zstd: bool) -> dict[str, str]:
    """Return the options of the data source."""
    asked = {
        "cas": cas,
        "compression": "zstd" if zstd else None,
        "txnAppId": transaction and transaction[0],
        "txnVersion": transaction and str(transaction[1]),
    }
    return {name: value for name, value in asked.items() if value is not None}


def _require(files: Named, *, spark: bool) -> None:
    """Check that all files exist.  Spark also reads a directory of files."""
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
        raise ValueError(f"cannot parse --transaction {text!r}; expected NAME:N with an integer")
    return name, int(number)
