"""What a user meets first: `import holdfast`."""

import inspect
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import holdfast
from holdfast import errors

NOUNS = ("log", "kv", "bars")


def test_every_name_that_is_exported_is_there() -> None:
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None
    assert {f"{verb}_{noun}" for verb in ("create", "open", "read") for noun in NOUNS} <= set(
        holdfast.__all__
    )
    assert dir(holdfast) == holdfast.__all__
    with pytest.raises(AttributeError, match="no attribute 'open_queue'"):
        _ = holdfast.open_queue


def test_every_error_is_exported() -> None:
    kinds = {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind)}
    assert kinds
    for name, kind in kinds.items():
        assert getattr(holdfast, name) is kind
        assert name in holdfast.__all__


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert holdfast.__version__ == version("holdfast")


def imported_after(code: str) -> set[str]:
    program = f"import sys\n{code}\nprint(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-S", "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    return set(found.stdout.split())


def test_importing_holdfast_imports_almost_nothing() -> None:
    """It costs at most as much again as starting Python: counted in modules, not in time."""
    bare, ours = imported_after(""), imported_after("import holdfast")
    assert ours - bare == {"holdfast"}


def test_a_log_is_opened_without_the_libraries_of_other_stores() -> None:
    found = imported_after("import holdfast; holdfast.open_log")
    assert "holdfast.doors.logs" in found
    assert not {"obstore", "google.protobuf", "pyspark", "typer", "asyncio"} & found


USER = """
import asyncio
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]

import holdfast


def count(log: holdfast.LogReader) -> int:
    return sum(batch.num_rows for batch in log.scan())


async def serve(log: holdfast.Log, kv: holdfast.Kv) -> int:
    last: int = await log.submit([b"an order"])
    await kv.put(b"orders", b"1")
    return last


with holdfast.create_log(Path("orders"), segment_size_max=2**20) as log:
    index: int = log.append([b"one", b"two"])
    payload: bytes = log.read(index)
    last = log.submit([b"three"]).result(timeout=10)
    with holdfast.open_kv("prices", create=True, parallel_writes_max=4) as kv:
        seq: int = kv.put(b"AAPL", b"231.4").result()
        value: bytes | None = kv.get(b"AAPL")
        assert asyncio.run(serve(log, kv)) == 4
    text: str = holdfast.prometheus_text(log.metrics(), "holdfast_log")

with holdfast.read_log("orders") as reader, holdfast.read_kv("prices") as view:
    assert (count(reader), view.get(b"AAPL")) == (4, b"231.4")

rows = pa.table({"Epoch": [1609459200], "Close": [1.5]})
with holdfast.create_bars("market") as bars:
    tgid: int = bars.write(rows, "1Min", "CLOSE", symbol="AAPL")
    later: int = bars.submit(rows, "1Min", "CLOSE", symbol="MSFT").result(timeout=10)
with holdfast.read_bars("market") as guest:
    assert guest.symbols() == ["AAPL", "MSFT"]

try:
    holdfast.open_log("nowhere")
except holdfast.errors.NotFoundError as error:
    print(error)
"""


def test_a_users_program_passes_mypy_strict_and_runs(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(textwrap.dedent(USER))
    source = Path(holdfast.__file__).parents[1]
    environment = {**os.environ, "MYPYPATH": str(source), "PYTHONPATH": str(source)}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    checked = run("-m", "mypy", "--strict", "--follow-imports=silent", "user.py")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    ran = run("user.py")
    assert ran.returncode == 0, ran.stderr
    assert "nowhere" in ran.stdout
