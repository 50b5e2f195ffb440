"""Commands open stores through holdfast.doors only."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast.cli

CLI = Path(holdfast.cli.__file__).parent
MODULES = sorted(CLI.rglob("*.py"))

# What opens directories and buckets.
DOORS_OF_STORES = ("holdfast.disk", "holdfast.bucket", "holdfast.posix", "holdfast.file")
STORES = ("holdfast.logs", "holdfast.kv", "holdfast.bars")
# Of the stores, commands use values and functions of values.
VALUES = {
    "holdfast.bars.candles.candles",
    "holdfast.bars.catalog.make_key",
    "holdfast.bars.chart.Candles",
    "holdfast.bars.chart.candle_chart",
    "holdfast.bars.status.type_names",
    "holdfast.bars.times.as_ns",
    "holdfast.bars.times.day_of",
    "holdfast.bucket.open.shown",
    "holdfast.kv.GcOptions",
    "holdfast.kv.admin.LoadReport",
    "holdfast.kv.snapshots.active_ids",
    "holdfast.kv.tables.differ",
    "holdfast.logs.format.CopiesSegments",
    "holdfast.logs.log.Described",
    "holdfast.logs.replicas.Follower",
    "holdfast.logs.retention.Retention",
}


def imports(tree: ast.AST) -> Iterator[str]:
    """The full names that a module imports when it runs: not those for annotations."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        yield from imports(node)


def opens_a_store(name: str) -> bool:
    below = (*DOORS_OF_STORES, *STORES)
    return name not in VALUES and any(f"{name}.".startswith(f"{each}.") for each in below)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(CLI)))
def test_a_command_opens_stores_through_the_doors_only(module: Path) -> None:
    found = list(imports(ast.parse(module.read_text())))
    assert [name for name in found if opens_a_store(name)] == []


def test_a_command_that_opens_a_bucket_is_found() -> None:
    planted = "def gc():\n    from holdfast.kv.gc import GarbageCollector, GcOptions\n"
    assert [opens_a_store(name) for name in imports(ast.parse(planted))] == [True, True]
    assert opens_a_store("holdfast.bucket.connect")
    assert not opens_a_store("holdfast.doors.manage_kv")


def test_no_value_is_listed_in_vain() -> None:
    used = {name for module in MODULES for name in imports(ast.parse(module.read_text()))}
    assert used >= VALUES
