"""How a command fails: one line that says what to do next, and an exit code.

  0  all is well
  1  usage: wrong arguments, no such log, locked, disk full, whatever the system refuses
  2  corruption
  3  a torn tail, which the next owner will cut off
  4  fenced: another writer has taken over
130  interrupted by Ctrl-C
141  whoever read our output has gone, as in `| head`
"""

import json
import sys

import typer

from holdfast import errors

INTERRUPTED, PIPE_CLOSED = 130, 141


class AbsentError(Exception):
    """What was asked for is not in the store."""


# The first class that fits tells the kind, the exit code and what to do.
_KINDS: list[tuple[type[Exception], str, int, str]] = [
    (
        errors.CorruptError,
        "corrupt",
        2,
        "`holdfast log verify` shows how far it goes, `holdfast log repair` what can be done",
    ),
    (errors.FencedError, "fenced", 4, "another writer has taken over, do not retry"),
    (errors.JobLostError, "job_lost", 1, "begin the job again"),
    (errors.UnsupportedError, "unsupported", 1, ""),
    (errors.LockedError, "locked", 1, ""),
    (errors.NotOwnerError, "not_owner", 1, ""),
    (errors.ChangedError, "changed", 1, "try again"),
    (errors.PoisonedError, "poisoned", 1, ""),
    (errors.DiskFullError, "disk_full", 1, ""),
    (errors.OutOfRangeError, "out_of_range", 1, "`holdfast log inspect` tells what is there"),
    (errors.UnavailableError, "unavailable", 1, "try again when the store answers"),
    (errors.MissingError, "missing", 1, ""),
    (errors.HoldfastError, "refused", 1, ""),
    (AbsentError, "absent", 1, ""),
    (FileNotFoundError, "not_found", 1, ""),
    (FileExistsError, "exists", 1, ""),
    (NotADirectoryError, "not_a_directory", 1, "a log is a directory, name that"),
    (PermissionError, "permission", 1, "run as the user who owns it"),
    (OSError, "system", 1, ""),
    (typer.TyperException, "usage", 1, ""),
    (ValueError, "usage", 1, ""),
]

EXPECTED = tuple(kind[0] for kind in _KINDS)

# What to do about other things than a log, where that is something else.
_ADVICE: dict[str, dict[str, str]] = {
    "kv": {
        "corrupt": "`holdfast kv verify` shows what else is damaged",
        "not_a_directory": "a store is a directory, name that",
        "poisoned": "what was reported is durable; try again",
    },
    "bars": {
        "corrupt": "`holdfast bars verify` shows how far it goes, `holdfast bars replay` what then",
        "not_a_directory": "a store is a directory, name that",
    },
    "copy": {
        "fenced": "another writer has taken the target over: see that there is one, then copy",
        "corrupt": "`holdfast log verify`, `kv verify` or `bars verify` shows how far it goes",
        "not_a_directory": "",
        "permission": "run as the user who may read the source and write beside the target",
    },
    "pipeline": {
        "fenced": "another writer has taken over: see to it that there is one, then run",
        "corrupt": "`holdfast log verify`, `kv verify` or `bars verify` shows how far it goes",
        "not_a_directory": "",
    },
}


def report(error: Exception, *, as_json: bool, noun: str = "log") -> int:
    """Tell the error on stderr, in one line; return the exit code."""
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
