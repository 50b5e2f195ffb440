"""A directory that a job makes: it appears whole, under its name, or not at all.

It is made beside its place, under a hidden name.  A job that fails or is interrupted removes it;
one that is killed leaves it, and nobody takes it for the target.
"""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from holdfast import runtime
from holdfast.disk import OsDisk


@contextmanager
def made_whole(target: str, doing: str) -> Iterator[str]:
    """Where to make `target`, which is durable when the block has ended.

    `doing` is the verb: FileExistsError tells to do that with a new directory.  Whether anything
    can be made there is tried before the block begins: jobs take their time.
    """
    place = Path(OsDisk(target).path)
    refuse_taken(target, doing)
    making = place.with_name(f".{place.name}.{runtime.new_id().hex[:12]}")
    try:
        making.mkdir(parents=True)
        making.rmdir()  # whoever fills it makes it again, for whom they want to let in
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(place.parent)) from error
    try:
        yield str(making)
        _settle(making)
        OsDisk(place.parent).rename(making.name, place.name)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)  # the first error is the one to tell
        raise


def refuse_taken(target: str, doing: str) -> None:
    """FileExistsError if there is anything of that name."""
    place = Path(OsDisk(target).path)
    if place.is_symlink() or place.exists():
        raise FileExistsError(f"{place} exists: {doing} into a new directory, or remove it first")


def _settle(made: Path) -> None:
    """Sync what is there: Spark does not, and a name must not outlive its bytes."""
    disk = OsDisk(made.parent)
    for path in (*made.rglob("*"), made):
        name = str(path.relative_to(made.parent))
        if path.is_dir():
            disk.sync_names(name)
        else:
            with closing(disk.open(name)) as file:
                file.sync()
