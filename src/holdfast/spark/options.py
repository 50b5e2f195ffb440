"""Options of the data sources: one vocabulary, parsed and checked in one place.

A field of an options class that is made by `option` is an option of its source: the field
`starting_index` is the option `startingIndex`.  Spark passes names in any case and values as text.
An unknown option is refused: a misspelt one would silently read the wrong rows.
Ranges are half-open: `startingX` is included, `endingX` is not.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args

from holdfast.disk import OsDisk
from holdfast.staged import Transaction

Use = Literal["read", "readStream", "write", "writeStream"]
USES: tuple[Use, ...] = get_args(Use)
READS: tuple[Use, ...] = ("read", "readStream")
WRITES: tuple[Use, ...] = ("write", "writeStream")
_CALLS = {"read": "load", "readStream": "load", "write": "save", "writeStream": "start"}
_NUMBER_MAX = 2**63


class Kind(NamedTuple):
    """How to parse a value, and what the error says is expected; `parse` raises ValueError."""

    wanted: str
    parse: Callable[[str], Any]


def number(least: int = 1) -> Kind:
    """Return the kind of a whole number from `least` on."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and least <= int(text) < _NUMBER_MAX):
            raise ValueError(text)
        return int(text)

    return Kind(f"a number from {least} on", parse)


def choice(choices: Mapping[str, Any] | Sequence[str]) -> Kind:
    """Return the kind of one of these words, in any case."""
    by_name = choices if isinstance(choices, Mapping) else dict(zip(choices, choices, strict=True))
    values = {name.lower(): value for name, value in by_name.items()}

    def parse(text: str) -> Any:
        if text.lower() not in values:
            raise ValueError(text)
        return values[text.lower()]

    return Kind(f"one of {', '.join(by_name)}", parse)


def position(*words: str) -> Kind:
    """Return the kind of one of these words, or a number from 1 on."""
    whole, named = number(), choice(words)

    def parse(text: str) -> Any:
        return whole.parse(text) if text.isdecimal() else named.parse(text)

    return Kind(f"{', '.join(words)} or {whole.wanted}", parse)


def names(known: Collection[str] = ()) -> Kind:
    """Return the kind of a list of different names: some of `known`, if that is given."""

    def parse(text: str) -> tuple[str, ...]:
        found = tuple(word.strip() for word in text.split(","))
        if not all(found) or len(set(found)) != len(found) or (known and set(found) - set(known)):
            raise ValueError(text)
        return found

    return Kind(f"some of {','.join(known)}" if known else "names separated by commas", parse)


TEXT = Kind("text", str)
DIRECTORY = Kind("a local directory", lambda text: OsDisk(text).path)  # tasks run elsewhere
FLAG = choice({"true": True, "false": False})


def option(kind: Kind, *uses: Use, default: Any = None) -> Any:
    """Declare a field of an options class as an option for these uses."""
    return field(default=default, metadata={"kind": kind, "uses": uses})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options that a user has set, checked as far as possible without reading the store."""

    source: ClassVar[str]
    place: ClassVar[str] = "the store's directory"

    given: tuple[str, ...] = ()
    txn_app_id: str | None = option(TEXT, "write")
    txn_version: int | None = option(number(0), "write")
    checkpoint_location: str | None = option(TEXT, *WRITES)  # of the stream whose batch it is
    query_name: str | None = option(TEXT, "writeStream")

    def __post_init__(self) -> None:
        if bool(self.txn_app_id) is (self.txn_version is None):
            raise ValueError("set both txnAppId and txnVersion, or neither")

    @classmethod
    def parse(cls, options: Mapping[str, str], **fields: Any) -> Self:
        """Parse what Spark passes on.  ValueError says what to set or remove."""
        known = cls.known()
        spelling = {name.lower(): name for name in known}
        given = []
        for key, text in options.items():
            name = spelling.get(key.lower())
            if name is None:
                listed = ", ".join(sorted(known, key=str.lower))
                raise ValueError(
                    f"remove the option {key!r}: {cls.source} has the options {listed}"
                )
            one = known[name]
            try:
                fields[one.name] = one.metadata["kind"].parse(text)
            except ValueError as error:
                wanted = one.metadata["kind"].wanted
                raise ValueError(f"set {name} to {wanted}, not {text!r}") from error
            given.append(name)
        return cls(given=tuple(given), **fields)

    def only_for(self, use: Use) -> Self:
        """Refuse options of another use.  Spark passes the use only after the options."""
        known = self.known()
        for name in self.given:
            if use not in known[name].metadata["uses"]:
                fit = ", ".join(name for name, one in known.items() if use in one.metadata["uses"])
                raise ValueError(f"remove the option {name}: {use} of {self.source} takes {fit}")
        if not {"path", "paths"} & set(self.given):
            raise ValueError(f"name {self.place}: .{_CALLS[use]}('/the/directory')")
        return self

    @property
    def transaction(self) -> Transaction | None:
        """Return the name and number of a batch job that is to be written once."""
        if not self.txn_app_id or self.txn_version is None:
            return None
        return Transaction(self.txn_app_id, self.txn_version)

    @classmethod
    def known(cls) -> dict[str, Any]:
        """Return the fields of the options by the names that a user writes."""
        return {_camel(one.name): one for one in fields(cls) if "kind" in one.metadata}


def _camel(name: str) -> str:
    return re.sub("_(.)", lambda match: match[1].upper(), name)
