"""What the options of our data sources have in common: names, numbers, flags, transactions.

Names are in camel case and in any case; what is not known is refused, because a misspelt option
that is ignored reads the wrong rows in silence.  Every ValueError says what to do.
"""

from collections.abc import Mapping, Sequence

from holdfast.staged import Transaction

NUMBER_MAX = 2**63
Uses = Mapping[str, Sequence[str]]
"""Which option is for read, readStream, write or writeStream."""


def spelled(
    options: Mapping[str, str], uses: Uses, format: str, others: str = ""
) -> dict[str, str]:
    """The options by their right names.  `others` are known too, and not ours to name."""
    spelling = {name.lower(): name for name in uses}
    values: dict[str, str] = {}
    for key, value in options.items():
        if key.lower() not in spelling:
            known = [*sorted(uses, key=str.lower), *([others] if others else [])]
            raise ValueError(f"remove the option {key!r}: {format} knows {', '.join(known)}")
        values[spelling[key.lower()]] = value
    return values


def refuse_unfit(given: Sequence[str], use: str, uses: Uses) -> None:
    """What has no meaning there: Spark tells only late whether it reads or writes."""
    strange = [name for name in given if use not in uses[name]]
    if strange:
        fit = ", ".join(name for name, fits in uses.items() if use in fits)
        raise ValueError(f"remove the option {strange[0]}: {use} takes {fit}")


def number(
    values: Mapping[str, str], name: str, least: int = 1, wanted: str | None = None
) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and least <= int(text) < NUMBER_MAX):
        wanted = wanted or f"a number from {least} on"
        raise ValueError(f"set {name} to {wanted}, not {text!r}")
    return int(text)


def flag(values: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = values.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise ValueError(f"set {name} to true or false, not {text!r}")
    return text == "true"


def transaction(values: Mapping[str, str]) -> Transaction | None:
    """Of a batch job that is to be written once."""
    app, version = values.get("txnAppId"), number(values, "txnVersion", 0)
    if app is None and version is None:
        return None
    if not app or version is None:
        raise ValueError("set both txnAppId and txnVersion, or neither")
    return Transaction(app, version)
