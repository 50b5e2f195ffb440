"""Programs that need not start: each is forked from one process that has imported all they need.

A page runs `holdfast` dozens of times, and each start takes a second of imports.  `Programs` puts a
`holdfast` on the PATH of real shells that hands its arguments, its directory, its environment and
its three streams to a server; that forks, and the child is the program from then on.
"""

import gc
import importlib
import json
import os
import pkgutil
import runpy
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

_CLIENT = """#!{python} -IS
import os, socket, sys
sys.path.append({lib!r})
import json
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
asked = json.dumps([[{name!r}, *sys.argv[1:]], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(asked).to_bytes(4, "little")], [0, 1, 2])
server.sendall(asked)
os._exit(int(server.recv(4) or b"99"))
"""

# Arrow's allocator starts a thread, and a process with threads must not fork.
_NO_THREADS = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}


class Programs:
    """A directory with `holdfast` and `page`, which runs a file of Python; and their server."""

    def __init__(self, directory: Path) -> None:
        self.directory, address = directory, directory / "server"
        for name in ("holdfast", "page"):
            program = directory / name
            lib = str(Path(json.__file__).parents[1])
            client = {"python": sys.executable, "lib": lib, "address": str(address), "name": name}
            program.write_text(_CLIENT.format(**client))
            program.chmod(0o700)
        self._server = subprocess.Popen(
            [sys.executable, __file__, str(address)],
            env={**os.environ, **_NO_THREADS},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == b"ready\n"

    def shell(self, command: str, directory: Path) -> str:
        """What a person sees that types this."""
        path = [str(self.directory), str(Path(sys.executable).parent), os.environ["PATH"]]
        return run_shell(command, directory, os.pathsep.join(path))

    def close(self) -> None:
        with self._server:
            self._server.kill()
        shutil.rmtree(self.directory)


def run_shell(command: str, directory: Path, path: str) -> str:
    result = subprocess.run(
        ["bash", "-c", command],
        cwd=directory,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return result.stdout


def _serve(address: str) -> None:
    """Until killed.  For each client a process that waits, and one that is the program."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    while True:
        client, _ = server.accept()
        if os.fork() == 0:
            server.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _attend(client)
        client.close()


def _attend(client: socket.socket) -> None:
    size, streams, _, _ = socket.recv_fds(client, 4, 3)
    with client.makefile("rb") as asked:
        arguments, directory, environment = json.loads(asked.read(int.from_bytes(size, "little")))
    program = os.fork()
    if program == 0:
        client.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        return _become(arguments)
    status = os.waitpid(program, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    client.sendall(b"%d" % (code if code >= 0 else 128 - code))
    os._exit(0)


def _become(arguments: list[str]) -> None:
    sys.argv = arguments
    if arguments[0] == "holdfast":
        from holdfast.cli import main

        main()
    else:
        sys.argv = arguments[1:]
        sys.path[0] = ""
        # What a page starts and kills must be the program, and not one that hands over to it.
        os.environ["PATH"] = os.environ["PATH"].partition(os.pathsep)[2]
        runpy.run_path(sys.argv[0], run_name="__main__")


def _import_all() -> None:
    """All of holdfast that needs no Spark, and what its libraries import at their first use."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet
    from typer.testing import CliRunner

    import holdfast
    from holdfast.cli.app import app

    for _, name, _ in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not name.startswith(("holdfast.spark", "holdfast.integrations", "holdfast.demo")):
            importlib.import_module(name)
    CliRunner().invoke(app, ["log", "inspect", "/nowhere"])
    pa.array([1])
    gc.freeze()  # or the first collection in each child copies all pages


if __name__ == "__main__":
    _import_all()
    _serve(sys.argv[1])
