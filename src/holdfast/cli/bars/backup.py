"""`holdfast bars backup`."""

from typing import Annotated

import typer

from holdfast.cli.opening import bar_owner
from holdfast.cli.options import JsonOption, RootPath
from holdfast.cli.output import answer, count_of, human_size, progress
from holdfast.errors import LockedError


def backup(
    root: RootPath,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A new directory; it appears when complete.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Copy a store to a new directory, durably.

    This command owns the store while it runs. If the store has an owner, that process must make
    the copy, with `BarStore.backup(path)`: it goes on committing meanwhile.
    """
    try:
        with (
            bar_owner(root, as_json=as_json) as store,
            progress(f"copying {root}", unit="files") as show,
        ):
            done = store.backup(target, on_progress=show)
    except LockedError as error:
        owner = f"{root} is owned by process {error.holder or 'unknown'}"
        advice = "its owner must make the backup, with BarStore.backup(path); or stop the owner"
        raise LockedError(f"{owner}: {advice}") from error
    text = f"copied {root} to {target}: {count_of(done.files, 'file')}, {human_size(done.size)}"
    answer(text, done, as_json=as_json)
