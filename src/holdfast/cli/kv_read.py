"""`holdfast kv get` and `scan`: read as a guest, beside a live writer too."""

import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.console import JsonOption, answer_bytes
from holdfast.cli.errors import AbsentError
from holdfast.cli.kv_bytes import Base64Option, Codec, HexOption, json_bytes
from holdfast.cli.kv_opening import (
    AtOption,
    CasOption,
    PinOption,
    SnapshotOption,
    StoreUrl,
    reader_of,
)
from holdfast.errors import CorruptError, UnavailableError

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.kv import Reader

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
    """Print the value of a key: its bytes as they are, and nothing else.

    On a terminal a newline follows. Exits with 1 if there is no such key; with --json the error
    is then "absent".
    """
    codec = Codec.of(hexadecimal=hexadecimal, base64=base64)
    wanted = codec.decode(key, "key")
    with reader_of(url, None, at=at, snapshot=snapshot, pin=False) as reader:
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
        str | None, typer.Option(metavar="KEY", help="Only keys that begin with this.")
    ] = None,
    start: Annotated[str | None, typer.Option(metavar="KEY", help="The first key.")] = None,
    stop: Annotated[str | None, typer.Option(metavar="KEY", help="The key to stop before.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="The last key first.")] = False,
    limit: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="At most this many rows.")
    ] = None,
    keys_only: Annotated[bool, typer.Option("--keys-only", help="Leave out the values.")] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Bytes as they are: key, tab, value, newline.")
    ] = False,
    hexadecimal: HexOption = False,
    base64: Base64Option = False,
    at: AtOption = None,
    snapshot: SnapshotOption = None,
    pin: PinOption = False,
    cas: CasOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print rows in the order of their keys, of one state, every checksum verified.

    As key, tab, value; what is not printable is escaped. With --json, one object per line: key and
    value if they are UTF-8, key_base64 and value_base64 if not, and seq. `put` and `load` take such
    lines.
    """
    if raw + hexadecimal + base64 + as_json > 1:
        raise ValueError("--raw, --hex, --base64 and --json exclude each other")
    codec = Codec.of(hexadecimal=hexadecimal, base64=base64)
    first = None if start is None else codec.decode(start, "start")
    last = None if stop is None else codec.decode(stop, "stop")
    begin = codec.decode(prefix or "", "prefix")
    show = _show(codec, raw=raw, as_json=as_json, keys_only=keys_only)
    with reader_of(url, cas, at=at, snapshot=snapshot, pin=pin) as reader:
        batches = _told(reader, reader.scan(first, last, prefix=begin, reverse=reverse))
        for batch in _limited(batches, limit):
            answer_bytes(show(batch))


def _told(reader: "Reader", batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """The same; what is gone although the store still needs it is damage, and no old view."""
    from holdfast.kv.opening import differ
    from holdfast.kv.snapshots import active_ids

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
    """One function that turns a whole batch into what is printed."""

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
