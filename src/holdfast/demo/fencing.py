"""Freeze a writer of the kv store, let another one take over, and wake the first: it is fenced.

Everything that the frozen writer had acknowledged must be readable.  Nothing that it tries to write
after it wakes may be.
"""

import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import holdfast
from holdfast.demo.acts import Measured, Promise
from holdfast.demo.writer import number_key
from holdfast.errors import HoldfastError

_ACKS = 25  # before the writer is frozen
_FROZEN_SECONDS = 1.0


def freeze_and_fence(prices: Path) -> Measured:
    """Raise HoldfastError if the writer fails in another way than by being fenced."""
    command = [sys.executable, "-m", "holdfast.demo.writer", "kv", str(prices)]
    # A process group of its own: Ctrl-C reaches only this process, which then kills the writer.
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0) as process,
        ExitStack() as ending,
    ):
        ending.callback(process.kill)  # SIGKILL ends a stopped process too
        epoch = int(_hear(process, "open")[1])
        for _ in range(_ACKS):
            acknowledged = int(_hear(process, "ack")[1])
        process.send_signal(signal.SIGSTOP)
        time.sleep(_FROZEN_SECONDS)
        with holdfast.open_kv(prices, maintain=False) as successor:
            process.send_signal(signal.SIGCONT)
            while (words := _hear(process, "ack", "fenced"))[0] == "ack":
                acknowledged = int(words[1])  # written to the pipe before it froze
            successor.refresh()
            found = {key for key, _ in successor.items(prefix=b"number/%d/" % epoch)}
            new_epoch, error = successor.epoch, " ".join(words[1:])
    wanted = {number_key(epoch, n) for n in range(1, acknowledged + 1)}
    in_flight = {number_key(epoch, acknowledged + 1)}  # may have landed before it froze
    lost, stray = len(wanted - found), len(found - wanted - in_flight)
    figures = {"epoch": epoch, "successor": new_epoch, "acknowledged": acknowledged}
    return {**figures, "lost": lost, "invented": stray, "error": error}, [
        Promise(not lost, f"{acknowledged:,} puts acknowledged, {lost:,} lost"),
        Promise(new_epoch > epoch, f"FENCED epoch {epoch} < {new_epoch}: {error}"),
        Promise(not stray, f"{stray:,} rows readable that it wrote after that"),
    ]


def _hear(process: "subprocess.Popen[str]", *expected: str) -> list[str]:
    assert process.stdout is not None
    words = process.stdout.readline().split()
    if not words or words[0] not in expected:
        raise HoldfastError(f"the writer reported {words}; expected {' or '.join(expected)}")
    return words
