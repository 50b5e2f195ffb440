"""A database of SlateDB itself is named as such, and nothing is written to it."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from holdfast.doors import create_kv, manage_kv, open_kv, read_kv
from holdfast.errors import UnsupportedError

uniffi = pytest.importorskip("slatedb.uniffi", reason="pip install slatedb")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows in the WAL and in an SST."""
    root = tmp_path_factory.mktemp("slatedb")
    store = uniffi.ObjectStoreBuilder(uniffi.ObjectStoreType.LOCAL)
    store.with_config("local_path", str(root))

    async def make() -> None:
        db = await uniffi.DbBuilder("db", store.build()).build()
        await db.put(b"a", b"1")
        into_sst = uniffi.FlushOptions(flush_type=uniffi.FlushType.MEM_TABLE)
        await db.flush_with_options(into_sst)
        await db.put(b"b", b"2")
        await db.flush()
        await db.shutdown()

    asyncio.run(make())
    return root / "db"


def listing(database: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in database.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "use",
    [
        open_kv,
        read_kv,
        manage_kv,
        create_kv,
        lambda where: open_kv(where, create=True),
        lambda where: manage_kv(where, create=True),
        lambda where: read_kv(where, lazy=True),
    ],
    ids=["open", "read", "manage", "create", "open or create", "manage or create", "read lazily"],
)
def test_a_slatedb_database_is_refused_by_its_name(database: Path, use: object) -> None:
    before = listing(database)
    assert any("compacted" in name for name in before)
    with pytest.raises(UnsupportedError, match="SlateDB database"):
        use(database)  # type: ignore[operator]
    assert listing(database) == before


@pytest.mark.parametrize(
    "verb", [["inspect"], ["verify"], ["scan"], ["get"], ["put"], ["compact"], ["gc"], ["create"]]
)
def test_the_command_line_says_that_it_is_slatedb(
    database: Path, run: Run, verb: list[str]
) -> None:
    before = listing(database)
    words = {"get": ["a"], "put": ["a", "1"]}.get(verb[0], [])
    result = run("kv", *verb, database, *words, "--json")
    assert result.exit_code == 1
    error = json.loads(result.stderr)
    assert error["error"] == "unsupported"
    assert "SlateDB database" in error["message"]
    assert listing(database) == before
