"""The real zmq-raft, run by Node: it reads one command per line."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

DRIVER = Path(__file__).with_name("driver.js")
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "holdfast" / "zmq-raft"
INSTALL = "npm install --ignore-scripts --prefix DIRECTORY zmq-raft@0.5.0 debug"


def find_package() -> tuple[Path | None, str]:
    """Where zmq-raft is installed, or why it cannot be used."""
    if shutil.which("node") is None:
        return None, "no Node here: apt-get install nodejs npm"
    package = Path(os.environ.get("HOLDFAST_ZMQ_RAFT", CACHE))
    if not (package / "node_modules" / "zmq-raft").is_dir():
        return None, f"no zmq-raft in HOLDFAST_ZMQ_RAFT or {CACHE}: {INSTALL}"
    return package, ""


class Node:
    """A process that carries out commands on a FileLog."""

    def __init__(self, package: Path, *arguments: str) -> None:
        self._process = subprocess.Popen(
            ["node", str(DRIVER), str(package), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, command: str, **fields: Any) -> Any:
        self.send(command, **fields)
        assert self._process.stdout is not None
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, f"{command}: {answer['error']}"
        return answer["done"]

    def send(self, command: str, **fields: Any) -> None:
        """Send a command, and do not wait for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"command": command, **fields}) + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def stop(self) -> None:
        self._process.communicate()
