"""What `verify` does on every noun: one store after the other, and one exit code."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.errors import exit_code
from holdfast.cli.output import answer, progress
from holdfast.errors import UnavailableError

if TYPE_CHECKING:
    from holdfast.verdicts import Verdict

Verify = Callable[[str, Callable[[int, int], None]], Any]  # of a path and of progress, to a report


def verify_read(open_reader: Callable[[str], AbstractContextManager[Any]]) -> Verify:
    """Return the function that verifies the store at a path through its reader."""

    def verify(path: str, on_progress: Callable[[int, int], None]) -> Any:
        with open_reader(path) as reader:
            return replace(reader.verify(on_progress), path=path)  # as the user wrote it

    return verify


def verify_all(
    paths: Sequence[str],
    find: Callable[[str], object],
    verify: Verify,
    text_of: Callable[[Any], str],
    *,
    as_json: bool,
    unit: str = "bytes",
) -> None:
    """Verify each store and print its verdict; with --json, one object per line.

    `find` raises an error if there is no store, or if the path is a file: a wrong path is refused
    before anything is verified.  A store that cannot be read gets the verdict `unreadable`, and the
    others are still verified.  Exits with the code of the gravest verdict.
    """
    for path in paths:
        try:
            find(path)
        except (FileNotFoundError, NotADirectoryError):
            raise
        except (OSError, UnavailableError):
            continue  # `verify` meets it again, and it is reported below
    verdicts: list[Verdict] = []
    for path in paths:
        try:
            with progress(f"verifying {path}", unit=unit) as on_progress:
                report = verify(path, on_progress)
        except (OSError, UnavailableError) as error:
            verdicts.append("unreadable")
            why = f"{path}: unreadable ({error})"
            answer(why, {"path": path, "verdict": "unreadable", "why": str(error)}, as_json=as_json)
            continue
        verdicts.append(report.verdict)
        answer(text_of(report), report, as_json=as_json)
    raise typer.Exit(exit_code(verdicts))
