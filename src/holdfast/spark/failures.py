"""What went wrong in a worker or in the JVM, as one of our errors."""

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from holdfast import errors
from holdfast.errors import CorruptError, HoldfastError

FAILURES = (PySparkException, Py4JJavaError)
"""How Spark fails: PySpark knows some of the JVM's exceptions, and passes the others on."""

_OURS = re.compile(r"\b(?:holdfast\.errors\.)?(\w+Error): (.+)")
_CORRUPT = re.compile(r"(.+?) at byte (\d+): (.+)")
_SYSTEM = re.compile(r"\[Errno \d+\] (.+): '(.+)'")
_JVM = re.compile(r"\A(?:An error occurred while calling \S+\s+: )?(?:[\w$]+\.)+[\w$]+: ")


def told(text: str) -> HoldfastError:
    """The error that is meant, out of pages of two languages' stacks; of its own class if ours."""
    found = _OURS.findall(text)
    kind, message = found[-1] if found else ("", _JVM.sub("", text.strip(), 1).partition("\n")[0])
    if kind == "CorruptError" and (parts := _CORRUPT.fullmatch(message)):
        return CorruptError(parts[1], int(parts[2]), parts[3])
    if parts := _SYSTEM.fullmatch(message):
        message = f"{parts[2]}: {parts[1]}"
    message = message.partition(" SQLSTATE: ")[0]
    ours = getattr(errors, kind, HoldfastError)
    return HoldfastError(message) if ours is CorruptError else ours(message)
