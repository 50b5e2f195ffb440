"""Spark's checkpoints, made durable before a sink commits.

Spark does not sync its checkpoints.  A power cut after a sink's commit may lose the batch's
offsets.  Then the next run plans the batch again, perhaps with other rows, and the sink, which has
the batch, drops them.  Without the query's id the sink would take all batches a second time.
Without its state a query cannot continue.  So Holdfast's sinks first sync what Spark has written of
the batch: its offsets, the query's id, the files that a source has seen, the state.

Checkpoints that are not on this machine's file systems are not synced here.
"""

from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from holdfast.disk import OsDisk

_SLACK_NS = 1_000_000_000  # the clocks of file systems are coarse


def settle(location: str | None, batch: int) -> None:
    """Sync what was written to a checkpoint since the previous batch was committed."""
    root = _local(location)
    if root is None or not root.is_dir():
        return
    changed = _changed_since(root, _committed_ns(root, batch - 1) - _SLACK_NS)
    disk = OsDisk(str(root))
    for path in changed:
        # Another thread of Spark removes old state.
        with suppress(FileNotFoundError), closing(disk.open(str(path.relative_to(root)))) as file:
            file.sync()
    above = OsDisk(str(root.parent))
    for directory in {parent for path in changed for parent in path.parents}:
        if directory.is_relative_to(root):
            with suppress(FileNotFoundError):
                above.sync_names(str(directory.relative_to(root.parent)))


def _local(location: str | None) -> Path | None:
    if location is None:
        return None
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        return None
    return Path(unquote(parts.path) if parts.scheme else location).absolute()


def _committed_ns(root: Path, batch: int) -> int:
    try:
        return (root / "commits" / str(batch)).stat().st_mtime_ns
    except FileNotFoundError:  # the first batch, or Spark has removed it
        return 0


def _changed_since(root: Path, then_ns: int) -> list[Path]:
    found = []
    for path in root.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file() and path.stat().st_mtime_ns >= then_ns:
                found.append(path)
    return found
