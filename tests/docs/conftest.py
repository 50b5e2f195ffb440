from collections.abc import Iterator

import pytest
from tests.docs.forking import Programs


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    started = Programs(tmp_path_factory.mktemp("programs"))
    yield started
    started.close()
