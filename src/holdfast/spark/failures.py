"""What went wrong in a worker or in the JVM, as one of our errors."""

import re

from holdfast import errors
from holdfast.errors import CorruptError, HoldfastError

_OURS = re.compile(r"\b(?:holdfast\.errors\.)?(\w+Error): (.+)")
_CORRUPT = re.compile(r"(.+?) at byte (\d+): (.+)")


def told(text: str) -> HoldfastError:
    """The error that is meant, out of pages of two languages' stacks; of its own class if ours."""
    found = _OURS.findall(text)
    kind, message = found[-1] if found else ("", text.strip().partition("\n")[0])
    if kind == "CorruptError" and (parts := _CORRUPT.fullmatch(message)):
        return CorruptError(parts[1], int(parts[2]), parts[3])
    ours = getattr(errors, kind, HoldfastError)
    return HoldfastError(message) if ours is CorruptError else ours(message)
