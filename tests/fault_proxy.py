"""A proxy before an HTTP server that delays, drops, cuts and refuses requests, by a seed.

One request per connection.  Every fault is counted.
"""

import contextlib
import socket
import threading
import time
from collections import Counter
from random import Random

_ANSWERS = {500: "Internal Server Error", 503: "Slow Down", 429: "Too Many Requests"}
_FAULTS = ("delayed", "dropped", "lost answer", "cut", "500", "503", "429")


class FaultProxy:
    """`port` is where it listens.  A part `rate` of all requests has a fault."""

    def __init__(self, upstream: int, seed: int, rate: float) -> None:
        self._upstream, self._random, self.rate = upstream, Random(seed), rate
        self._lock = threading.Lock()
        self.fired: Counter[str] = Counter()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> "FaultProxy":
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _draw(self) -> str:
        with self._lock:
            fault = self._random.choice(_FAULTS) if self._random.random() < self.rate else ""
            self.fired[fault or "passed"] += 1
            return fault

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.settimeout(30)
            request = _read_request(client)
            if not request:
                return
            fault = self._draw()
            if fault == "delayed":
                time.sleep(0.1)
            elif fault == "dropped":
                return
            elif fault.isdigit():
                head = f"HTTP/1.1 {fault} {_ANSWERS[int(fault)]}\r\n"
                client.sendall(f"{head}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
                return
            answer = self._ask(request)
            if fault == "lost answer":
                return
            client.sendall(answer[: len(answer) // 2] if fault == "cut" else answer)

    def _ask(self, request: bytes) -> bytes:
        """Send a request to the server, which closes the connection after its answer."""
        head, _, body = request.partition(b"\r\n\r\n")
        lines = [
            line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")
        ]
        data = b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n" + body
        with socket.create_connection(("127.0.0.1", self._upstream), timeout=30) as server:
            server.sendall(data)
            parts = []
            while part := server.recv(1 << 16):
                parts.append(part)
        return b"".join(parts)


def _read_request(client: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        part = client.recv(1 << 16)
        if not part:
            return b""
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    size = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            size = int(value)
    while len(body) < size:
        part = client.recv(1 << 16)
        if not part:
            return b""
        data, body = data + part, body + part
    return data
