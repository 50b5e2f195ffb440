"""`holdfast log append`: what is printed as appended is on disk.

Input is split into batches, each durable with one sync.  A batch ends when it is full, or when no
more input is waiting.
"""

import binascii
import os
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.incoming import in_batches, peek_chunks, read_chunks
from holdfast.cli.opening import find_log, log_owner
from holdfast.cli.options import JsonOption, LogPath, SegmentAge, SegmentSize
from holdfast.cli.output import answer, answer_json, count_of

if TYPE_CHECKING:
    from holdfast.logs.log import Log

_Entry = tuple[int, bytes]  # its number in the input, from 1, and the payload


def append(
    path: LogPath,
    payloads: Annotated[
        list[str] | None,
        typer.Argument(metavar="PAYLOAD", help="Entries. Default: lines of stdin."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file to read. Default: stdin.")
    ] = None,
    null: Annotated[
        bool, typer.Option("--null", help="Entries end with a NUL byte instead of a newline.")
    ] = False,
    base64: Annotated[
        bool, typer.Option("--base64", help="Entries are base64, for payloads of any bytes.")
    ] = False,
    whole: Annotated[bool, typer.Option("--whole", help="The whole input is one entry.")] = False,
    skip_empty: Annotated[bool, typer.Option("--skip-empty", help="Skip empty lines.")] = False,
    batch: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Entries per durable batch of at most 1 MiB."),
    ] = 1000,
    segment_size: SegmentSize = None,
    segment_age: SegmentAge = None,
    as_json: JsonOption = False,
) -> None:
    """Append entries durably, one per line of input.

    Reported entries are on disk.  With --json, each durable batch is one line.  After a failure,
    a prefix of the failed batch may be in the log.  An empty line is an empty entry; Shanghai logs
    have none.  There it is an error before anything of a file is written; from a pipe, complete
    batches before it are.
    """
    if payloads and (file or null or whole):
        raise ValueError("PAYLOAD and --file, --null or --whole exclude each other")
    if null and whole:
        raise ValueError("--null and --whole exclude each other")
    separator = None if whole else b"\0" if null else b"\n"
    given = [[os.fsencode(payload) for payload in payloads]] if payloads else None
    takes_empty = skip_empty or find_log(path).takes_empty
    take = _taker(base64=base64, skip_empty=skip_empty, takes_empty=takes_empty)
    if base64 or not takes_empty:  # all of it, if it can be read twice, before anything is written
        for _ in in_batches(given or peek_chunks(file, separator), take, batch):
            pass
    limits = {"segment_size_max": segment_size, "segment_age_max_ms": segment_age}
    with log_owner(path, as_json=as_json, **limits) as log:
        chunks = given or read_chunks(file, separator)
        _append_all(log, in_batches(chunks, take, batch), as_json=as_json)


def _taker(*, base64: bool, skip_empty: bool, takes_empty: bool) -> "Callable[..., _Entry | None]":
    """Return the function that makes entries of the input, and refuses what is not valid."""

    def take(number: int, text: bytes) -> _Entry | None:
        payload = _decoded(number, text) if base64 else text
        if not payload and not takes_empty:
            why = f"input entry {number} is empty, which logs of this format do not allow"
            raise ValueError(f"{why}; --skip-empty skips empty lines")
        return None if skip_empty and not payload else (number, payload)

    return take


def _append_all(log: "Log", batches: Iterator[list[_Entry]], *, as_json: bool) -> None:
    first, last = log.last_index + 1, log.last_index
    try:
        for batch in batches:
            last, count = log.append([payload for _, payload in batch]), len(batch)
            if as_json:
                answer_json({"first_index": last + 1 - count, "last_index": last, "count": count})
    finally:  # also after an error: this much is durable
        if not as_json:
            count = last + 1 - first
            span = f": {first}..{last}" if count else ""
            answer(f"appended {count_of(count, 'entry')}{span}")


def _decoded(number: int, text: bytes) -> bytes:
    try:
        return b64decode(text.strip(), validate=True)
    except binascii.Error as error:
        raise ValueError(f"input entry {number} is not base64: {error}") from error
