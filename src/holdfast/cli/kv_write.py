"""`holdfast kv create`, `put` and `delete`: what is printed as written is durable."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.console import JsonOption, answer, answer_json, remark
from holdfast.cli.incoming import read_chunks
from holdfast.cli.kv_bytes import Base64Option, Codec, HexOption, Row, row_of
from holdfast.cli.kv_opening import (
    CasOption,
    StoreUrl,
    bucket_to_write,
    make_store,
    shown,
    writer_of,
)
from holdfast.cli.units import count_of, parse_duration_ms

if TYPE_CHECKING:
    from holdfast.kv import Db

CreateOption = Annotated[
    bool, typer.Option("--create", help="Make the store if there is none yet.")
]

_BATCH_SIZE_MAX = 2**20
_LONG_WAL = 100  # SSTs, each of which a writer reads when it opens


def create(
    url: StoreUrl,
    gc_min_age: Annotated[
        int | None,
        typer.Option(
            parser=parse_duration_ms,
            metavar="DURATION",
            help="What the garbage collector leaves alone because it is young: 5m unless said; "
            "fixed for the life of the store. Writers look twice after half of it.",
        ),
    ] = None,
    cas: CasOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an empty store, durably."""
    bucket = bucket_to_write(url, cas, create=True)
    if not make_store(bucket, gc_min_age):
        raise FileExistsError(f"{shown(url)}: a kv store is here already")
    if as_json:
        answer_json({"url": shown(url), "created": True})
    else:
        answer(f"created {shown(url)}: an empty kv store")


def put(
    url: StoreUrl,
    pairs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY VALUE",
            help="Keys and values; a VALUE of - is read from stdin. Without any, JSON lines are "
            "read from stdin.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="KEY's value; without KEY, JSON lines to put."),
    ] = None,
    hexadecimal: HexOption = False,
    base64: Base64Option = False,
    batch: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Lines per durable batch; 1 MiB ends one too."),
    ] = 1000,
    new: CreateOption = False,
    cas: CasOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set keys durably.

    What is reported is durable. Pairs on the command line are written all or none, and so is each
    batch of lines: {"key": ..., "value": ...}, null deletes, key_base64 and value_base64 for bytes.

    This takes the store over: a writer that runs elsewhere is fenced and ends.
    """
    codec = Codec.of(hexadecimal=hexadecimal, base64=base64)
    if pairs:
        batches: Iterator[list[Row]] = iter([_pairs(pairs, file, codec)])
    elif hexadecimal or base64:
        raise ValueError("in JSON lines, say key_hex or value_base64 instead of --hex or --base64")
    else:
        batches = _lines(file, batch)
    with writer_of(url, cas, create=new) as db:
        _write_all(db, batches, "put", as_json=as_json)
        _advise(db, url, as_json=as_json)


def delete(
    url: StoreUrl,
    keys: Annotated[list[str], typer.Argument(metavar="KEY", help="Keys to remove.")],
    hexadecimal: HexOption = False,
    base64: Base64Option = False,
    cas: CasOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove keys durably, all or none; those that are not there are fine.

    This takes the store over, as put does.
    """
    codec = Codec.of(hexadecimal=hexadecimal, base64=base64)
    rows: list[Row] = [(codec.decode(key, "key"), None) for key in keys]
    with writer_of(url, cas) as db:
        _write_all(db, iter([rows]), "deleted", as_json=as_json)
        _advise(db, url, as_json=as_json)


def _pairs(words: list[str], file: Path | None, codec: Codec) -> list[Row]:
    """The rows on the command line."""
    if file is not None:
        if len(words) != 1:
            raise ValueError("with --file, give one KEY, or none for JSON lines")
        return [(codec.decode(words[0], "key"), file.read_bytes())]
    if len(words) % 2:
        raise ValueError(f"KEY {words[-1]!r} has no VALUE; put takes pairs")
    if words[1::2].count("-") > 1:
        raise ValueError("only one VALUE can be read from stdin")
    return [
        (
            codec.decode(key, "key"),
            sys.stdin.buffer.read() if value == "-" else codec.decode(value, "value"),
        )
        for key, value in zip(words[::2], words[1::2], strict=True)
    ]


def _lines(file: Path | None, rows_max: int) -> Iterator[list[Row]]:
    """JSON lines in batches; one ends when it is full, or when no more input is waiting."""
    rows, size, number = list[Row](), 0, 0
    for chunk in read_chunks(file, b"\n"):
        for line in chunk:
            number += 1
            if not line.strip():
                continue
            rows.append(row_of(line, f"input line {number}"))
            size += len(line)
            if len(rows) >= rows_max or size >= _BATCH_SIZE_MAX:
                yield rows
                rows, size = [], 0
        if not chunk and rows:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _write_all(db: "Db", batches: Iterator[list[Row]], verb: str, *, as_json: bool) -> None:
    written = 0
    try:
        for rows in batches:
            last = db.write(rows).result()
            written += len(rows)
            if as_json:
                answer_json({"count": len(rows), "last_seq": last}, line=True)
    finally:  # whatever stopped us, this much is durable
        if not as_json:
            answer(f"{verb} {count_of(written, 'key')}")


def _advise(db: "Db", url: str, *, as_json: bool) -> None:
    if db.wal_count >= _LONG_WAL:
        bare = shown(url)
        told = f"the WAL has {db.wal_count} SSTs, which every writer reads when it opens"
        remark(f"{told}; `holdfast kv compact {bare}` makes them few", as_json=as_json)
