"""A directory that a job creates: it appears when it is complete, or not at all.

The job fills a hidden directory beside it, and renames that at the end.  A job that fails or is
interrupted removes the hidden directory; a killed one leaves it.
"""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from holdfast import runtime
from holdfast.disk import OsDisk


@contextmanager
def made_whole(target: str, doing: str) -> Iterator[str]:
    """Return the directory to fill.  It becomes `target`, durably, when the block ends.

    `doing` is the verb in FileExistsError.  The parent is checked before the block begins, because
    jobs take long.
    """
    place = Path(OsDisk(target).path)
    refuse_taken(target, doing)
    making = place.with_name(f".{place.name}.{runtime.new_id().hex[:12]}")
    try:
        making.mkdir(parents=True)
        making.rmdir()  # the writer creates it again, with its own permissions
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(place.parent)) from error
    try:
        yield str(making)
        _settle(making)
        OsDisk(place.parent).rename(making.name, place.name)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)  # report the first error
        raise


def refuse_taken(target: str, doing: str) -> None:
    """Raise FileExistsError if the target exists."""
    place = Path(OsDisk(target).path)
    if place.is_symlink() or place.exists():
        raise FileExistsError(f"{place} exists: {doing} into a new directory, or remove it first")


def _settle(made: Path) -> None:
    """Sync all files and names: Spark does not."""
    disk = OsDisk(made.parent)
    for path in (*made.rglob("*"), made):
        name = str(path.relative_to(made.parent))
        if path.is_dir():
            disk.sync_names(name)
        else:
            with closing(disk.open(name)) as file:
                file.sync()
