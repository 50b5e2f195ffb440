"""The real bbolt reads, checks and changes our files, and we its."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.disk import OsDisk
from holdfast.errors import LockedError
from holdfast.formats import bolt
from holdfast.formats.bolt import Bucket, Image
from holdfast.formats.raft_meta import SegmentMeta, State
from holdfast.logs.raft_wal.meta_store import META_STORE, MetaStore

SOURCE = Path(__file__).parent / "bolt"
PACKAGES = Path("/usr/share/gocode")  # where Debian's golang-*-dev packages put their source
Operation = dict[str, Any]


@pytest.fixture(scope="session")
def go_bolt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if why := missing():
        pytest.skip(why)
    return build(tmp_path_factory.mktemp("go"))


def missing() -> str:
    """Return why bbolt cannot be run; empty if it can."""
    if shutil.which("go") is None:
        return "no Go here: apt-get install golang-go golang-github-coreos-bbolt-dev"
    if not (PACKAGES / "src/go.etcd.io/bbolt").exists():
        return "no bbolt here: apt-get install golang-github-coreos-bbolt-dev"
    return ""


def build(home: Path) -> Path:
    """Build the program that drives bbolt, in a directory of its own, and return it."""
    environment = {
        **os.environ,
        "GO111MODULE": "off",
        "GOFLAGS": "",
        "GOPATH": f"{home}:{PACKAGES}",
        "GOCACHE": str(home / "cache"),
    }
    command = ["go", "build", "-o", str(home / "bolt"), "main.go"]
    subprocess.run(command, cwd=SOURCE, env=environment, check=True)
    return home / "bolt"


def drive(program: Path, file: Path, operations: list[Operation] | None = None) -> Operation:
    """Let bbolt do these; return all that it finds then.  Its Check must have found nothing."""
    lines = "".join(json.dumps(operation) + "\n" for operation in operations or [])
    command = [str(program), str(file)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: Operation = json.loads(done.stdout)
    assert found["check"] == []
    return found


def buckets_of(report: Operation) -> dict[bytes, Bucket]:
    return {bytes.fromhex(name): bucket_of(found) for name, found in report["buckets"].items()}


def bucket_of(found: Operation) -> Bucket:
    items = {
        bytes.fromhex(key): bytes.fromhex(value) if isinstance(value, str) else bucket_of(value)
        for key, value in found["items"].items()
    }
    return Bucket(items, found["sequence"])


def some_bucket(random: Random, depth: int = 0) -> Bucket:
    count = random.choice((0, 1, 5, 40, 400))
    sizes = random.choice(((1, 20), (1, 300), (900, 1100), (3000, 20000)))
    items: dict[bytes, bytes | Bucket] = {}
    for _ in range(count // 10 if sizes[1] > 1000 else count):
        key = random.randbytes(random.choice((1, 3, 8, 200)))
        if depth < 3 and random.random() < 0.02:
            items[b"\xff" + key] = some_bucket(random, depth + 1)
        else:  # under a name that no bucket has
            items[key.replace(b"\xff", b"k")] = some_value(random, sizes)
    return Bucket(items, random.choice((0, 0, 7, 2**64 - 1)))


def some_value(random: Random, sizes: tuple[int, int]) -> bytes:
    return random.randbytes(random.choice((0, random.randint(*sizes))))


def some_buckets(random: Random) -> dict[bytes, Bucket]:
    return {
        b"bucket %d" % number: some_bucket(random)
        for number in range(random.choice((0, 1, 2, 2, 100)) if random.random() < 0.1 else 2)
    }


def apply(file: Path, change: bolt.Commit, *, meta: bool = True) -> None:
    data = bytearray(file.read_bytes().ljust(change.size, b"\0"))
    for offset, page in [*change.pages, change.meta] if meta else change.pages:
        data[offset : offset + len(page)] = page
    file.write_bytes(data)


def read(file: Path) -> Image:
    image = bolt.decode(file.read_bytes())
    assert isinstance(image, Image), image
    return image


@pytest.mark.parametrize("seed", range(4))
def test_bbolt_reads_our_files_and_finds_no_errors(
    go_bolt: Path, tmp_path: Path, seed: int
) -> None:
    random, file = Random(seed), tmp_path / "x.db"
    buckets = some_buckets(random)
    file.write_bytes(bolt.encode(buckets, txid=random.choice((1, 2, 2**40))))
    assert buckets_of(drive(go_bolt, file)) == buckets
    for _ in range(4):
        buckets = some_buckets(random)
        apply(file, bolt.commit(read(file), buckets))
        assert buckets_of(drive(go_bolt, file)) == buckets == read(file).buckets


@pytest.mark.parametrize("seed", range(4))
def test_both_write_one_file_in_turns(go_bolt: Path, tmp_path: Path, seed: int) -> None:
    random, file = Random(seed), tmp_path / "x.db"
    drive(go_bolt, file)
    for _ in range(6):
        found = buckets_of(drive(go_bolt, file, some_operations(random)))
        image = read(file)
        assert image.buckets == found
        one = some_bucket(random)
        change = bolt.commit(image, {**image.buckets, b"\x62\x00": one})
        apply(file, change)
        assert read(file) == change.image
        assert buckets_of(drive(go_bolt, file)) == change.image.buckets


def some_operations(random: Random) -> list[Operation]:
    operations: list[Operation] = []
    for _ in range(random.choice((1, 30, 600))):
        path = [f"62{random.randrange(2):02x}" for _ in range(random.choice((1, 1, 1, 2, 3)))]
        path[1:] = [f"ff{part}" for part in path[1:]]
        operation: Operation = {"op": random.choice(["put"] * 5 + ["delete", "sequence"])}
        key = random.randbytes(random.choice((1, 1, 2))).replace(b"\xff", b"k")
        value = random.randbytes(random.choice((0, 10, 10, 100, 5000)))
        operation |= {"path": path, "key": key.hex(), "value": value.hex(), "sequence": 3}
        operations.append(operation)
        if random.random() < 0.05:
            operations.append({"op": "commit"})
    return [*operations, {"op": "commit"}]


def test_bbolt_too_falls_back_when_our_meta_page_is_torn(go_bolt: Path, tmp_path: Path) -> None:
    random, file = Random(5), tmp_path / "x.db"
    buckets = {b"b": some_bucket(random)}
    file.write_bytes(bolt.encode(buckets))
    for cut in (0, 20, 60, 79):
        change = bolt.commit(read(file), {b"b": some_bucket(random)})
        apply(file, change, meta=False)
        offset, page = change.meta
        with file.open("r+b") as torn:
            torn.seek(offset)
            torn.write(page[:cut] + random.randbytes(len(page) - cut))
        assert buckets_of(drive(go_bolt, file)) == buckets == read(file).buckets


def test_the_meta_store_passes_between_the_two(go_bolt: Path, tmp_path: Path) -> None:
    file, state = tmp_path / META_STORE, State(151, tuple(SegmentMeta(i, i, i) for i in range(150)))
    with MetaStore(OsDisk(tmp_path)) as store:
        store.set_uint64(b"CurrentTerm", 3)
        store.commit(state)
    put = {"op": "put", "path": [b"stable".hex()], "key": "61", "value": "62"}
    assert len(drive(go_bolt, file, [put, {"op": "commit"}])["buckets"]) == 2
    with MetaStore(OsDisk(tmp_path)) as store:
        assert store.stable == {b"CurrentTerm": b"\3" + bytes(7), b"a": b"b"}
        assert store.load() == state


def test_each_locks_the_other_out_and_a_reader_continues(go_bolt: Path, tmp_path: Path) -> None:
    disk, command = OsDisk(tmp_path), [str(go_bolt), str(tmp_path / META_STORE)]
    with MetaStore(disk) as store:
        store.set(b"a", b"b")
        refused = subprocess.run(command, input="", capture_output=True, text=True, check=False)
        assert "timeout" in refused.stderr
    arguments = [*command, "hold"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockedError, match=f"owned by process ({holder.pid}|unknown);"):
            MetaStore(disk)
        assert MetaStore(disk, read_only=True).get(b"a") == b"b"
        holder.communicate()
    MetaStore(disk).close()
