"""`holdfast log cat` and `tail`: read without a lock, also beside a live owner."""

import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.opening import find_log, log_reader, refuse_damage, refuse_reversed
from holdfast.cli.options import (
    FollowOption,
    HexOption,
    IntervalOption,
    JsonOption,
    LimitOption,
    LogPath,
)
from holdfast.cli.output import answer_bytes, json_bytes, printable, remark
from holdfast.errors import ChangedError

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.logs.log import LogReader

RawOption = Annotated[bool, typer.Option("--raw", help="Print only payloads, each with a newline.")]

_ATTEMPTS_MAX = 100  # while the owner changes the log

Show = Callable[["pa.RecordBatch"], bytes]


def cat(
    path: LogPath,
    start: Annotated[
        int | None, typer.Option(metavar="INDEX", help="The first entry. Default: the oldest.")
    ] = None,
    stop: Annotated[
        int | None, typer.Option(metavar="INDEX", help="Stop before this entry. Default: the end.")
    ] = None,
    limit: LimitOption = None,
    raw: RawOption = False,
    hexadecimal: HexOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print entries and verify their checksums.

    A line is index, tab, payload; bytes that are not printable are escaped.  A JSON object has
    index, and payload if it is UTF-8 or payload_base64 if not.  Raft entries are printed by their
    fields: term, type, data, and extensions and appended_at or request_id.  A damaged log is
    printed up to the damage.
    """
    show = _show(raw=raw, hexadecimal=hexadecimal, as_json=as_json)
    refuse_reversed(start, stop, (start, stop))
    with log_reader(path) as guest:
        begin = guest.first_index if start is None else start
        end = guest.last_index + 1 if stop is None else min(stop, guest.last_index + 1)
        if limit is not None:
            end = min(end, begin + limit)
        _print(guest, begin, max(begin, end), show, as_json=as_json)
        if stop is None or end < stop:  # the rest was asked for, and is missing
            refuse_damage(guest.damage)


def tail(
    path: LogPath,
    count: Annotated[
        int, typer.Option("-n", "--lines", min=0, metavar="N", help="The number of entries.")
    ] = 10,
    follow: FollowOption = False,
    interval: IntervalOption = "200ms",  # type: ignore[assignment]  # parsed by the option
    raw: RawOption = False,
    hexadecimal: HexOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print the last entries; with -f, also new ones.

    It follows when the owner rotates, trims or truncates the log.
    """
    from holdfast.doors import read_log

    show = _show(raw=raw, hexadecimal=hexadecimal, as_json=as_json)
    find_log(path)
    guest = read_log(path)
    try:
        start = max(guest.first_index, guest.last_index + 1 - count)
        while True:
            start = _print_new(guest, start, show, as_json=as_json)
            refuse_damage(guest.damage)
            if not follow:
                break
            time.sleep(interval / 1000)
            guest.refresh()
            if guest.damage:  # a live owner can look like damage: open again, which reads twice
                guest.close()
                guest = read_log(path)
    finally:
        guest.close()


def _print_new(guest: "LogReader", start: int, show: Show, *, as_json: bool) -> int:
    """Print the entries from `start` on; return the next index."""
    start = _skip_trimmed(guest, start, as_json=as_json)
    stop = guest.last_index + 1
    if stop < start:
        remark(f"entries {stop}..{start - 1} were truncated after they were read", as_json=as_json)
        start = stop
    return _print(guest, start, stop, show, as_json=as_json)


def _skip_trimmed(guest: "LogReader", start: int, *, as_json: bool) -> int:
    if start < guest.first_index:
        trimmed = f"entries {start}..{guest.first_index - 1} were trimmed before they were read"
        remark(trimmed, as_json=as_json)
    return max(start, guest.first_index)


def _print(guest: "LogReader", start: int, stop: int, show: Show, *, as_json: bool) -> int:
    """Print start..stop-1; return where it ended, earlier only if they were truncated.

    Entries that the owner trims meanwhile are left out, and reported on stderr.
    """
    try:
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            try:
                for batch in guest.scan(start, stop):
                    answer_bytes(show(_decoded(guest, batch)))
                    start += batch.num_rows
                break
            except ChangedError:
                if attempt == _ATTEMPTS_MAX:
                    raise
                guest.refresh()
                start = _skip_trimmed(guest, start, as_json=as_json)
                stop = max(start, min(stop, guest.last_index + 1))
                if start > guest.last_index:
                    break
    finally:
        sys.stdout.buffer.flush()
    return start


def _decoded(guest: "LogReader", batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """Return the batch with the fields of its payloads, if the format has any."""
    from holdfast.logs.log import Described

    fields = guest.decode_columns(batch) if isinstance(guest, Described) else None
    if fields is None:
        return batch
    return fields.append_column("payload", batch.column("payload"))


def _show(*, raw: bool, hexadecimal: bool, as_json: bool) -> Show:
    """Return the function that turns a batch into what is printed."""
    if raw + hexadecimal + as_json > 1:
        raise ValueError("--raw, --hex and --json exclude each other")
    if raw:
        return _show_raw
    line = _hex_line if hexadecimal else _json_line if as_json else _text_line
    fields_line = None if hexadecimal else _json_fields if as_json else _text_fields

    def show(batch: "pa.RecordBatch") -> bytes:
        if fields_line is not None and "term" in batch.schema.names:
            return "".join(map(fields_line, _rows(batch))).encode()
        columns = batch.column("index").to_pylist(), batch.column("payload").to_pylist()
        return "".join(map(line, *columns)).encode()

    return show


def _rows(batch: "pa.RecordBatch") -> list[dict[str, Any]]:
    """Return a dict for each entry; times are text, because Python's have no nanoseconds."""
    if "appended_at" not in batch.schema.names:
        found: list[dict[str, Any]] = batch.to_pylist()
        return found
    times = batch.column("appended_at").cast("string").to_pylist()
    rows: list[dict[str, Any]] = batch.drop_columns(["appended_at"]).to_pylist()
    return [
        {**row, "appended_at": time and time.replace(" ", "T")}
        for row, time in zip(rows, times, strict=True)
    ]


def _show_raw(batch: "pa.RecordBatch") -> bytes:
    return b"".join([piece for p in batch.column("payload").to_pylist() for piece in (p, b"\n")])


def _text_line(index: int, payload: bytes) -> str:
    return f"{index}\t{printable(payload)}\n"


def _text_fields(row: dict[str, Any]) -> str:
    if row["term"] is None:
        return _text_line(row["index"], row["payload"])
    fields = [str(row["index"]), f"term {row['term']}", _type_name(row["type"])]
    fields += [row["request_id"].hex()] if "request_id" in row else []
    fields += [printable(row["data"])] + [f"+{printable(e)}" for e in [row.get("extensions")] if e]
    return "\t".join(fields) + "\n"


def _json_fields(row: dict[str, Any]) -> str:
    if row["term"] is None:
        return _json_line(row["index"], row["payload"])
    answer = {"index": row["index"], "term": row["term"], "type": _type_name(row["type"])}
    if "request_id" in row:
        answer["request_id"] = row["request_id"].hex()
    for field in ("data", "extensions"):
        answer |= json_bytes(field, row[field]) if field in row else {}
    if "appended_at" in row:
        answer["appended_at"] = row["appended_at"]
    return json.dumps(answer, ensure_ascii=False) + "\n"


def _type_name(number: int | str) -> str:
    if isinstance(number, str):
        return number  # of a format that names its types
    from holdfast.formats.raft_entry import TYPE_NAMES

    return TYPE_NAMES[number] if number < len(TYPE_NAMES) else f"type-{number}"


def _hex_line(index: int, payload: bytes) -> str:
    return f"{index}\t{payload.hex()}\n"


def _json_line(index: int, payload: bytes) -> str:
    return json.dumps({"index": index, **json_bytes("payload", payload)}, ensure_ascii=False) + "\n"
