"""Logs for the tests here, and ways to harm them."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from holdfast.disk import OsDisk
from holdfast.doors import read_log
from holdfast.logs.shanghai import ShanghaiLog
from holdfast.runtime import now_ms

SEGMENTS = tuple(f"segment_0000{number}.wal" for number in (1, 2, 3, 4))


def payload(index: int) -> bytes:
    return b"%05d" % index  # with its header, an entry takes 13 bytes


def make_log(path: Path, *, segments: int = 4, entries: int = 10) -> Path:
    """Segments of ten entries each, cleanly closed: indexes 1..40."""
    with closing(ShanghaiLog(OsDisk(path))) as log:
        for segment in range(segments):
            if segment:
                log.rotate()
            first = segment * entries + 1
            log.append([payload(index) for index in range(first, first + entries)])
    return path


def append(path: Path, payloads: Sequence[bytes], *, rotate: bool = False) -> None:
    with closing(ShanghaiLog(OsDisk(path))) as log:
        log.append(payloads)
        if rotate:
            log.rotate()


def contents(path: Path) -> list[bytes]:
    with read_log(path) as log:
        return [value for batch in log.scan() for value in batch["payload"].to_pylist()]


def rot(path: Path, segment: str, entry: int) -> None:
    """Flip a bit of the payload of one entry."""
    overwrite(path, segment, 64 + 13 * entry + 8, b"\xff")


def overwrite(path: Path, segment: str, offset: int, data: bytes) -> None:
    with (path / segment).open("r+b") as file:
        file.seek(offset)
        file.write(data)


def staged(path: Path) -> list[str]:
    """All that tasks have staged and no commit or sweep has removed, whatever its ending."""
    found = [*path.glob("staging/*"), *path.glob(".staging/*")]
    return sorted(file.name for file in found if file.suffix != ".json")


def sweep_until_clear(path: Path, sweep: Callable[[Callable[[], int]], object]) -> None:
    """A task may outlive its failed job and stage a file: a sweep two days later removes it."""
    deadline = time.monotonic() + 60
    while True:
        sweep(lambda: now_ms() + 2 * 86_400_000)
        if not (left := staged(path)):
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"a later sweep leaves {left}")
        time.sleep(0.05)


def tree(path: Path) -> dict[str, tuple[int, int]]:
    """What a guest must leave as it was."""
    return {
        str(file): (file.stat().st_size, file.stat().st_mtime_ns)
        for file in sorted(path.rglob("*"))
    }
