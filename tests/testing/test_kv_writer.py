"""Real writers, really killed and really stopped, on a real directory."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from holdfast.doors import open_kv, read_kv
from holdfast.testing.kv_writer import COUNTER, FENCED, round_key, round_value


class Writer:
    """A process, and what it has said."""

    def __init__(self, url: Path | str, life: int, parallel: int = 1) -> None:
        command = [sys.executable, "-m", "holdfast.testing.kv_writer", str(url)]
        command += ["--life", str(life), "--parallel", str(parallel)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0)
        self.said: dict[str, int] = {}

    @property
    def voice(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    def hear(self, word: str, times: int = 1) -> None:
        """Until it has said this word so often, or is dead."""
        for line in self.voice:
            said, *numbers = line.split()
            self.said[said] = int(numbers[-1]) if numbers else 0
            times -= said == word
            if not times:
                return

    def end(self) -> int:
        """Hear the rest, and its exit code."""
        self.hear("nothing")
        self.voice.close()
        return self.process.wait()


def check(path: Path, acknowledged: int, begun: int) -> int:
    """What the store holds is all that was acknowledged, and no more than was begun."""
    with read_kv(str(path), lazy=True) as reader:
        last = int(reader.get(COUNTER) or 0)
        assert acknowledged <= last <= begun
        rounds = dict(reader.items(prefix=b"round/"))
    assert rounds == {round_key(i): round_value(i) for i in range(1, last + 1)}
    return last


@pytest.mark.parametrize("parallel", [1, 3])
def test_five_real_kills_lose_and_invent_nothing(tmp_path: Path, parallel: int) -> None:
    last = 0
    for life in range(5):
        writer = Writer(tmp_path, life, parallel)
        try:
            writer.hear("ack", 3 + 3 * life)
        finally:
            writer.process.kill()
        assert writer.end() == -signal.SIGKILL
        assert writer.said["open"] >= last
        open_kv(str(tmp_path), create=True, flush_ms=None, watch_ms=None).close()  # gaps are fenced
        last = check(tmp_path, writer.said["ack"], writer.said["begin"])
    assert last > 30


def test_a_stopped_writer_wakes_up_fenced(tmp_path: Path) -> None:
    writer = Writer(tmp_path, 0)
    try:
        writer.hear("ack", 10)
        writer.process.send_signal(signal.SIGSTOP)
        with open_kv(str(tmp_path), create=True) as db:
            number = int(db.get(COUNTER) or 0)
            db.write({COUNTER: b"%d" % (number + 1), b"ours": b"1"}).result()
            writer.process.send_signal(signal.SIGCONT)
            assert writer.end() == FENCED
            assert "fenced" in writer.said
            assert writer.said["ack"] <= number  # what was acknowledged is there
            db.put(b"ours", b"2").result()
    finally:
        writer.process.kill()
        writer.process.wait()
    with read_kv(str(tmp_path)) as reader:
        assert reader.get(COUNTER) == b"%d" % (number + 1)
        assert reader.get(b"ours") == b"2"
        assert reader.get(round_key(number + 1)) is None  # nothing of it after the fence
