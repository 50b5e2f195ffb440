"""A writer is frozen by SIGSTOP, another takes over, and the first wakes up: it is fenced.

What the frozen one had acknowledged must be there.  What it tries to write after it wakes must not.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path

from holdfast.demo.clerk import clerk_key
from holdfast.demo.results import Fencing
from holdfast.errors import HoldfastError
from holdfast.kv import Db

_ACKS = 25  # before it is frozen
_FROZEN_SECONDS = 1.0
_OURS = b"clerk/successor"


def freeze_and_fence(prices: Path) -> Fencing:
    """HoldfastError if the writer cannot play its part at all."""
    began = time.monotonic()
    writer = subprocess.Popen(
        [sys.executable, "-m", "holdfast.demo.clerk", str(prices)],
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    try:
        return _play(writer, prices, began)
    finally:
        writer.send_signal(signal.SIGCONT)  # a frozen process is not killed by SIGTERM
        writer.kill()
        writer.wait()
        assert writer.stdout is not None
        writer.stdout.close()


def _play(writer: "subprocess.Popen[str]", prices: Path, began: float) -> Fencing:
    epoch = int(_word(writer, "open")[0])
    opened_at = time.monotonic() - began
    acks = [_word(writer, "ack") for _ in range(_ACKS)]
    writer.send_signal(signal.SIGSTOP)
    frozen_at = time.monotonic() - began
    time.sleep(_FROZEN_SECONDS)
    with Db.open(str(prices), maintain=False) as db:
        taken_at = time.monotonic() - began
        db.put(_OURS, b"%d" % db.epoch).result()
        writer.send_signal(signal.SIGCONT)
        woken_at = time.monotonic() - began
        late, why = [], ""
        while not why:
            word, *rest = _line(writer)
            if word == "ack":  # said before it froze, and heard only now
                late.append(int(rest[0]))
            elif word == "fenced":
                why = " ".join(rest)
        fenced_at = time.monotonic() - began
        acknowledged = max([int(numbers[0]) for numbers in acks] + late)
        db.refresh()
        found = {key for key, _ in db.items(prefix=b"clerk/%d/" % epoch)}
        wanted = {clerk_key(epoch, number) for number in range(1, acknowledged + 1)}
        in_flight = {clerk_key(epoch, acknowledged + 1)}  # may have landed before it froze
        return Fencing(
            epoch=epoch,
            successor=db.epoch,
            acknowledged=acknowledged,
            lost=len(wanted - found),
            stray=len(found - wanted - in_flight),
            why=why,
            latencies_us=tuple(int(numbers[1]) for numbers in acks),
            opened_at=opened_at,
            frozen_at=frozen_at,
            taken_at=taken_at,
            woken_at=woken_at,
            fenced_at=fenced_at,
        )


def _word(writer: "subprocess.Popen[str]", word: str) -> list[str]:
    found, *rest = _line(writer)
    if found != word:
        raise HoldfastError(f"the writer said {found!r} instead of {word!r}")
    return rest


def _line(writer: "subprocess.Popen[str]") -> list[str]:
    assert writer.stdout is not None
    line = writer.stdout.readline()
    if not line:
        raise HoldfastError(f"the writer ended with exit code {writer.wait()}")
    return line.split()
