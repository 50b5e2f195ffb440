"""Read and write tables of other systems: CSV, JSON lines, Parquet, Arrow, `__arrow_c_stream__`.

Every batch is validated completely before a caller sees it.  A truncated or changed file raises
ValueError with the file's name.  Memory is bounded by one batch of the source.
"""

from holdfast.tabular.casts import cast_column
from holdfast.tabular.reading import FORMATS, TableReader, format_of, read_table
from holdfast.tabular.sources import Dialect
from holdfast.tabular.writing import json_line, json_rows, write_table

__all__ = [
    "FORMATS",
    "Dialect",
    "TableReader",
    "cast_column",
    "format_of",
    "json_line",
    "json_rows",
    "read_table",
    "write_table",
]
