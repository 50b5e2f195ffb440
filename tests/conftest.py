"""One Spark session for all tests, started with a class cache that outlives the run.

PySpark is imported by the first test that asks for the session: the others need no JVM.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["tests.servers"]

# A busy machine must not fail a test.
settings.register_profile("any", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any")

# A JVM that lives for minutes on two cores gains nothing from its second compiler.
QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}


@pytest.fixture(autouse=True)
def no_thread_touches_a_simulated_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark is saved in the background once a second.  Tests say when: see MarkFile.tick."""
    monkeypatch.setattr("holdfast.logs.mark.SAVE_MS", 10**9)


# Of several workers one takes all that needs the session, one all that needs servers: each is
# started once.  Whoever starts JVMs of its own is alone.
ALONE = (
    "tests/spark/test_cluster.py",
    "tests/spark/test_exactly_once.py",
    "tests/spark/test_kv_exactly_once.py",
    "tests/spark/pipelines/test_declarative.py",
    "tests/spark/pipelines/test_exactly_once.py",
    "tests/spark/test_sessions.py::test_ctrl_c_spares_the_jvm",
    "tests/spark/test_sessions.py::test_memory_and_master",
    "tests/spark/test_sessions.py::test_the_wheels_java",
)
TOGETHER = {
    "tests/spark/": "spark",
    "tests/docs/test_spark_page.py": "spark",
    "tests/integrations/test_": "servers",
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(ALONE):
                return nodeid
            groups = (group for start, group in TOGETHER.items() if nodeid.startswith(start))
            return next(groups, nodeid)

    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first, so that the workers end together."""
    items.sort(key=lambda item: not item.nodeid.startswith(ALONE))


@pytest.fixture(scope="session")
def cache(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Our own cache directory, kept by pytest: the user's is left alone, and a rerun is fast.

    Temporary files go where pytest sweeps, because a process that a test kills cannot.
    """
    keeper = request.config.cache
    assert keeper is not None
    scratch = str(tmp_path_factory.mktemp("scratch"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_CACHE", str(keeper.mkdir("holdfast")))
        patch.setenv("SPARK_LOCAL_DIRS", scratch)
        patch.setenv("TMPDIR", scratch)
        yield Path(os.environ["HOLDFAST_CACHE"])


@pytest.fixture(scope="session")
def class_cache(cache: Path) -> Path:
    """Made once: every JVM that a test starts gains from it."""
    from holdfast.spark import warm

    return warm()


@pytest.fixture(scope="session")
def spark(class_cache: Path) -> "Iterator[SparkSession]":
    from holdfast.spark import session

    # Two cores wherever it runs, so that what a test sees does not depend on the machine.
    spark = session("local[2,4]", app_name="holdfast tests", config=QUICK)
    yield spark
    spark.stop()
