"""Everything here may start a JVM."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session", autouse=True)
def own_cache(cache: Path) -> Path:
    """No test here touches the user's cache."""
    return cache
