"""Failures of a worker or of the JVM, as errors of Holdfast."""

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from holdfast import errors
from holdfast.errors import CorruptError, HoldfastError

FAILURES = (PySparkException, Py4JJavaError)
"""What Spark raises: PySpark translates some exceptions of the JVM and passes on the others."""

_OURS = re.compile(r"\b(?:holdfast\.errors\.)?(\w+Error): (.+)")
_CORRUPT = re.compile(r"(.+?) at byte (\d+): (.+)")
_SYSTEM = re.compile(r"\[Errno \d+\] (.+): '(.+)'")
_JVM = re.compile(r"\A(?:An error occurred while calling \S+\s+: )?(?:[\w$]+\.)+[\w$]+: ")


def error_in(text: str) -> HoldfastError:
    """Return the error that a message with stacks of Python and Java reports, in its own class."""
    found = _OURS.findall(text)
    kind, message = found[-1] if found else ("", _JVM.sub("", text.strip(), 1).partition("\n")[0])
    if kind == "CorruptError" and (parts := _CORRUPT.fullmatch(message)):
        return CorruptError(parts[1], int(parts[2]), parts[3])
    if parts := _SYSTEM.fullmatch(message):
        message = f"{parts[2]}: {parts[1]}"
    message = message.partition(" SQLSTATE: ")[0]
    found_class = getattr(errors, kind, HoldfastError)
    return HoldfastError(message) if found_class is CorruptError else found_class(message)
