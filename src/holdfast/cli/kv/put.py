"""`holdfast kv create`, `put` and `delete`: what is printed as written is durable."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.incoming import in_batches, read_chunks
from holdfast.cli.kv.codec import Codec, Row, row_of
from holdfast.cli.opening import kv_admin, kv_writer, without_query
from holdfast.cli.options import (
    Base64Option,
    CasOption,
    CreateOption,
    HexOption,
    JsonOption,
    StoreUrl,
    TakeOverOption,
    parse_duration_ms,
)
from holdfast.cli.output import answer, answer_json, count_of

if TYPE_CHECKING:
    from holdfast.kv import Kv


def create(
    url: StoreUrl,
    gc_min_age: Annotated[
        int | None,
        typer.Option(
            parser=parse_duration_ms,
            metavar="DURATION",
            help="The garbage collector keeps objects younger than this. Default: 5m. It cannot "
            "be changed later. Writers check again after half of it.",
        ),
    ] = None,
    cas: CasOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create an empty store, durably."""
    if not kv_admin(url, cas, create=True, gc_min_age_ms=gc_min_age).is_new:
        raise FileExistsError(f"{without_query(url)}: a kv store exists already")
    bare = without_query(url)
    answer(f"created {bare}: an empty kv store", {"url": bare, "created": True}, as_json=as_json)


def put(
    url: StoreUrl,
    pairs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY VALUE",
            help="Keys and values; a VALUE of - is read from stdin. Default: JSON lines of stdin.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The file with the value of KEY; without KEY, with JSON lines."
        ),
    ] = None,
    hexadecimal: HexOption = False,
    base64: Base64Option = False,
    batch: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Lines per durable batch of at most 1 MiB."),
    ] = 1000,
    new: CreateOption = False,
    take_over: TakeOverOption = False,
    cas: CasOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set keys durably.

    Reported keys are durable. All pairs on the command line are one atomic write, and so is each
    batch of lines: {"key": ..., "value": ...}, null deletes, key_base64 and value_base64 for bytes.

    A store that another writer has open is refused; --take-over fences that writer.
    """
    codec = Codec.of(hexadecimal=hexadecimal, base64=base64)
    if pairs:
        batches: Iterator[list[Row]] = iter([_pairs(pairs, file, codec)])
    elif hexadecimal or base64:
        raise ValueError(
            "JSON lines have the names key_hex or value_base64 instead of --hex or --base64"
        )
    else:
        batches = in_batches(read_chunks(file, b"\n"), _row, batch)
    with kv_writer(url, cas, take_over=take_over, create=new) as db:
        _write_all(db, batches, "put", as_json=as_json)


def delete(
    url: StoreUrl,
    keys: Annotated[list[str], typer.Argument(metavar="KEY", help="Keys to delete.")],
    hexadecimal: HexOption = False,
    base64: Base64Option = False,
    take_over: TakeOverOption = False,
    cas: CasOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete keys durably, in one atomic write; missing keys are ignored.

    A store that another writer has open is refused, as by put.
    """
    codec = Codec.of(hexadecimal=hexadecimal, base64=base64)
    rows: list[Row] = [(codec.decode(key, "key"), None) for key in keys]
    with kv_writer(url, cas, take_over=take_over) as db:
        _write_all(db, iter([rows]), "deleted", as_json=as_json)


def _pairs(words: list[str], file: Path | None, codec: Codec) -> list[Row]:
    """Return the rows on the command line."""
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


def _row(number: int, line: bytes) -> Row | None:
    return row_of(line, f"input line {number}") if line.strip() else None


def _write_all(db: "Kv", batches: Iterator[list[Row]], verb: str, *, as_json: bool) -> None:
    written = 0
    try:
        for rows in batches:
            last = db.write(rows).result()
            written += len(rows)
            if as_json:
                answer_json({"count": len(rows), "last_seq": last})
    finally:  # also after an error: this much is durable
        if not as_json:
            answer(f"{verb} {count_of(written, 'key')}")
