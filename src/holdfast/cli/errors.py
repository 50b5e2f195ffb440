"""How a command ends: an exit code, and for an error one line that names the next step."""

import json
import sys
from collections.abc import Iterable

import typer

from holdfast import errors, verdicts

EXIT_CODES = {
    0: "success",
    1: "wrong usage, or refused: no such store, locked, disk full, ...",
    2: "corruption",
    3: "a torn tail: the end of a write that a crash cut short; the next owner cuts it off",
    4: "fenced or diverged: another writer has taken over, or rewrote the history",
    5: "not everything could be judged: unreadable, or nothing was tested",
    130: "interrupted by Ctrl-C",
    141: "the reader of the output has closed it, as in `| head`",
}
PIPE_CLOSED = 141

VERDICTS: dict[str, int] = verdicts.EXIT_CODES


def exit_code(found: "Iterable[verdicts.Verdict]") -> int:
    """Return the code of the gravest verdict; nothing judged is 5."""
    judged = list(found)
    return VERDICTS[verdicts.worst(judged) if judged else "unreadable"]


class AbsentError(Exception):
    """A key, snapshot or manifest is not in the store."""


# The first class that fits gives the kind, the exit code and the advice.
_KINDS: list[tuple[type[Exception], str, int, str]] = [
    (
        errors.CorruptError,
        "corrupt",
        2,
        "`holdfast log verify` shows the extent, `holdfast log repair` the remedy",
    ),
    (errors.FencedError, "fenced", 4, "another writer has taken over, do not retry"),
    (errors.DivergedError, "diverged", 4, "start again from a copy"),
    (errors.LeaseLostError, "lease_lost", 1, "start the job again"),
    (errors.UnsupportedError, "unsupported", 1, ""),
    (errors.LockedError, "locked", 1, ""),
    (errors.NotOwnerError, "not_owner", 1, ""),
    (errors.ClosedError, "closed", 1, ""),
    (errors.ChangedError, "changed", 1, "try again"),
    (errors.PoisonedError, "poisoned", 1, ""),
    (errors.DiskFullError, "disk_full", 1, ""),
    (errors.OutOfRangeError, "out_of_range", 1, "`holdfast log inspect` shows the range"),
    (errors.UnavailableError, "unavailable", 1, "try again when the store answers"),
    (errors.MissingError, "missing", 1, ""),
    (FileNotFoundError, "not_found", 1, ""),
    (FileExistsError, "exists", 1, ""),
    (errors.HoldfastError, "refused", 1, ""),
    (AbsentError, "absent", 1, ""),
    (NotADirectoryError, "not_a_directory", 1, "a store is a directory, name that"),
    (PermissionError, "permission", 1, "run as the user who owns it"),
    (OSError, "system", 1, ""),
    (typer.TyperException, "usage", 1, ""),
    (ValueError, "usage", 1, ""),
]

EXPECTED = tuple(kind[0] for kind in _KINDS)

# Advice for other nouns than log, where it differs.
_ANY = "`holdfast log verify`, `kv verify` or `bars verify` shows the extent"
_ADVICE: dict[str, dict[str, str]] = {
    "kv": {
        "corrupt": "`holdfast kv verify` shows what else is damaged",
        "poisoned": "what was reported is durable; try again",
    },
    "bars": {
        "corrupt": "`holdfast bars verify` shows the extent, `holdfast bars replay` the remedy",
    },
    "copy": {
        "fenced": "another writer has taken over the target: stop it, then copy again",
        "corrupt": _ANY,
        "not_a_directory": "",
        "permission": "run as the user who may read the source and write beside the target",
    },
    "pipeline": {
        "fenced": "another writer has taken over: stop it, then run again",
        "corrupt": _ANY,
        "not_a_directory": "",
    },
}


def report(error: Exception, *, as_json: bool, noun: str = "log") -> int:
    """Print the error on stderr, in one line; return the exit code."""
    _, kind, code, advice = next(row for row in _KINDS if isinstance(error, row[0]))
    advice = _ADVICE.get(noun, {}).get(kind, advice)
    if isinstance(error, typer.TyperException):
        message, advice = error.format_message(), _help_for(error)
        if "\n" in message:  # a noun without a verb: the message is its help
            if not as_json:
                sys.stderr.write(message + "\n")
                return code
            message = "no command given"
        message = message.rstrip(".")
    elif isinstance(error, OSError) and error.filename and error.strerror:
        message = f"{error.filename}: {error.strerror}"
    else:
        message = str(error) or type(error).__name__
    if advice and advice not in message:
        message = f"{message}; {advice}"
    line = " ".join(message.split())
    text = json.dumps({"error": kind, "message": line}) if as_json else f"holdfast: {line}"
    sys.stderr.write(text + "\n")
    return code


def _help_for(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    return f"see `{context.command_path} --help`" if context is not None else ""
