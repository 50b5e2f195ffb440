"""`holdfast kv get` and `scan`: read without a lock, also beside a live writer."""

import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.errors import AbsentError
from holdfast.cli.kv.codec import Codec
from holdfast.cli.opening import kv_reader, refuse_reversed
from holdfast.cli.options import (
    AtOption,
    Base64Option,
    CasOption,
    HexOption,
    JsonOption,
    LimitOption,
    PinOption,
    SnapshotOption,
    StoreUrl,
)
from holdfast.cli.output import answer_bytes, json_bytes
from holdfast.errors import CorruptError, UnavailableError

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.kv import KvReader

Show = Callable[["pa.RecordBatch"], bytes]


def get(
    url: StoreUrl,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key.")],
    hexadecimal: HexOption = False,
    base64: Base64Option = False,
    at: AtOption = None,
    snapshot: SnapshotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the bytes of a value.

    On a terminal a newline follows. Exits with 1 if the key is missing; with --json the error is
    "absent".
    """
    codec = Codec.of(hexadecimal=hexadecimal, base64=base64)
    wanted = codec.decode(key, "key")
    with kv_reader(url, None, at=at, snapshot=snapshot, pin=False) as reader:
        value = reader.get(wanted)
    if value is None:
        raise AbsentError(f"no key {codec.encode(wanted)}")
    if as_json:
        answer_bytes(_json_line(wanted, value, None).encode())
    elif codec.form != "text":
        answer_bytes(f"{codec.encode(value)}\n".encode())
    else:
        answer_bytes(value + (b"\n" if sys.stdout.isatty() else b""))


def scan(
    url: StoreUrl,
    prefix: Annotated[
        str | None, typer.Option(metavar="KEY", help="Only keys with this prefix. Default: all.")
    ] = None,
    start: Annotated[
        str | None, typer.Option(metavar="KEY", help="The first key. Default: the smallest.")
    ] = None,
    stop: Annotated[
        str | None, typer.Option(metavar="KEY", help="Stop before this key. Default: the end.")
    ] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="Print the last key first.")] = False,
    limit: LimitOption = None,
    keys_only: Annotated[bool, typer.Option("--keys-only", help="Print no values.")] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print unescaped bytes: key, tab, value, newline.")
    ] = False,
    hexadecimal: HexOption = False,
    base64: Base64Option = False,
    at: AtOption = None,
    snapshot: SnapshotOption = None,
    pin: PinOption = False,
    cas: CasOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the rows of one state in the order of their keys, and verify their checksums.

    A line is key, tab, value; bytes that are not printable are escaped. A JSON object has key and
    value if they are UTF-8, key_base64 and value_base64 if not, and seq. `put` and `load` read
    such lines.
    """
    if raw + hexadecimal + base64 + as_json > 1:
        raise ValueError("--raw, --hex, --base64 and --json exclude each other")
    codec = Codec.of(hexadecimal=hexadecimal, base64=base64)
    first = None if start is None else codec.decode(start, "start")
    last = None if stop is None else codec.decode(stop, "stop")
    refuse_reversed(first, last, (start, stop))
    begin = codec.decode(prefix or "", "prefix")
    show = _show(codec, raw=raw, as_json=as_json, keys_only=keys_only)
    with kv_reader(url, cas, at=at, snapshot=snapshot, pin=pin) as reader:
        batches = _judged(
            reader, reader.scan(first, last, prefix=begin, reverse=reverse, seqs=True)
        )
        for batch in _limited(batches, limit):
            answer_bytes(show(batch))


def _judged(reader: "KvReader", batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Raise CorruptError for a missing object that the store still needs."""
    from holdfast.kv.snapshots import active_ids
    from holdfast.kv.tables import differ

    manifest_id, manifest = reader.manifest_id, reader.manifest
    try:
        yield from batches
    except UnavailableError as error:
        current = reader.store.latest()
        if not isinstance(error.__cause__, FileNotFoundError) or current is None:
            raise
        active = active_ids(*current, reader.runtime.now_ms())
        if manifest_id not in active and differ(manifest, current[1]):
            raise
        raise CorruptError(str(error.__cause__), 0, "the manifest names it") from error


def _limited(batches: "Iterator[pa.RecordBatch]", limit: int | None) -> "Iterator[pa.RecordBatch]":
    if limit is None:
        yield from batches
        return
    while limit > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, limit)
        limit -= batch.num_rows


def _show(codec: Codec, *, raw: bool, as_json: bool, keys_only: bool) -> Show:
    """Return the function that turns a batch into what is printed."""

    def text_line(key: bytes, value: bytes | None) -> str:
        shown = codec.encode(key)
        return f"{shown}\n" if value is None else f"{shown}\t{codec.encode(value)}\n"

    def show(batch: "pa.RecordBatch") -> bytes:
        keys = batch.column("key").to_pylist()
        values = [None] * len(keys) if keys_only else batch.column("value").to_pylist()
        if raw:
            return b"".join(map(_raw_line, keys, values))
        if as_json:
            lines = map(_json_line, keys, values, batch.column("seq").to_pylist())
        else:
            lines = map(text_line, keys, values)
        return "".join(lines).encode()

    return show


def _raw_line(key: bytes, value: bytes | None) -> bytes:
    return key + b"\n" if value is None else b"%b\t%b\n" % (key, value)


def _json_line(key: bytes, value: bytes | None, seq: int | None) -> str:
    line: dict[str, object] = dict(json_bytes("key", key))
    if value is not None:
        line |= json_bytes("value", value)
    if seq is not None:
        line["seq"] = seq
    return json.dumps(line, ensure_ascii=False) + "\n"
