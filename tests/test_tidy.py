"""The house rules no linter knows."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "holdfast"
MODULES = sorted(p for p in SOURCE.rglob("*.py") if not p.stem.endswith("_pb2"))  # not generated
LINES_MAX, FUNCTION_LINES_MAX = 400, 50

# Modules that are tried by a test of another name.
TRIED_BY = {
    "cli/copying.py": "tests/spark/jobs/test_copying.py",
    "posix.py": "tests/test_disk.py",
    "file.py": "tests/test_disk.py",
    "forks.py": "tests/testing/test_owners.py",
    **{
        f"testing/owners/{name}.py": "tests/testing/test_owners.py"
        for name in ("contract", "forks", "lives", "places", "signals", "stores", "tools")
    },
    "staged.py": "tests/logs/test_staging.py",
    "bars/candles.py": "tests/cli/test_bars_read.py",
    "bars/checking.py": "tests/cli/test_bars_report.py",
    "reports/bar_files.py": "tests/cli/test_bars_report.py",
    "reports/bar_logs.py": "tests/cli/test_bars_replay.py",
    "reports/bars.py": "tests/cli/test_bars_report.py",
    "reports/candles.py": "tests/demo/test_terminal.py",
    "cli/bars.py": "tests/cli/test_bars_read.py",
    "cli/bars_change.py": "tests/cli/test_bars_read.py",
    "cli/bars_files.py": "tests/cli/test_bars_import.py",
    "cli/bars_opening.py": "tests/cli/test_bars_write.py",
    "cli/bars_output.py": "tests/cli/test_bars_read.py",
    "cli/bars_shape.py": "tests/cli/test_bars_import.py",
    "cli/bars_times.py": "tests/cli/test_bars_import.py",
    "testing/faults.py": "tests/test_disk.py",
    "bars/catalog.py": "tests/bars/test_store.py",
    "bars/files.py": "tests/bars/test_write_back.py",
    "bars/foreign.py": "tests/bars/test_golden.py",
    "bars/group.py": "tests/bars/test_store.py",
    "bars/logs.py": "tests/bars/test_store.py",
    "bars/opening.py": "tests/bars/test_store.py",
    "bars/parts.py": "tests/bars/test_query.py",
    "bars/pending.py": "tests/bars/test_crashes.py",
    "bars/reader.py": "tests/bars/test_query.py",
    "bars/undecided.py": "tests/bars/test_staging.py",
    "bars/wal.py": "tests/bars/test_replay.py",
    "testing/bars.py": "tests/bars/test_mutants.py",
    "testing/bar_ledger.py": "tests/bars/test_mutants.py",
    "testing/bar_logs.py": "tests/bars/test_mutants.py",
    "logs/file_log/batches.py": "tests/logs/file_log/test_contract.py",
    "logs/file_log/columns.py": "tests/logs/file_log/test_guest.py",
    "logs/file_log/directory.py": "tests/logs/file_log/test_recovery.py",
    "logs/file_log/facts.py": "tests/logs/file_log/test_guest.py",
    "logs/file_log/history.py": "tests/logs/file_log/test_log.py",
    "logs/file_log/intent.py": "tests/logs/file_log/test_recovery.py",
    "logs/file_log/owner.py": "tests/logs/file_log/test_log.py",
    "logs/file_log/part.py": "tests/logs/file_log/test_contract.py",
    "logs/file_log/pieces.py": "tests/logs/file_log/test_repair.py",
    "logs/file_log/pruning.py": "tests/logs/file_log/test_log.py",
    "logs/file_log/requests.py": "tests/logs/file_log/test_log.py",
    "logs/file_log/snapshots.py": "tests/logs/file_log/test_golden.py",
    "logs/file_log/tail.py": "tests/logs/file_log/test_recovery.py",
    "logs/file_log/tasks.py": "tests/logs/file_log/test_guest.py",
    "logs/file_log/writer.py": "tests/logs/file_log/test_contract.py",
    "testing/file_log.py": "tests/logs/file_log/test_mutants.py",
    "kv/commits.py": "tests/kv/test_compaction.py",
    "kv/garbage.py": "tests/kv/test_gc.py",
    "kv/sources.py": "tests/kv/test_tasks.py",
    "kv/jobs.py": "tests/kv/test_compaction.py",
    "logs/origin.py": "tests/logs/test_conversion.py",
    "logs/raft_wal/belongings.py": "tests/logs/test_conversion.py",
    "bucket/bucket.py": "tests/bucket/test_memory.py",
    "kv/cas/records.py": "tests/testing/test_sim_records.py",
    "kv/cas/sql.py": "tests/kv/cas/test_sqlite.py",
    "testing/bucket_contract.py": "tests/integration/test_buckets.py",
    "testing/kv_roles.py": "tests/testing/test_kv_simulation.py",
    "testing/kv_watch.py": "tests/testing/test_kv_simulation.py",
    "testing/kv_writing.py": "tests/testing/test_kv_simulation.py",
    "testing/records_contract.py": "tests/kv/cas/test_sqlite.py",
    "testing/sim_directory.py": "tests/bucket/test_directory.py",
    "logs/raft_wal/columns.py": "tests/cli/test_log_raft.py",
    "logs/raft_wal/tasks.py": "tests/logs/raft_wal/test_guest.py",
    "logs/raft_wal/directory.py": "tests/logs/raft_wal/test_recovery.py",
    "logs/raft_wal/emitter.py": "tests/logs/raft_wal/test_contract.py",
    "logs/raft_wal/metrics.py": "tests/reports/test_logs.py",
    "logs/raft_wal/owner.py": "tests/logs/raft_wal/test_recovery.py",
    "logs/raft_wal/pieces.py": "tests/logs/raft_wal/test_repair.py",
    "logs/raft_wal/segment.py": "tests/logs/raft_wal/test_contract.py",
    "logs/raft_wal/truncation.py": "tests/logs/raft_wal/test_model.py",
    "testing/platter.py": "tests/testing/test_sim_disk.py",
    "testing/raft_wal.py": "tests/logs/raft_wal/test_mutants.py",
    "cli/log_jobs.py": "tests/spark/test_cli.py",
    "cli/pipeline.py": "tests/spark/pipelines/test_cli.py",
    "cli/pipeline_progress.py": "tests/spark/pipelines/test_cli.py",
    "spark/failures.py": "tests/spark/test_cli.py",
    "spark/pipelines/declared.py": "tests/spark/pipelines/test_checking.py",
    "spark/pipelines/positions.py": "tests/spark/pipelines/test_running.py",
    "spark/pipelines/status.py": "tests/spark/pipelines/test_running.py",
    "cli/spark.py": "tests/spark/test_cli.py",
    "cli/sparking.py": "tests/spark/test_cli.py",
    "spark/jobs/exports.py": "tests/spark/jobs/test_conversion.py",
    "spark/jobs/imports.py": "tests/spark/jobs/test_conversion.py",
    "kv/flushes.py": "tests/kv/test_write_queue.py",
    "kv/options.py": "tests/kv/test_write_queue.py",
    "kv/handles.py": "tests/kv/test_write_queue.py",
    "kv/levels.py": "tests/kv/test_view.py",
    "kv/reading.py": "tests/kv/test_reader.py",
    "formats/flaw.py": "tests/formats/test_shanghai.py",
    "formats/bolt/pages.py": "tests/formats/test_bolt.py",
    "formats/bolt/reading.py": "tests/formats/test_bolt.py",
    "formats/bolt/writing.py": "tests/formats/test_bolt.py",
    "logs/commits.py": "tests/logs/shanghai/test_log.py",
    "logs/repairing.py": "tests/logs/shanghai/test_repair.py",
    "logs/segmented.py": "tests/logs/shanghai/test_guest.py",
    "logs/log.py": "tests/logs/shanghai/test_contract.py",
    "logs/shanghai/segment.py": "tests/logs/shanghai/test_contract.py",
    "logs/shanghai/directory.py": "tests/logs/shanghai/test_recovery.py",
    "testing/logs.py": "tests/logs/shanghai/test_mutants.py",
    "testing/explorer.py": "tests/logs/shanghai/test_mutants.py",
    "testing/lives.py": "tests/logs/shanghai/test_mutants.py",
    "testing/meddler.py": "tests/logs/shanghai/test_mutants.py",
    "testing/sim_kernel.py": "tests/testing/test_sim_disk.py",
    "testing/log_contract.py": "tests/logs/shanghai/test_mutants.py",
    "testing/shanghai.py": "tests/logs/shanghai/test_mutants.py",
    "testing/kills.py": "tests/testing/test_torture.py",
    "testing/writer.py": "tests/testing/test_torture.py",
    "spark/cachedir.py": "tests/spark/test_java.py",
    "spark/classcache.py": "tests/spark/test_java.py",
    "spark/training.py": "tests/spark/test_java.py",
    "spark/jvm.py": "tests/spark/test_sessions.py",
    "spark/shipping.py": "tests/spark/test_cluster.py",
    "spark/sources.py": "tests/spark/test_sessions.py",
    "spark/bars.py": "tests/spark/test_bar_reader.py",
    "spark/option_values.py": "tests/spark/test_log_options.py",
    "spark/workers.py": "tests/spark/jobs/test_tasks.py",
    "spark/bar_columns.py": "tests/spark/test_bar_reader.py",
    "spark/kv.py": "tests/spark/test_kv_reader.py",
    "testing/bar_writer.py": "tests/testing/test_bar_torture.py",
    "demo/charts.py": "tests/demo/test_report.py",
    "demo/feed.py": "tests/demo/test_rounds.py",
    "demo/machine.py": "tests/cli/test_demo.py",
    "demo/clerk.py": "tests/demo/test_fencing.py",
    "demo/history.py": "tests/spark/test_demo.py",
    "demo/store_charts.py": "tests/demo/test_report.py",
    "demo/streams.py": "tests/spark/test_demo.py",
    "demo/upkeep.py": "tests/spark/test_demo.py",
    "demo/results.py": "tests/demo/test_report.py",
    "demo/story.py": "tests/cli/test_demo.py",
    "demo/svg.py": "tests/demo/test_report.py",
    "cli/incoming.py": "tests/cli/test_log_append.py",
    "cli/kv.py": "tests/cli/test_kv_write.py",
    "cli/kv_bytes.py": "tests/cli/test_kv_write.py",
    "cli/kv_files.py": "tests/cli/test_kv_load.py",
    "cli/kv_opening.py": "tests/cli/test_kv_write.py",
    "cli/opening.py": "tests/cli/test_log.py",
}

# Formats that live inside another, and are told on its page.
TOLD_WITH = {
    "raft_meta": "bolt",
    "raft_entry": "raft_wal",
    "rlog_entry": "rlog",
    "rlog_commit": "rlog",
    "bar_time": "year_file",
    "marketstore_wal": "market_wal",
}


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_fits_in_the_head(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) <= LINES_MAX
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.end_lineno:
            assert node.end_lineno - node.lineno < FUNCTION_LINES_MAX, node.name


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_says_what_it_promises(path: Path) -> None:
    source = path.read_text()
    assert not source or ast.get_docstring(ast.parse(source))


@pytest.mark.parametrize("path", [p for p in MODULES if p.name != "__init__.py"], ids=name_of)
def test_every_module_has_its_test(path: Path) -> None:
    inside = path.relative_to(SOURCE)
    mirrored = ROOT / "tests" / inside.parent / f"test_{path.name}"
    other = TRIED_BY.get(str(inside))
    assert mirrored.exists() != bool(other), "one test of its own, or one named above"
    assert other is None or (ROOT / other).exists()


def test_every_format_has_its_page_and_its_golden_files() -> None:
    shared = {"__init__", "__pycache__", "flaw", "checksums", "views"}
    modules = {path.stem for path in (SOURCE / "formats").iterdir()} - shared
    formats = {TOLD_WITH.get(module, module) for module in modules}
    assert formats == {path.stem for path in (ROOT / "docs/formats").glob("*.md")}
    provenance = (ROOT / "tests/golden/PROVENANCE").read_text()
    for format in formats:
        golden = [path for path in (ROOT / "tests/golden" / format).rglob("*") if path.is_file()]
        assert golden
        for path in golden:
            assert str(path.relative_to(ROOT / "tests/golden")) in provenance


def test_only_the_door_syncs_locks_and_renames() -> None:
    guarded = ("fsync", "fdatasync", "flock", "os.rename", "os.replace", "pwritev")
    for path in (
        SOURCE / "formats",
        SOURCE / "logs",
        SOURCE / "kv",
        SOURCE / "bucket",
        SOURCE / "bars",
    ):
        for module in path.rglob("*.py"):
            code = ast.unparse(ast.parse(module.read_text()))
            assert not [word for word in guarded if f"{word}(" in code], module
