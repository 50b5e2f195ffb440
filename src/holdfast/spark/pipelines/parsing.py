"""Parse payloads into columns; bad rows become dead letters, each with the reason.

The good rows and the bad ones are exact complements in every query: the verdict on a row depends on
its bytes alone.  A payload is good if it is UTF-8 and exactly one JSON object or CSV record, every
value fits its column, and every NOT NULL column has a value.

    good    the schema's columns; the source's other ones with an underscore: _index, _key
    bad     source, index (or sequence and key), reason, payload in base64; as JSON
"""

from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls them
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

from holdfast.spark.log_options import CORRUPT_COLUMN
from holdfast.spark.pipelines.checking import PAYLOADS
from holdfast.spark.pipelines.declared import Source

_MISFIT, _ONLY = "__misfit", "__only"  # columns that no schema has
_UNFIT = "does not fit the schema"
_POSITIONS = ("index", "sequence", "key")


@dataclass(frozen=True, slots=True)
class Parsed:
    """A source's rows; `bad` has one column `payload`, for the dead letters, or is nothing."""

    good: DataFrame
    bad: DataFrame | None = None


def reading(source: Source) -> Source:
    """Return the source with the option that reads only the columns which parsing needs."""
    if source.format == "holdfast-log" and source.parse:
        return replace(source, options={**source.options, "columns": "index,payload"})
    return source


def parse(frame: DataFrame, source: Source) -> Parsed:
    """Split the rows of a source.  With mode PERMISSIVE, damage of a log gives bad rows too."""
    lost = F.col(CORRUPT_COLUMN) if CORRUPT_COLUMN in frame.columns else F.lit(None)
    if source.parse is None:
        if CORRUPT_COLUMN not in frame.columns:
            return Parsed(frame)
        good = frame.where(lost.isNull()).drop(CORRUPT_COLUMN)
        return Parsed(good, _letters(frame.where(lost.isNotNull()), source, lost))
    schema = _schema(source)
    text = F.col(PAYLOADS[source.format]).cast("string")
    reader = _Json(schema, source, text) if source.parse == "json" else _Csv(schema, source, text)
    deleted = F.col("deleted") if "deleted" in frame.columns else F.lit(False)
    fits = deleted | F.coalesce(lost.isNull() & F.is_valid_utf8(text) & reader.fits(), F.lit(False))
    others = [
        name for name in frame.columns if name not in (PAYLOADS[source.format], CORRUPT_COLUMN)
    ]
    good = frame.where(fits).select(
        *(F.col(name).alias(f"_{name}") for name in others), reader.row().alias("row")
    )
    reason = F.coalesce(lost, F.when(text.isNull(), "no payload"), _not_utf8(text), reader.reason())
    columns = [f"`_{name}`" for name in others]
    return Parsed(good.selectExpr(*columns, "row.*"), _letters(frame.where(~fits), source, reason))


def _schema(source: Source) -> StructType:
    found = StructType.fromDDL(source.schema or "")
    if isinstance(found, StructType):
        return found
    raise ValueError(f'write schema = "column TYPE, ...", not {source.schema!r}')


def _not_utf8(text: Column) -> Column:
    return F.when(~F.is_valid_utf8(text), "not UTF-8")


def _letters(bad: DataFrame, source: Source, reason: Column) -> DataFrame:
    """Return dead letters: all that is needed to correct a row and send it again."""
    positions = [
        (_base64(F.col(name)) if name == "key" else F.col(name)).alias(name)
        for name in _POSITIONS
        if name in bad.columns
    ]
    payload = _base64(F.col(PAYLOADS[source.format]).cast(BinaryType())).alias("payload")
    letter = F.struct(
        F.lit(source.name).alias("source"), *positions, reason.alias("reason"), payload
    )
    return bad.select(F.to_json(letter).alias("payload"))


def _base64(bytes: Column) -> Column:
    """Encode on one line: Spark breaks lines as mail does."""
    return F.replace(F.base64(bytes), F.lit("\r\n"), F.lit(""))


class _Json:
    """The payload is wrapped: Spark reads the first object of a text and ignores what follows."""

    def __init__(self, schema: StructType, source: Source, text: Column) -> None:
        self._schema, self._text = schema, text
        options = dict(source.parse_options)
        self._options = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MISFIT}
        wrapper = StructType(
            [StructField(_ONLY, ArrayType(schema)), StructField(_MISFIT, StringType())]
        )
        wrapped = F.concat(F.lit(f'{{"{_ONLY}":['), text, F.lit("]}"))
        self._whole = F.from_json(wrapped, wrapper, self._options)

    def row(self) -> Column:
        return F.get(self._whole[_ONLY], F.lit(0))

    def fits(self) -> Column:
        only = (F.size(self._whole[_ONLY]) == 1) & self.row().isNotNull()
        return self._whole[_MISFIT].isNull() & only & _complete(self._schema, self.row())

    def reason(self) -> Column:
        value = F.try_parse_json(F.concat(F.lit("["), self._text, F.lit("]")))
        loose = F.from_json(self._text, self._schema, self._options)
        misfits = [
            F.when(
                F.try_variant_get(value, f"$[0]['{field.name}']", "string").isNotNull()
                & loose[field.name].isNull(),
                f"{field.name} is not {field.dataType.simpleString().upper()}",
            )
            for field in self._schema
        ]
        whole = F.when(value.isNull(), "not JSON").when(
            ~F.schema_of_variant(value).startswith("ARRAY<OBJECT"), "not a JSON object"
        )
        several = F.when(F.try_variant_get(value, "$[1]", "variant").isNotNull(), "not one object")
        return F.coalesce(whole, several, *misfits, _missing(self._schema, loose), F.lit(_UNFIT))


class _Csv:
    def __init__(self, schema: StructType, source: Source, text: Column) -> None:
        self._schema, self._text = schema, text
        self._options = {
            **source.parse_options,
            "mode": "PERMISSIVE",
            "columnNameOfCorruptRecord": _MISFIT,
        }
        self._whole = self._read(schema)

    def _read(self, schema: StructType) -> Column:
        wanted = StructType([*schema, StructField(_MISFIT, StringType())])
        ddl = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in wanted)
        return F.from_csv(self._text, ddl, self._options)

    def row(self) -> Column:
        return F.struct(*(self._whole[name].alias(name) for name in self._schema.fieldNames()))

    def fits(self) -> Column:
        sound = self._whole[_MISFIT].isNull() & (F.trim(self._text) != "")
        return sound & _complete(self._schema, self._whole)

    def reason(self) -> Column:
        texts = StructType([StructField(field.name, StringType()) for field in self._schema])
        loose = self._read(texts)
        count = F.when(loose[_MISFIT].isNotNull(), f"not {len(self._schema)} columns")
        misfits = [
            F.when(
                loose[field.name].isNotNull() & self._whole[field.name].isNull(),
                f"{field.name} is not {field.dataType.simpleString().upper()}",
            )
            for field in self._schema
        ]
        empty = F.when(F.trim(self._text) == "", "empty")
        return F.coalesce(
            empty, count, *misfits, _missing(self._schema, self._whole), F.lit(_UNFIT)
        )


def _complete(schema: StructType, row: Column) -> Column:
    """Every NOT NULL column has a value."""
    present = [row[field.name].isNotNull() for field in schema if not field.nullable]
    return reduce(and_, present, F.lit(True))


def _missing(schema: StructType, row: Column) -> Column:
    checks = [
        F.when(row[field.name].isNull(), f"{field.name} is missing")
        for field in schema
        if not field.nullable
    ]
    return F.coalesce(*checks, F.lit(None))
