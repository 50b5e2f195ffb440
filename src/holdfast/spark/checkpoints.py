"""Spark's checkpoints, made durable before a sink commits.

Spark does not sync what it writes there.  If the power went after a sink's commit and took the
batch's offsets along, the next run would plan the batch anew, perhaps with other rows in it, and
the sink, which knows the batch, would drop them.  Without the query's id it would take all batches
a second time; without its state a query cannot go on at all.  So our sinks first sync what Spark
has written of the batch: its offsets, the query's id, the files that a source has seen, the state.

Checkpoints that are not on this machine's file systems are left to whoever keeps them.
"""

from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from holdfast.disk import OsDisk

_SLACK_NS = 1_000_000_000  # file systems count time in steps of their own


def settle(location: str | None, batch: int) -> None:
    """Make durable what has been written to a checkpoint since the batch before was committed."""
    root = _local(location)
    if root is None or not root.is_dir():
        return
    changed = _changed_since(root, _committed_ns(root, batch - 1) - _SLACK_NS)
    disk = OsDisk(str(root))
    for path in changed:
        # Spark cleans old state up, in a thread of its own.
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
    except FileNotFoundError:  # the first of all, or Spark has cleaned up
        return 0


def _changed_since(root: Path, then_ns: int) -> list[Path]:
    found = []
    for path in root.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file() and path.stat().st_mtime_ns >= then_ns:
                found.append(path)
    return found
