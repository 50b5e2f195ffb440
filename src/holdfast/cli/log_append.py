"""`holdfast log append`: what is printed as appended is on disk.

Input is cut into batches, each durable with one sync.  A batch ends when it is full, or when no
more input is waiting: nobody's entry is held back for want of another.
"""

import binascii
import os
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.console import JsonOption, LogPath, answer, answer_json
from holdfast.cli.incoming import read_chunks
from holdfast.cli.opening import SegmentAge, SegmentSize, owner_of
from holdfast.cli.units import count_of

if TYPE_CHECKING:
    from holdfast.logs.log import Log

_BATCH_SIZE_MAX = 2**20


def append(
    path: LogPath,
    payloads: Annotated[
        list[str] | None,
        typer.Argument(metavar="PAYLOAD", help="Entries; without any, stdin is read."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read this file instead of stdin.")
    ] = None,
    null: Annotated[
        bool, typer.Option("--null", help="Entries end with a NUL byte instead of a newline.")
    ] = False,
    base64: Annotated[
        bool, typer.Option("--base64", help="Entries are base64, for payloads of any bytes.")
    ] = False,
    whole: Annotated[bool, typer.Option("--whole", help="All the input is one entry.")] = False,
    skip_empty: Annotated[
        bool, typer.Option("--skip-empty", help="Pass over empty lines instead of stopping.")
    ] = False,
    batch: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Entries per durable batch; 1 MiB ends one too."),
    ] = 1000,
    segment_size: SegmentSize = None,
    segment_age: SegmentAge = None,
    as_json: JsonOption = False,
) -> None:
    """Append entries durably, one per line of input.

    What is reported is on disk.  With --json, one line for each batch as soon as it is durable.
    After a failure all that was reported is there, and of the batch that failed a prefix may be.
    """
    if payloads and (file or null or whole):
        raise ValueError("PAYLOAD and --file, --null or --whole exclude each other")
    if null and whole:
        raise ValueError("--null and --whole exclude each other")
    if payloads:
        chunks: Iterator[list[bytes]] = iter([[os.fsencode(payload) for payload in payloads]])
    else:
        chunks = read_chunks(file, None if whole else b"\0" if null else b"\n")
    source = _Entries(chunks, base64=base64, skip_empty=skip_empty)
    sizes = {"segment_size": segment_size, "segment_age": segment_age}
    with owner_of(path, **sizes, as_json=as_json) as log:
        _append_all(log, source, batch, as_json=as_json)


def _append_all(log: "Log", source: "_Entries", batch_max: int, *, as_json: bool) -> None:
    first, last = log.last_index + 1, log.last_index
    try:
        for batch in source.batches(batch_max):
            last = _append_one(log, batch)
            if as_json:
                count = len(batch.payloads)
                acknowledged = {"first_index": last + 1 - count, "last_index": last, "count": count}
                answer_json(acknowledged, line=True)
    finally:  # whatever stopped us, this much is durable
        if not as_json:
            count = last + 1 - first
            span = f": {first}..{last}" if count else ""
            answer(f"appended {count_of(count, 'entry')}{span}")


def _append_one(log: "Log", batch: "_Batch") -> int:
    try:
        return log.append(batch.payloads)
    except ValueError as error:
        if b"" not in batch.payloads:
            raise
        number = batch.numbers[batch.payloads.index(b"")]
        why = f"input entry {number} is empty, and {error}; pass over such with --skip-empty"
        raise ValueError(why) from error


@dataclass(frozen=True, slots=True)
class _Batch:
    payloads: list[bytes]
    numbers: list[int]  # of each in the input, from 1


class _Entries:
    """Entries in batches; a chunk is what came at once, and an empty one means: do not wait."""

    def __init__(self, chunks: Iterator[list[bytes]], *, base64: bool, skip_empty: bool) -> None:
        self._chunks, self._base64, self._skip_empty = chunks, base64, skip_empty

    def batches(self, entries_max: int) -> Iterator[_Batch]:
        batch, size, number = _Batch([], []), 0, 0
        for chunk in self._chunks:
            for text in chunk:
                number += 1
                payload = self._decoded(number, text)
                if not payload and self._skip_empty:
                    continue
                batch.payloads.append(payload)
                batch.numbers.append(number)
                size += len(payload)
                if len(batch.payloads) >= entries_max or size >= _BATCH_SIZE_MAX:
                    yield batch
                    batch, size = _Batch([], []), 0
            if not chunk and batch.payloads:
                yield batch
                batch, size = _Batch([], []), 0
        if batch.payloads:
            yield batch

    def _decoded(self, number: int, text: bytes) -> bytes:
        if not self._base64:
            return text
        try:
            return b64decode(text.strip(), validate=True)
        except binascii.Error as error:
            raise ValueError(f"input entry {number} is not base64: {error}") from error
