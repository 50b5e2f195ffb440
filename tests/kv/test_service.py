"""A kv service on a bucket behind a proxy that fails; `make campaign` runs it for minutes."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.fault_proxy import FaultProxy
from tests.kv.service import serve
from tests.servers import ObjectStore

SECONDS = 5


@pytest.mark.parametrize("records", ["native", "sqlite", "postgres"])
def test_a_service_keeps_its_promises_behind_a_bad_network(
    records: str, moto: ObjectStore, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    cas = {"native": None, "sqlite": f"sqlite://{tmp_path}/records.db"}.get(records)
    if records == "postgres":
        cas = request.getfixturevalue("postgres")
    port = urlsplit(moto.options["endpoint"]).port
    assert port is not None
    with FaultProxy(port, seed=1, rate=0.05) as proxy:
        counts = serve(proxy, tmp_path, 1, SECONDS, cas)
    assert counts["acknowledged"] + counts["awaited"] > 5
    assert counts["compared"] > 0
    assert proxy.fired["passed"] > 50
